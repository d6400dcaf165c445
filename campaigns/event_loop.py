"""An event loop that outlives the jobs: it runs in a thread, so what is open in it is looked after between two jobs."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

NOTICED = 1.0
"""Seconds after which a caller looks again by itself. A signal that arrives between Python's check for signals and the
wait for a lock does not end that wait: without this, a time limit or a shutdown would be noticed when the work ends."""


class LoopThread:
    """Runs coroutines for one caller that blocks. Made after a fork, never before: a thread does not survive it."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._live, args=(started,), name="sender", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises. Whoever is interrupted meanwhile has cut it off and seen its end."""
        tasks: list[asyncio.Task[T]] = []
        ended: SimpleQueue[object] = SimpleQueue()  # written in C: an exception out of a signal cannot leave it locked

        def begin() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(ended.put)

        def cut_off() -> None:
            if not tasks:  # interrupted before it was handed over
                begin()
            tasks[0].cancel()

        try:
            self._loop.call_soon_threadsafe(begin)
            _wait(tasks, ended)
        except BaseException:
            self._loop.call_soon_threadsafe(cut_off)  # comes after `begin`, perhaps before the work's first step
            _wait(tasks, ended)
            raise
        return tasks[0].result()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs it beside the others; it tells by itself what came of it."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Everything that was opened in it must be closed by now."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _live(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            started.set_result(runner.get_loop())
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._over.wait()


def _wait(tasks: list[asyncio.Task[T]], ended: SimpleQueue[object]) -> None:
    while not (tasks and tasks[0].done()):
        with suppress(Empty):
            ended.get(timeout=NOTICED)
