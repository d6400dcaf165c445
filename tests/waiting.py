"""The one way in which a test waits, and the one failure that a slow machine may cause by itself.

tests/run.py runs a test once more, alone, if nothing but `DeadlineMissed` ended it. So this error is raised only here,
and only for "not yet". A condition asserts any fault that it finds, and that is fatal at the first try.
"""

import asyncio
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")

DEADLINE = 120.0  # seconds until a condition must hold, on a machine that has much else to do
SELDOM = 0.1  # seconds between two looks at what takes long: looking takes processors, too


class DeadlineMissed(Exception):
    """A condition did not become true in time. No AssertionError: nothing was found to be untrue."""


def wait_until(
    condition: Callable[[], T], what: str, seconds: float = DEADLINE, every: float = 0.02, log: Callable[[], str] = str
) -> T:
    """The condition's first true answer. every: seconds between the first questions; log: told if that never comes."""
    began = time.monotonic()
    while not (found := condition()):
        _still_time(began + seconds, what, seconds, log)
        time.sleep(max(every, min((time.monotonic() - began) / 10, SELDOM)))
    return found


async def eventually(condition: Callable[[], Awaitable[T]], what: str, seconds: float = DEADLINE) -> T:
    """Return the first true answer of a coroutine; like wait_until."""
    end = time.monotonic() + seconds
    while not (found := await condition()):
        _still_time(end, what, seconds, str)
        await asyncio.sleep(0.01)
    return found


@asynccontextmanager
async def in_time(what: str, seconds: float = DEADLINE) -> AsyncIterator[None]:
    """Around what a test awaits. A TimeoutError that comes from inside is not ours, and stays what it is."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise DeadlineMissed(f"not within {seconds:g} s: {what}") from error


def result_of(future: "Future[T]", what: str, seconds: float = DEADLINE) -> T:
    """The result of what another thread does. Raises what that thread raised."""
    try:
        return future.result(seconds)
    except TimeoutError as error:
        if future.done():
            return future.result()  # the error is its own, or it ended just now
        raise DeadlineMissed(f"not within {seconds:g} s: {what}") from error


class Ending(Protocol):
    """A process, of `subprocess` or of tests/forks.py."""

    pid: int

    def wait(self, timeout: float | None = None) -> int: ...


def exit_of(process: Ending, seconds: float = DEADLINE) -> int:
    """The exit status of a process that is about to end."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        raise DeadlineMissed(f"not within {seconds:g} s: process {process.pid} ends") from error


def joined(*threads: threading.Thread, seconds: float = DEADLINE) -> None:
    """Wait until they have ended: `join` alone says nothing of one that has not."""
    for thread in threads:
        thread.join(seconds)
        if thread.is_alive():
            raise DeadlineMissed(f"not within {seconds:g} s: {thread.name} ends")


@contextmanager
def their_waits(waited: Callable[[Exception], bool]) -> Iterator[None]:
    """Around a library that waits by itself: its exceptions of which this is true say "not yet", as ours do."""
    try:
        yield
    except Exception as error:
        if waited(error):
            raise DeadlineMissed(str(error)) from error
        raise


def _still_time(end: float, what: str, seconds: float, log: Callable[[], str]) -> None:
    if time.monotonic() > end:
        raise DeadlineMissed(f"not within {seconds:g} s: {what}\n{log()}".rstrip())
