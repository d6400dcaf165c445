"""Celery's processes for a test: real ones, on the test's database and Redis, killed at the end."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import connection

from tests import forks
from tests.factories import unique
from tests.programs import NO_WATCHDOG
from tests.tiers import demand_slow
from tests.waiting import DEADLINE, wait_until

PROJECT = Path(__file__).parents[1]


class Process:
    def __init__(self, process: forks.Process, log: Path) -> None:
        self.process = process
        self._log = log

    def until(self, fact: Callable[[], Any], what: str = "what the test waits for") -> Any:
        """Waits until the fact is true; fails with the process's log when it never is or the process has died."""

        def alive() -> Any:
            assert self.process.poll() is None, f"The process ended:\n{self.log()}"
            return fact()

        return wait_until(alive, what, log=self.log)

    def end(self) -> None:
        """As an administrator does: asked to finish, and told to stop where it does not; messages go back."""
        self.process.terminate()
        try:
            self.process.wait(DEADLINE / 2)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(DEADLINE)

    def log(self) -> str:
        return self._log.read_text()


def worker(*queues: str, name: str = "", **variables: str) -> Any:
    """A worker that reads these queues and knows tests/celery_tasks.py."""
    name = name or unique("worker") + "@test"
    arguments = ["-P", "solo", "-I", "tests.celery_tasks", "-Q", ",".join(queues), "-n", name]
    return celery("worker", *arguments, **NO_WATCHDOG, **variables)


@contextmanager
def celery(*arguments: str, **variables: str) -> Iterator[Process]:
    demand_slow("a process of Celery")
    with tempfile.NamedTemporaryFile() as log:
        process = forks.start(["-m", "celery", "-A", "mailhub", *arguments], env=environment(**variables), stdout=log)
        try:
            yield Process(process, Path(log.name))
        finally:
            process.kill()
            process.wait()


def environment(**more: str) -> dict[str, str]:
    """What a process needs to see the test's database instead of the developer's."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"])
    return {**os.environ, "DATABASE_URL": url.geturl(), **more}
