"""Runs the processes of a Procfile side by side. If one ends, all are ended; one that is killed is started again."""

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from typing import TextIO

from honcho.colour import get_colours
from honcho.printer import Message, Printer

# After SIGTERM a worker finishes its calls in flight; after this many seconds it is killed.
STOP_SECONDS = 30
LOOK_SECONDS = 0.2
KILLED = 128 + signal.SIGKILL  # by the kernel for want of memory, or by an administrator
LIVED_SECONDS = 10.0  # one that is killed earlier is not started again: it would be killed again and again
PIPE_BYTES = 65536
PR_SET_PDEATHSIG = 1


class Supervisor:
    """Starts processes, shows their output, and ends all when one of them ends, or at a signal.

    SIGTERM goes to the processes themselves only: Celery's pool would drop its calls at once if it got the signal, too.
    Children that a process leaves behind are killed. On Linux the processes get SIGTERM even if this one is killed.
    (honcho's own manager does none of the three.)
    """

    def __init__(self, output: TextIO) -> None:
        self._printer = Printer(output)
        self._selector = selectors.DefaultSelector()
        self._running: dict[str, Child] = {}
        self._signals: list[int] = []

    def run(self, processes: dict[str, str]) -> int:
        """Run the processes (name: shell command) until all have ended.

        SIGTERM, SIGINT (Ctrl-C), SIGHUP, or an output that nobody reads, end them; a second Ctrl-C kills them.
        The exit code is 128 + the signal, or that of the process that ended by itself, which is never success.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number is signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # respects nohup
                signal.signal(number, lambda caught, _: self._signals.append(caught))
        self._printer.width = max(map(len, processes), default=0)
        try:
            self._start(processes)
            return self._watch()
        finally:
            for child in self._running.values():
                child.kill()

    def _start(self, processes: dict[str, str]) -> None:
        for (name, command), colour in zip(processes.items(), get_colours(), strict=False):
            if self._signals:
                return
            self._start_one(name, command, colour)

    def _start_one(self, name: str, command: str, colour: str) -> None:
        child = Child(name, command, colour)
        self._running[name] = child
        self._selector.register(child.output, selectors.EVENT_READ, child)
        self._say(child, f"started, process {child.pid}")

    def _watch(self) -> int:
        code = 0
        deadline = None
        while self._running:
            for key, _ in self._selector.select(LOOK_SECONDS):
                self._show(key.data)
            for child in [child for child in self._running.values() if child.ended()]:
                ended_with = self._bury(child)
                if self._signals or deadline is not None:
                    continue
                if ended_with == KILLED and time.monotonic() - child.began > LIVED_SECONDS:
                    self._start_one(child.name, child.command, child.colour)
                else:
                    code = ended_with or 1
            if deadline is None and (self._signals or code):
                deadline = time.monotonic() + STOP_SECONDS
                for child in self._running.values():
                    child.tell()
            if deadline is not None and self._out_of_patience(deadline):
                for child in self._running.values():
                    child.kill()
        return code or 128 + self._signals[0]

    def _out_of_patience(self, deadline: float) -> bool:
        return self._signals.count(signal.SIGINT) > 1 or time.monotonic() > deadline

    def _show(self, child: "Child") -> None:
        for line in child.lines():
            self._say(child, line)
        if child.mute and child.output in self._selector.get_map():
            self._selector.unregister(child.output)

    def _bury(self, child: "Child") -> int:
        """Show its last output, kill what it left behind; returns its exit code as a shell would."""
        child.kill()
        child.mute = True  # a process that left its session may keep the pipe open
        self._show(child)
        child.output.close()
        code = child.process.wait()
        self._say(child, f"ended with {code}")
        del self._running[child.name]
        return code if code >= 0 else 128 - code

    def _say(self, child: "Child", line: str) -> None:
        now = datetime.now()  # noqa: DTZ005 (for the person at this terminal)
        try:
            self._printer.write(Message("line", line, now, child.name, child.colour))
        except OSError:
            self._printer.output = open(os.devnull, "w")  # noqa: SIM115 (for the rest of this process)
            if not self._signals:
                self._signals.append(signal.SIGTERM)


class Child:
    """One process, in a session of its own, so that a terminal's Ctrl-C reaches its supervisor only.

    PROCESS_NUMBER: what follows the dot in its name, where one line of the Procfile runs several times.
    """

    def __init__(self, name: str, command: str, colour: str) -> None:
        self.name, self.command, self.colour = name, command, colour
        self.began = time.monotonic()
        # exec: the signal must reach the program, not a shell around it
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            env=os.environ | {"PROCESS_NUMBER": name.partition(".")[2]},
            stdin=subprocess.DEVNULL,
            bufsize=0,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_end_with_parent,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        os.set_blocking(self.output.fileno(), False)
        self.mute = False
        self._begun = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def lines(self) -> list[str]:
        """The lines of output since the last call; the last one may be incomplete once the output has ended."""
        said = self.output.read(PIPE_BYTES)  # None: nothing yet
        self.mute = self.mute or said == b""
        *whole, self._begun = (self._begun + (said or b"")).split(b"\n")
        if self.mute and self._begun:
            whole.append(self._begun)
        return [line.decode(errors="replace") for line in whole]

    def ended(self) -> bool:
        """Whether it has ended. It keeps its process id until wait(), so kill() cannot hit another process."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def tell(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill it and all processes of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
