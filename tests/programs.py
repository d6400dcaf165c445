"""Real worker processes for tests: on the test's own database and Redis, killed at the end."""

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections, connection

from tests import forks
from tests.tiers import demand_slow
from tests.waiting import exit_of, joined, wait_until

PROJECT = Path(__file__).parents[1]
# A worker sweeps on its own if nobody did for three times SWEEP_SECONDS. Tests start their sweeps themselves.
NO_WATCHDOG = {"SWEEP_SECONDS": "86400"}


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that shares the test's database and Redis."""
    address, _, options = settings.DATABASE_URL.partition("?")
    url = f"{address.rpartition('/')[0]}/{connection.settings_dict['NAME']}" + (f"?{options}" if options else "")
    return {
        **os.environ,
        "DATABASE_URL": url,
        "REDIS_URL": settings.REDIS_URL,
        "BROKER_URL": settings.BROKER_URL,
        "SECRET_KEY": settings.SECRET_KEY,
        "PYTHONUNBUFFERED": "1",
        **more,
    }


class Program:
    """A process in a group of its own, with its output in a file."""

    def __init__(self, arguments: list[str], **more: str) -> None:
        demand_slow("a process of mailhub")
        self.log = Path(tempfile.mkstemp(prefix="mailhub-program-", suffix=".log")[1])
        with self.log.open("ab") as output:
            self.process = forks.start(arguments, env=environment(**more), stdout=output, start_new_session=True)

    def said(self, text: str) -> bool:
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log.read_text()[-3000:]}"
        return text in self.log.read_text()

    def send(self, number: int) -> None:
        """To the whole group: the worker and the processes of its pool."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, number: int = signal.SIGKILL) -> int:
        self.send(number)
        try:
            return exit_of(self.process)
        finally:
            self.send(signal.SIGKILL)


@contextlib.contextmanager
def running(*arguments: str, **more: str) -> Iterator[Program]:
    program = Program(list(arguments), **more)
    try:
        yield program
    except BaseException:
        print(f"--- {' '.join(arguments)}\n{program.log.read_text()[-6000:]}")
        raise
    finally:
        program.end()
        program.log.unlink()


def all_have_ended(marker: str) -> None:
    """Wait for the end of all processes with this in their environment: a killed one takes a moment to die."""
    wait_until(lambda: marked(marker) == [], "all have ended")


def marked(marker: str) -> list[int]:
    """Return the processes started with this, NAME=VALUE, in their environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
        except OSError:
            continue  # it has ended, or is not ours to see
    return found


@contextlib.contextmanager
def worker(
    *, threads: int = 20, processes: int = 0, queues: str = "vendors,hub", ready: bool = True, **more: str
) -> Iterator[Program]:
    """Run a Celery worker with threads, or with a number of processes; its short leases spare tests a wait."""
    name = f"test-{os.getpid()}-{time.monotonic_ns()}@localhost"
    pool = ["-c", str(processes)] if processes else ["-P", "threads", "-c", str(threads)]
    options = ["-Q", queues, *pool, "-n", name, "--without-mingle"]
    short = {"CELERY_LOG_LEVEL": "INFO", "LEASE_SECONDS": "4", "HEARTBEAT_SECONDS": "0.5", **NO_WATCHDOG, **more}
    with running("-m", "celery", "-A", "mailhub", "worker", *options, **short) as program:
        if ready:
            wait_until(lambda: program.said(" ready."), "the worker is ready")
        yield program


@contextlib.contextmanager
def sweeping(every: float = 0.5, pauses: bool = False) -> Iterator[None]:
    """Starts the sweep as beat would; pauses: also the look for campaigns that are to pause."""
    from campaigns.tasks import pause_campaigns, settle_doubts, sweep

    over = threading.Event()

    def sweep_again() -> None:
        while not over.wait(every):
            with contextlib.suppress(Exception):  # the broker may be away on purpose
                sweep.apply_async(expires=10)
                settle_doubts.apply_async(expires=10)
                if pauses:
                    pause_campaigns.apply_async(expires=10)
        close_old_connections()

    sweeper = threading.Thread(target=sweep_again, daemon=True)
    sweeper.start()
    try:
        yield
    finally:
        over.set()
        joined(sweeper)
