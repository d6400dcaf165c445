"""The shipped Procfile over the servers of `benchmarks.stage`: all of it by `up`, or only the parts that carry mail.

Nothing else starts mailhub's workers for a benchmark. `python -m benchmarks.installation` runs one part: beat, the
worker of the hub and the senders until SIGTERM.
"""

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from benchmarks.processes_seen import descendants, processes, spent_by
from mailhub import embedded
from mailhub.embedded.process import Daemon
from tests.ports import free_port
from tests.waiting import wait_until

PROJECT = Path(__file__).parents[1]
SENDERS = "senders"
PARTS = {  # by a word in the command lines of the Procfile
    SENDERS: "-Q vendors ",
    "worker of the hub": "-Q hub ",
    "worker of webhooks": "-Q webhooks ",
    "web": "rsgi:web",
    "API": "rsgi:api",
    "beat": " beat ",
    "Flower": " flower ",
}
CARRY_MAIL = ("beat", "worker-hub", "worker-vendors")  # lines of the Procfile
SERVERS = ("DATABASE_URL", "REDIS_URL", "BROKER_URL")  # of the stage; `up` must find them on its own
PR_SET_PDEATHSIG = 1
STOP_SECONDS = 60


class Installation:
    """An installation in the stage's home. It runs inside `up` or `workers`."""

    def __init__(self) -> None:
        self.home = embedded.Home()
        self.api = free_port()
        ports = {"PORT": free_port(), "API_PORT": self.api, "FLOWER_PORT": free_port()}
        self.environment = {name: value for name, value in os.environ.items() if name not in (*SERVERS, "LOG_LEVEL")}
        self.environment |= {name: str(port) for name, port in ports.items()}
        self.environment["FLOWER_BASIC_AUTH"] = f"bench:{secrets.token_hex(8)}"
        self.environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self._parent = 0  # of all processes that the Procfile starts

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "manage.py", *arguments]

    def manage(self, *arguments: str) -> str:
        """Return a command's output. Raises SystemExit with its errors if it fails."""
        done = subprocess.run(
            self.command(*arguments), cwd=PROJECT, env=self.environment, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"manage.py {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def asked(self, *arguments: str) -> Any:
        return json.loads(self.manage(*arguments, "--json"))

    @contextlib.contextmanager
    def up(self, **variables: str) -> Iterator[Self]:
        """Run `manage.py up`, the whole Procfile. The servers keep running afterwards."""
        from django.db import connections

        try:
            with self._running(self.command("up"), self.environment | variables):
                yield self
        finally:
            connections.close_all()
            start_servers(self.home)  # `up` has stopped them

    @contextlib.contextmanager
    def workers(self, senders: int = 1) -> Iterator[Self]:
        """Run only the parts that carry mail, with this many sending processes."""
        servers = {name: os.environ[name] for name in SERVERS if name in os.environ}
        variables = self.environment | servers | {"VENDOR_PROCESSES": str(senders)}
        with self._running([sys.executable, "-m", "benchmarks.installation"], variables):
            yield self

    @contextlib.contextmanager
    def _running(self, command: list[str], environment: dict[str, str]) -> Iterator[None]:
        """Run until the block ends, or this process, for any reason."""
        _forget_workers()
        log = self.home.path / "processes.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._parent = process.pid
        try:
            wait_until(lambda: self._ready(process), "the workers read their queues", every=0.1)
            yield
        except BaseException:
            print(f"--- the end of what {command[-1]} said:\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)

    def _ready(self, process: "subprocess.Popen[bytes]") -> bool:
        """Return True once the workers have registered, which each does as it starts to read its queues."""
        if process.poll() is not None:
            raise SystemExit(f"it ended with {process.returncode}")
        names = [name.partition("@")[0] for name in _worker_names()]
        sending = [name for name in names if name.startswith("vendors")]
        return "hub" in names and len(sending) == len(self._leaders()[SENDERS])

    def seconds(self) -> dict[str, float]:
        """Return processor time by part since its start, including processes that have ended."""
        every = processes()
        spent = {part: spent_by(descendants(leaders, every), every) for part, leaders in self._leaders().items()}
        return spent | self.server_seconds()

    def server_seconds(self, home: embedded.Home | None = None) -> dict[str, float]:
        every = processes()
        found = {}
        for title in ("PostgreSQL", "Redis"):
            pid = Daemon({"PostgreSQL": "postgres", "Redis": "redis"}[title], (home or self.home).path).process_id()
            found[title] = spent_by(descendants([pid] if pid else [], every), every)
        return found

    def senders(self) -> list[int]:
        """Return the processes of the sending worker, including its first."""
        return self.processes_of(SENDERS)

    def processes_of(self, part: str) -> list[int]:
        """Return the processes of one of PARTS, including its first."""
        return sorted(descendants(self._leaders()[part], processes()))

    def _leaders(self) -> dict[str, list[int]]:
        """Return the processes that the Procfile starts, by part."""
        found: dict[str, list[int]] = {}
        for pid, parent, _ in processes():
            if parent == self._parent:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                for part in (part for part, word in PARTS.items() if word in line):
                    found.setdefault(part, []).append(pid)
        return found


def _worker_names() -> list[str]:
    from vendors import redis_clients

    return [worker.name for worker in redis_clients.registered_workers(os.environ["REDIS_URL"])]


def _forget_workers() -> None:
    """Unregister workers of an earlier run that did not end properly."""
    from vendors import redis_clients

    for name in _worker_names():
        redis_clients.unregister_worker(os.environ["REDIS_URL"], name)


def start_servers(home: embedded.Home) -> None:
    """Start the servers of this home, even if the environment names others, as a stage's does."""
    named = {name: os.environ.pop(name) for name in SERVERS if name in os.environ}
    try:
        embedded.ensure_servers(home)
    finally:
        os.environ.update(named)


@contextlib.contextmanager
def servers_of_its_own() -> Iterator[embedded.Home]:
    """Run a PostgreSQL for a yardstick, set up as mailhub's is, and remove it at the end."""
    with tempfile.TemporaryDirectory(prefix="mailhub-bench-") as folder:
        home = embedded.Home(folder)
        try:
            start_servers(home)
            yield home
        finally:
            embedded.reset_servers(home)


def wall_to_monotonic() -> float:
    """Return the offset that turns a wall-clock time from the rows into a sink's."""
    return time.monotonic() - time.time()


def end_at_sigterm() -> None:
    """End started processes with the benchmark on SIGTERM, as on Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


def main() -> int:
    import django

    django.setup()
    from mailhub.management.commands.up import process_formation
    from mailhub.supervisor import Supervisor

    lines = {name: line for name, line in process_formation().items() if name.partition(".")[0] in CARRY_MAIL}
    return Supervisor(sys.stdout).run_until_signal(lines)


if __name__ == "__main__":
    sys.exit(main())
