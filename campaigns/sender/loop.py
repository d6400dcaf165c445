"""An event loop that outlives the jobs: it runs in a thread, so what is open in it is looked after between two jobs."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


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
        done: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def begin() -> None:
            tasks.append(self._loop.create_task(work))
            tasks[0].add_done_callback(lambda task: _tell(task, done))

        self._loop.call_soon_threadsafe(begin)
        try:
            return done.result()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())  # comes after `begin`, perhaps before its start
            wait([done])
            raise

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


def _tell(task: "asyncio.Task[T]", done: "Future[T]") -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif error := task.exception():
        done.set_exception(error)
    else:
        done.set_result(task.result())
