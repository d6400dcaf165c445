"""A counter at which those who come while somebody is served are then served together.

Whoever finds it free serves himself and all who stand in line; the first who comes after that serves the next. So one
request alone waits for nobody, and many at once share a transaction. While many come, the next round waits a moment
for as many as the last one had: half the rounds cost half as much.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

MOMENT = 0.002  # seconds
Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Slip(Generic[Item, Answer]):
    """called: a lock that is let go once, when its owner is served or has to serve (an Event costs five times more)."""

    __slots__ = ("answer", "called", "item", "served")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.called = threading.Lock()
        self.called.acquire()
        self.served = False
        self.answer: Answer | BaseException | None = None


class Counter(Generic[Item, Answer]):
    """serve: gets the items, returns an answer for each, which may be an exception for that one alone."""

    def __init__(self, serve: Callable[[Sequence[Item]], Sequence[Answer | Exception]], most: int = 64) -> None:
        self._serve, self._most = serve, most
        self._line: list[_Slip[Item, Answer]] = []
        self._lock = threading.Lock()
        self._busy = False
        self._last = 1  # how many were served together
        self._awaited = 0  # how many the next round waits for
        self._enough = threading.Event()

    def ask(self, item: Item) -> Answer:
        """Raises what serve raised, for everybody who was served with it, or returned for this item."""
        slip: _Slip[Item, Answer] = _Slip(item)
        with self._lock:
            self._line.append(slip)
            free, self._busy = not self._busy, True
            if self._awaited and len(self._line) >= self._awaited:
                self._enough.set()
        if not free:
            slip.called.acquire()
        if not slip.served:
            self._serve_the_line()
        if isinstance(slip.answer, BaseException):
            raise slip.answer
        return slip.answer  # type: ignore[return-value]

    def _serve_the_line(self) -> None:
        slips = self._take()
        try:
            answers: Sequence[Answer | BaseException] = self._serve([slip.item for slip in slips])
        except BaseException as error:
            answers = [error] * len(slips)
        for slip, answer in zip(slips, answers, strict=True):
            slip.answer, slip.served = answer, True
            slip.called.release()
        with self._lock:
            if self._line:
                self._line[0].called.release()  # he serves the next ones
            else:
                self._busy = False

    def _take(self) -> "list[_Slip[Item, Answer]]":
        with self._lock:
            self._awaited = self._last if len(self._line) < self._last else 0
            self._enough.clear()
        if self._awaited:
            self._enough.wait(MOMENT)
        with self._lock:
            slips, self._line = self._line[: self._most], self._line[self._most :]
            self._last, self._awaited = len(slips), 0
        return slips
