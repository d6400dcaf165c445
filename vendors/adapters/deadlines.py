"""An end for calls that all may take equally long: one timer for them together.

asyncio.timeout sets a timer for each; two of them were an eighth of what a message cost.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any


class Deadlines:
    """`with deadlines:` cancels what a task does in the block after so many seconds: it ends as TimeoutError.

    A task is in one block of the same Deadlines at a time. Who is cancelled by somebody else is cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[asyncio.Task[Any], float] = {}  # the first to end stands in front
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # the one that it is used in: to ask each time costs more

    def __enter__(self) -> None:
        loop = self._loop = self._loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        assert task not in self._ends
        self._ends[task] = end = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(end, self._ring)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        if self._ends.pop(task, None) is not None:
            return
        self._late.discard(task)
        if task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, end in list(self._ends.items()):
            if end > loop.time():
                self._timer = loop.call_at(end, self._ring)
                return
            del self._ends[task]
            self._late.add(task)
            task.cancel()
