"""Runs the processes of a Procfile side by side. A process that ends, for any reason, restarts after a pause."""

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TextIO

from honcho.colour import get_colours
from honcho.printer import Message, Printer

# After SIGTERM a worker finishes its calls in flight; after this many seconds it is killed.
STOP_SECONDS = 30
LOOK_SECONDS = 0.2
PAUSE_SECONDS, LONGEST_PAUSE = 1.0, 30.0  # until the next start; doubles with each early end
LIVED_SECONDS = 60.0  # after a life this long the pause starts over
AGAIN_AND_AGAIN = 3  # early ends in a row before it is reported
PIPE_BYTES = 65536
PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class ProcessLine:
    """A line of the Procfile. `ends`: its early ends in a row. `again_at`: its next start."""

    name: str
    command: str
    colour: str
    ends: int = 0
    again_at: float = 0.0

    def put_off(self, lived: float) -> float:
        """Record an end after `lived` seconds. Returns the pause until the next start, in seconds."""
        self.ends = 1 if lived >= LIVED_SECONDS else self.ends + 1
        pause: float = min(LONGEST_PAUSE, PAUSE_SECONDS * 2 ** min(self.ends - 1, 10))
        self.again_at = time.monotonic() + pause
        return pause


def _tell_nobody(name: str, sentence: str) -> None:
    pass


class Supervisor:
    """Starts processes, shows their output, restarts any that end, and stops all on a signal.

    Unlike honcho's manager: SIGTERM goes only to the processes themselves, since Celery's pool would drop its calls
    immediately if it got the signal too. Children that a process leaves behind are killed. On Linux the processes get
    SIGTERM even if this one is killed.
    """

    def __init__(self, output: TextIO, tell: Callable[[str, str], None] = _tell_nobody) -> None:
        """`tell`: called with the name of a process that ends again and again, and a sentence about it."""
        self._printer = Printer(output)
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._running: dict[str, Child] = {}
        self._waiting: list[ProcessLine] = []
        self._signals: list[int] = []

    def run_until_signal(self, processes: dict[str, str]) -> int:
        """Run the processes (name: shell command) until a signal ends them. Returns 128 + the signal.

        SIGTERM, SIGINT (Ctrl-C), SIGHUP or a closed output end them; a second Ctrl-C kills them.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number is signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # respects nohup
                signal.signal(number, lambda caught, _: self._signals.append(caught))
        self._printer.width = max(map(len, processes), default=0)
        lines = zip(processes.items(), get_colours(), strict=False)
        self._waiting = [ProcessLine(name, command, colour) for (name, command), colour in lines]
        try:
            self._watch_children()
        finally:
            for child in self._running.values():
                child.kill_session()
        return 128 + self._signals[0]

    def _start_due(self) -> None:
        for line in [line for line in self._waiting if line.again_at <= time.monotonic()]:
            if self._signals:
                return
            self._waiting.remove(line)
            child = Child(line)
            self._running[line.name] = child
            self._selector.register(child.output, selectors.EVENT_READ, child)
            self._say_line(line, f"started, process {child.process_id}")

    def _watch_children(self) -> None:
        deadline = None
        while self._running or not self._signals:
            if deadline is None:
                self._start_due()
            for key, _ in self._selector.select(LOOK_SECONDS):
                self._show_output(key.data)
            for child in [child for child in self._running.values() if child.has_ended()]:
                self._bury_child(child, again=not self._signals)
            if deadline is None and self._signals:
                deadline = time.monotonic() + STOP_SECONDS
                for child in self._running.values():
                    child.send_sigterm()
            if deadline is not None and self._out_of_patience(deadline):
                for child in self._running.values():
                    child.kill_session()

    def _out_of_patience(self, deadline: float) -> bool:
        return self._signals.count(signal.SIGINT) > 1 or time.monotonic() > deadline

    def _show_output(self, child: "Child") -> None:
        for line in child.lines():
            self._say_line(child.line, line)
        if child.mute and child.output in self._selector.get_map():
            self._selector.unregister(child.output)

    def _bury_child(self, child: "Child", again: bool) -> None:
        """Show its last output and its end, and kill its leftovers. `again`: it will be restarted."""
        child.kill_session()
        child.mute = True  # a process that left its session may keep the pipe open
        self._show_output(child)
        child.output.close()
        code = child.process.wait()
        del self._running[child.line.name]
        said = f"ended with {code if code >= 0 else 128 - code}"  # as a shell reports it
        if not again:
            self._say_line(child.line, said)
            return
        pause = child.line.put_off(time.monotonic() - child.began)
        self._waiting.append(child.line)
        if child.line.ends >= AGAIN_AND_AGAIN:
            said = f"ends again and again, {child.line.ends} times in a row, now with {said.rpartition(' ')[2]}"
            self._tell(child.line.name, said)
        self._say_line(child.line, f"{said}; it is started again in {pause:g} s")

    def _say_line(self, of: ProcessLine, line: str) -> None:
        now = datetime.now()  # noqa: DTZ005 (for the person at this terminal)
        try:
            self._printer.write(Message("line", line, now, of.name, of.colour))
        except OSError:
            self._printer.output = open(os.devnull, "w")  # noqa: SIM115 (for the rest of this process)
            if not self._signals:
                self._signals.append(signal.SIGTERM)


class Child:
    """One process, in a session of its own, so that a terminal's Ctrl-C reaches only its supervisor.

    PROCESS_NUMBER: the number after the dot in its name, if one line of the Procfile runs several times.
    """

    def __init__(self, line: ProcessLine) -> None:
        self.line = line
        self.began = time.monotonic()
        # exec: the signal must reach the program, not a shell around it
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {line.command}"],
            env=os.environ | {"PROCESS_NUMBER": line.name.partition(".")[2]},
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
    def process_id(self) -> int:
        return self.process.pid

    def lines(self) -> list[str]:
        """Return the lines of output since the last call. The last one may be incomplete after the output's end."""
        said = self.output.read(PIPE_BYTES)  # None: nothing yet
        self.mute = self.mute or said == b""
        *whole, self._begun = (self._begun + (said or b"")).split(b"\n")
        if self.mute and self._begun:
            whole.append(self._begun)
        return [line.decode(errors="replace") for line in whole]

    def has_ended(self) -> bool:
        """Return True if it has ended. It keeps its process id until wait(), so kill() cannot hit another process."""
        return os.waitid(os.P_PID, self.process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def send_sigterm(self) -> None:
        os.kill(self.process_id, signal.SIGTERM)

    def kill_session(self) -> None:
        """Kill it and all processes of its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.process_id, signal.SIGKILL)


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM at the parent's death."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
