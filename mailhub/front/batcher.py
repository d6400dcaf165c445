"""A counter at which those who come while somebody is served are then served together.

Whoever finds a free clerk's place serves himself and all who stand in line; the first who comes after that serves the
next. So one request alone waits for nobody, and many at once share a transaction. There are two places, so that one
round is put together while the other waits for the disk. While many come, a round waits a moment for as many as the
last one had: half the rounds cost half as much.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

MOMENT = 0.004  # seconds
Item = TypeVar("Item")
Served = TypeVar("Served")


class _Slip(Generic[Item, Served]):
    """called: a lock that is let go once, when its owner is served or has to serve (an Event costs five times more)."""

    __slots__ = ("answer", "called", "item", "served")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.called = threading.Lock()
        self.called.acquire()
        self.served = False
        self.answer: Served | BaseException | None = None


class Batcher(Generic[Item, Served]):
    """serve: gets the items, returns an answer for each, which may be an exception for that one alone."""

    def __init__(
        self, serve: Callable[[Sequence[Item]], Sequence[Served | Exception]], most: int = 64, places: int = 2
    ) -> None:
        self._serve, self._most = serve, most
        self._line: list[_Slip[Item, Served]] = []
        self._lock = threading.Lock()
        self._places = places  # that are free
        self._gathering = False  # somebody is about to take the line
        self._last = 1  # how many were served together
        self._awaited = 0  # how many the next round waits for
        self._enough = threading.Event()

    def ask(self, item: Item) -> Served:
        """Raises what serve raised, for everybody who was served with it, or returned for this item."""
        slip: _Slip[Item, Served] = _Slip(item)
        with self._lock:
            self._line.append(slip)
            serves = self._may_serve()
            if self._awaited and len(self._line) >= self._awaited:
                self._enough.set()
        if not serves:
            slip.called.acquire()
        if not slip.served:
            self._serve_the_line()
        if isinstance(slip.answer, BaseException):
            raise slip.answer
        return slip.answer  # type: ignore[return-value]

    def _serve_the_line(self) -> None:
        slips = self._take()
        try:
            answers: Sequence[Served | BaseException] = self._serve([slip.item for slip in slips])
        except BaseException as error:
            answers = [error] * len(slips)
        for slip, answer in zip(slips, answers, strict=True):
            slip.answer, slip.served = answer, True
            slip.called.release()
        with self._lock:
            self._places += 1
            if self._line and self._may_serve():
                self._line[0].called.release()

    def _may_serve(self) -> bool:
        """With the lock. Takes a place, and with it the duty to take the line."""
        if self._gathering or not self._places:
            return False
        self._gathering = True
        self._places -= 1
        return True

    def _take(self) -> "list[_Slip[Item, Served]]":
        with self._lock:
            self._awaited = self._last if len(self._line) < self._last else 0
            self._enough.clear()
        if self._awaited:
            self._enough.wait(MOMENT)
        with self._lock:
            slips, self._line = self._line[: self._most], self._line[self._most :]
            self._last, self._awaited, self._gathering = len(slips), 0, False
            if self._line and self._may_serve():  # more than one round may hold
                self._line[0].called.release()
        return slips
