"""The event loop of a process, in a thread of its own, so that callers that block share it."""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

AGAIN = 5.0  # seconds, in which a task that was cancelled has had time for what it does at its end
NOTICED = 1.0
"""Seconds after which a caller wakes by itself. A signal that arrives between Python's check for signals and the wait
for a lock does not end that wait; a time limit or a shutdown would be noticed when the coroutine ends."""


class LoopThread:
    """Runs coroutines for callers that block. Made after a fork, never before: a thread does not survive it."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._live, args=(started,), name="sender", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns or raises what the coroutine does. If interrupted, cancels the coroutine and waits for its end."""
        tasks: list[asyncio.Task[Any]] = []
        ended: SimpleQueue[object] = SimpleQueue()  # written in C: an exception out of a signal cannot leave it locked

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(ended.put)

        def interrupt() -> None:
            if not tasks:  # interrupted before it was handed over
                begin()
            tasks.append(self._loop.create_task(cut_off(tasks[0])))  # kept, or it might be collected as garbage

        try:
            self._loop.call_soon_threadsafe(begin)
            _wait(tasks, ended)
        except BaseException:
            self._loop.call_soon_threadsafe(interrupt)  # after `begin`, perhaps before the coroutine's first step
            _wait(tasks, ended)
            raise
        result: T = tasks[0].result()
        return result

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Starts a coroutine, which reports its result by itself."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Ends the loop; everything that was opened in it must be closed before."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _live(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.get_loop().set_exception_handler(_log_error)
            started.set_result(runner.get_loop())
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._over.wait()


def _log_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs errors that nobody waits for, but not that the host of a connection that was given up is not found.

    uvloop goes on looking for it, and would log an error for each such connection.
    """
    if not ("future" in context and isinstance(context.get("exception"), socket.gaierror)):
        loop.default_exception_handler(context)


async def happens(event: asyncio.Event, seconds: float) -> None:
    """Waits until it has happened, or for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def cut_off(*tasks: asyncio.Task[Any]) -> Coroutine[Any, Any, None]:
    """Cancels the tasks at once, and waits until they have ended, however they do.

    A task can miss it: asyncio.wait_for of Python 3.11 drops a cancellation that comes as what it waits for has just
    ended, and the client of Redis writes by that. So it is repeated.
    """
    for task in tasks:
        task.cancel()
    return _ended(set(tasks))


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    while tasks:
        _, tasks = await asyncio.wait(tasks, timeout=AGAIN)
        for task in tasks:
            task.cancel()


def _wait(tasks: list[asyncio.Task[Any]], ended: SimpleQueue[object]) -> None:
    while not (tasks and tasks[0].done()):
        with suppress(Empty):
            ended.get(timeout=NOTICED if threading.current_thread() is threading.main_thread() else None)
