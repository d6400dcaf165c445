"""mailhub as a newcomer has it: `manage.py up` runs the shipped Procfile over the servers of `benchmarks.stage`.

Only what people do is done to it: commands, requests to the API. The rest is looking on: at its rows and at /proc.
"""

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.capacity import processes
from mailhub import embedded
from mailhub.embedded.process import Daemon
from tests.ports import free_port
from tests.waiting import wait_until

PROJECT = Path(__file__).parents[1]
SENDERS = "senders"
PARTS = {  # by a word in the command line of what the Procfile starts
    SENDERS: "-Q vendors ",
    "worker of the hub": "-Q hub ",
    "worker of webhooks": "-Q webhooks ",
    "web": "rsgi:web",
    "API": "rsgi:api",
    "beat": " beat ",
    "Flower": " flower ",
}
NOT_SHIPPED = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "LOG_LEVEL")  # of the stage: `up` is to find out by itself
PR_SET_PDEATHSIG = 1
STOP_SECONDS = 60


class Installation:
    """Of the stage's home. It runs while `up` is entered."""

    def __init__(self) -> None:
        self.home = embedded.Home()
        self.api = free_port()
        ports = {"PORT": free_port(), "API_PORT": self.api, "FLOWER_PORT": free_port()}
        self.environment = {name: value for name, value in os.environ.items() if name not in NOT_SHIPPED}
        self.environment |= {name: str(port) for name, port in ports.items()}
        self.environment |= {"FLOWER_BASIC_AUTH": f"bench:{secrets.token_hex(8)}"}
        self._up = 0

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "manage.py", *arguments]

    def manage(self, *arguments: str) -> str:
        """What a command says. Raises SystemExit with its complaint if it fails."""
        done = subprocess.run(
            self.command(*arguments), cwd=PROJECT, env=self.environment, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"manage.py {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def asked(self, *arguments: str) -> Any:
        return json.loads(self.manage(*arguments, "--json"))

    @contextlib.contextmanager
    def up(self, **variables: str) -> Iterator[None]:
        """Until the block ends, or this process, however that ends. The servers run on afterwards."""
        from django.db import connections

        log = self.home.path / "up.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                self.command("up"),
                cwd=PROJECT,
                env=self.environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._up = process.pid
        try:
            wait_until(lambda: self._ready(process, log), "the workers read their queues", every=0.1)
            yield
        except BaseException:
            print(f"--- the end of what `up` said:\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)
            connections.close_all()
            start_servers(self.home)  # `up` has stopped them

    def _ready(self, process: "subprocess.Popen[bytes]", log: Path) -> bool:
        from vendors import redis_clients

        if process.poll() is not None:
            raise SystemExit(f"`up` ended with {process.returncode}")
        if "Ctrl-C ends them" not in log.read_text():
            return False
        names = [one.name.partition("@")[0] for one in redis_clients.registered_workers(os.environ["REDIS_URL"])]
        sending = [name for name in names if name.startswith("vendors")]
        return "hub" in names and len(sending) == len(self._leaders()[SENDERS])

    def seconds(self) -> dict[str, float]:
        """Processor time of each part since it started, that of its processes which have ended included."""
        every = processes()
        spent = {part: spent_by(descendants(leaders, every), every) for part, leaders in self._leaders().items()}
        return spent | self.server_seconds()

    def server_seconds(self, home: embedded.Home | None = None) -> dict[str, float]:
        every = processes()
        found = {}
        for title in ("PostgreSQL", "Redis"):
            pid = Daemon({"PostgreSQL": "postgres", "Redis": "redis"}[title], (home or self.home).path).pid()
            found[title] = spent_by(descendants([pid] if pid else [], every), every)
        return found

    def senders(self) -> list[int]:
        """The processes of the worker that sends, its first one included."""
        return sorted(descendants(self._leaders()[SENDERS], processes()))

    def _leaders(self) -> dict[str, list[int]]:
        """The processes that the Procfile starts for each part."""
        found: dict[str, list[int]] = {}
        for pid, parent, *_ in processes():
            if parent == self._up:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                for part in (part for part, word in PARTS.items() if word in line):
                    found.setdefault(part, []).append(pid)
        return found


def start_servers(home: embedded.Home) -> None:
    """Also where the environment names others, as that of a stage does."""
    named = {name: os.environ.pop(name) for name in NOT_SHIPPED if name in os.environ}
    try:
        embedded.ensure(home)
    finally:
        os.environ.update(named)


def descendants(of: Iterable[int], every: Iterable[tuple[int, int, int, float, float]]) -> set[int]:
    """These processes, and all that they have started."""
    found, parents = set(of), {pid: parent for pid, parent, *_ in every}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def spent_by(tree: Collection[int], every: Iterable[tuple[int, int, int, float, float]]) -> float:
    return sum(own + ended for pid, _, _, own, ended in every if pid in tree)


def process_seconds(pid: int) -> float:
    return spent_by([pid], processes())


def wall_to_monotonic() -> float:
    """What to add to a time of the wall clock, as the rows have it, to compare it with a sink's."""
    return time.monotonic() - time.time()


def end_at_sigterm() -> None:
    """So that what was started ends with the benchmark, as it does at Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
