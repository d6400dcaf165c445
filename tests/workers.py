"""A real Celery worker for a test: its own process on the test's database and Redis, killed at the end."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.db import connection

PROJECT = Path(__file__).parents[1]
DEADLINE = 60.0  # seconds; a loaded machine takes its time
OPTIONS = ["-P", "solo", "-I", "tests.celery_tasks", "-n", f"test{os.getpid()}@%h", "--without-mingle"]


def environment(**more: str) -> dict[str, str]:
    """What a process needs to see the test's database instead of the developer's."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"])
    return {**os.environ, "DATABASE_URL": url.geturl(), **more}


@contextmanager
def worker(*queues: str) -> Iterator["Worker"]:
    """A worker that reads these queues and knows tests/celery_tasks.py."""
    with tempfile.NamedTemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "mailhub", "worker", *OPTIONS, "-Q", ",".join(queues)],
            cwd=PROJECT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield Worker(process, Path(log.name))
        finally:
            process.kill()
            process.wait()


class Worker:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    def until(self, fact: Callable[[], Any]) -> Any:
        """Wait until the fact is true; fails with the worker's log when it never is or the worker has died."""
        deadline = time.monotonic() + DEADLINE
        while not (answer := fact()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"It never became true. The worker said:\n{self.log()}")
            time.sleep(0.02)
        return answer

    def log(self) -> str:
        return self._log.read_text()
