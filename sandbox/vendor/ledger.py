"""Writes the vendor's books. Every acceptance is in the file before its answer leaves; indexes are in memory."""

import fcntl
import os
import tempfile
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from sandbox.vendor.books import ACCEPTING, BookEntry, WorstWindow, parse, whole_lines

PAGE = 1000  # entries in an answer of GET /ledger/entries, and between two marks of the index


class Ledger:
    """Append-only books. An existing file is read first, so a restart loses nothing.

    Raises BlockingIOError if another sandbox keeps its books in this file.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = tempfile.TemporaryFile() if path is None else path.open("a+b")  # noqa: SIM115 # until close()
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.calls = 0
        self.verdicts: Counter[str] = Counter()
        self.times = array("d")
        self._walls = [0.0, 0.0]  # first and last
        self._by_key: dict[str, int] = {}
        self._by_reference: dict[str, int] = {}
        self._recipients: set[str] = set()
        self._deferred: set[str] = set()
        self._duplicates: set[str] = set()
        self._windows: dict[float, WorstWindow] = {}
        self._size = 0
        self._marks = array("q")  # file offsets of every PAGE-th entry
        self._unwritten: list[bytes] = []
        self._read_back()

    def _read_back(self) -> None:
        self._file.seek(0)
        for line in whole_lines(self._file):
            self._remember(parse(line), len(line))
        self._file.truncate(self._size)  # a line cut by a kill belongs to a call that was never answered

    def _remember(self, entry: BookEntry, length: int) -> None:
        if self.calls % PAGE == 0:
            self._marks.append(self._size)
        self._size += length
        self.calls = entry.seq
        self.verdicts[entry.verdict] += 1
        self.times.append(entry.t)
        self._walls = [self._walls[0] or entry.wall, entry.wall]
        if entry.verdict in ACCEPTING:
            self._remember_acceptance(entry)
        elif entry.verdict == "deferred":
            self._deferred.add(entry.reference)

    def _remember_acceptance(self, entry: BookEntry) -> None:
        if entry.key:
            self._by_key.setdefault(entry.key, entry.seq)
        if self._by_reference.setdefault(entry.reference, entry.seq) != entry.seq:
            self._duplicates.add(entry.reference)
        if entry.recipient in self._recipients:
            self._duplicates.add(entry.recipient)
        self._recipients.add(entry.recipient)

    def book(self, entry: BookEntry) -> None:
        """Enter a call. It may be answered only after `write`."""
        line = entry.line()
        self._unwritten.append(line)
        self._remember(entry, len(line))

    def write(self) -> None:
        """Write all entries to the file. Raises OSError."""
        batch = memoryview(b"".join(self._unwritten))
        self._unwritten.clear()
        while batch:
            batch = batch[os.write(self._file.fileno(), batch) :]

    def close(self) -> None:
        self._file.close()

    def accepted_as(self, key: str) -> int | None:
        """Return the entry that first accepted this idempotency key."""
        return self._by_key.get(key)

    def find(self, reference: str) -> int | None:
        """Return the entry that first accepted this reference."""
        return self._by_reference.get(reference)

    def was_deferred(self, reference: str) -> bool:
        return reference in self._deferred

    def summary(self, windows: list[float]) -> dict[str, Any]:
        """Return the content of GET /ledger. `duplicates`: references and recipients accepted more than once."""
        return {
            "calls": self.calls,
            "accepted": sum(self.verdicts[verdict] for verdict in ACCEPTING),
            "refused": self.verdicts["refused"],
            "duplicates": len(self._duplicates),
            "violations": self.verdicts["throttled"],
            "verdicts": dict(self.verdicts),
            "worst_window": {f"{seconds:g}": self._worst(seconds) for seconds in windows},
            "first": {"t": self.times[0], "wall": self._walls[0]} if self.calls else None,
            "last": {"t": self.times[-1], "wall": self._walls[1]} if self.calls else None,
        }

    def _worst(self, seconds: float) -> int:
        if seconds not in self._windows:
            self._windows[seconds] = WorstWindow(seconds)
        return self._windows[seconds].update(self.times)

    def page(self, after: int) -> dict[str, Any]:
        """Return at most PAGE entries after entry number `after`; `next` is the next page's `after`."""
        self.write()
        after = max(after, 0)
        block, skip = divmod(after, PAGE)
        ends = [*self._marks, self._size, self._size, self._size]
        start = ends[min(block, len(self._marks))]
        end = ends[min(block, len(self._marks)) + 2]
        lines = os.pread(self._file.fileno(), end - start, start).splitlines()[skip : skip + PAGE]
        return {
            "entries": [orjson.Fragment(line) for line in lines],
            "next": after + len(lines),
            "calls": self.calls,
        }
