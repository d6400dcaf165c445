"""Group commit: while one batch is being stored, new requests gather for the next.

No separate thread runs: one request's thread serves the whole batch while the others wait. A single request does not
wait; concurrent ones share a transaction. Two batches run at a time, so one gathers while the other waits for the disk.

Under load a batch waits a moment to grow to the size of the last one, because half the batches cost half. With one
round it also waits for the requests just served, because those are likely to return. Otherwise two halves of the
threads would alternate.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

MOMENT = 0.004  # seconds
Item = TypeVar("Item")
Served = TypeVar("Served")


class _Entry(Generic[Item, Served]):
    """One item in the queue.

    `called`: a lock released once: after the item was served, or for its thread to serve a batch. An Event costs much
    more.
    """

    __slots__ = ("answer", "called", "item", "served")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.called = threading.Lock()
        self.called.acquire()
        self.served = False
        self.answer: Served | BaseException | None = None


class Batcher(Generic[Item, Served]):
    """Calls `serve` with up to `most` items at a time, from at most `rounds` threads.

    `serve`: returns an answer for each item; an exception among the answers is raised for its item only.
    """

    def __init__(
        self, serve: Callable[[Sequence[Item]], Sequence[Served | Exception]], most: int = 64, rounds: int = 2
    ) -> None:
        self._serve, self._most = serve, most
        self._queue: list[_Entry[Item, Served]] = []
        self._lock = threading.Lock()
        self._free_rounds = self._rounds = rounds
        self._gathering = False  # a thread is about to take entries from the queue
        self._last = 1  # the size of the last batch, or the number expected in the next one
        self._awaited = 0  # the queue's length that a gathering thread waits for
        self._enough = threading.Event()

    def serve_in_batch(self, item: Item) -> Served:
        """Wait until the item is served. Raises what `serve` raised, or returned for this item."""
        entry: _Entry[Item, Served] = _Entry(item)
        with self._lock:
            self._queue.append(entry)
            serves = self._may_serve()
            if self._awaited and len(self._queue) >= self._awaited:
                self._enough.set()
        if not serves:
            entry.called.acquire()
        if not entry.served:
            self._serve_batch()
        if isinstance(entry.answer, BaseException):
            raise entry.answer
        return entry.answer  # type: ignore[return-value]

    def _serve_batch(self) -> None:
        batch = self._take_batch()
        try:
            answers: Sequence[Served | BaseException] = self._serve([entry.item for entry in batch])
        except BaseException as error:
            answers = [error] * len(batch)
        for entry, answer in zip(batch, answers, strict=True):
            entry.answer, entry.served = answer, True
            entry.called.release()
        with self._lock:
            self._free_rounds += 1
            if self._queue and self._rounds == 1:
                self._last = min(self._most, len(batch) + len(self._queue))
            if self._queue and self._may_serve():
                self._queue[0].called.release()

    def _may_serve(self) -> bool:
        """Take a round if possible; its owner must then take the queue. Call with the lock held."""
        if self._gathering or not self._free_rounds:
            return False
        self._gathering = True
        self._free_rounds -= 1
        return True

    def _take_batch(self) -> "list[_Entry[Item, Served]]":
        """Wait for a batch as large as the last one, at most MOMENT. Returns the entries to serve."""
        with self._lock:
            self._awaited = self._last if len(self._queue) < self._last else 0
            self._enough.clear()
        if self._awaited:
            self._enough.wait(MOMENT)
        with self._lock:
            batch, self._queue = self._queue[: self._most], self._queue[self._most :]
            self._last, self._awaited, self._gathering = len(batch), 0, False
            if self._queue and self._may_serve():  # more are waiting than one batch may contain
                self._queue[0].called.release()
        return batch
