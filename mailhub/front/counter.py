"""A counter at which those who come while somebody is served are then served together.

Whoever finds it free serves himself and all who stand in line; the first who comes after that serves the next. So one
request alone waits for nobody, and many at once share a transaction.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Slip(Generic[Item, Answer]):
    def __init__(self, item: Item) -> None:
        self.item = item
        self.called = threading.Event()
        self.served = False
        self.answer: Answer | BaseException | None = None


class Counter(Generic[Item, Answer]):
    """serve: gets the items, returns an answer for each, which may be an exception for that one alone."""

    def __init__(self, serve: Callable[[Sequence[Item]], Sequence[Answer | Exception]], most: int = 64) -> None:
        self._serve, self._most = serve, most
        self._line: list[_Slip[Item, Answer]] = []
        self._busy = False
        self._lock = threading.Lock()

    def ask(self, item: Item) -> Answer:
        """Raises what serve raised, for everybody who was served with it, or returned for this item."""
        slip: _Slip[Item, Answer] = _Slip(item)
        with self._lock:
            self._line.append(slip)
            free, self._busy = not self._busy, True
        if not free:
            slip.called.wait()
        if not slip.served:
            self._serve_the_line()
        if isinstance(slip.answer, BaseException):
            raise slip.answer
        return slip.answer  # type: ignore[return-value]

    def _serve_the_line(self) -> None:
        with self._lock:
            slips, self._line = self._line[: self._most], self._line[self._most :]
        try:
            answers: Sequence[Answer | BaseException] = self._serve([slip.item for slip in slips])
        except BaseException as error:
            answers = [error] * len(slips)
        for slip, answer in zip(slips, answers, strict=True):
            slip.answer, slip.served = answer, True
            slip.called.set()
        with self._lock:
            if self._line:
                self._line[0].called.set()  # he serves the next ones
            else:
                self._busy = False
