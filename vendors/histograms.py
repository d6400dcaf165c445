"""Histograms for /metrics, counted in the memory of each process and added to sums in Redis every few seconds.

A number costs no statement and no message. All processes add to the same sums, so each one answers with the same
numbers. While Redis is away, the counts of these seconds are lost; no call is made then.
"""

import logging
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from vendors import redis_clients

log = logging.getLogger(__name__)

KEY = "mailhub:histograms"
STORE_SECONDS = 2.0  # at least between two writes of a process that takes reports
PATIENCE = 1.0  # seconds for an answer of Redis
SUM = "sum"


class HistogramKind(NamedTuple):
    """A measured quantity and its buckets' upper bounds; larger values belong to the last one, without a bound."""

    name: str
    bounds: tuple[float, ...]


SHORT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LONG = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
ACCEPT_TO_CALL = HistogramKind("accept_to_call", LONG)
CALL = HistogramKind("call", SHORT)
CALL_TO_STORED = HistogramKind("call_to_stored", SHORT)
REPORT_LAG = HistogramKind("report_lag", LONG)
CLAIM_SIZE = HistogramKind("claim_size", (1, 2, 5, 10, 20, 50, 100, 200, 500))
STATEMENT = HistogramKind("statement", SHORT)
KINDS = (ACCEPT_TO_CALL, CALL, CALL_TO_STORED, REPORT_LAG, CLAIM_SIZE, STATEMENT)

_Label = int | str  # a vendor's id, or a word of few
Taken = dict[tuple[str, _Label], list[float]]  # by kind and label: the numbers in the buckets, then the sum


class ObservedCounts:
    """What this process has observed and not stored yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: Taken = {}

    def observe_value(self, kind: HistogramKind, label: _Label, value: float, number: int = 1) -> None:
        """Count a value `number` times."""
        bucket = bisect_left(kind.bounds, value)
        with self._lock:
            row = self._row_of(kind, label)
            row[bucket] += number
            row[-1] += value * number

    def observe_all(self, kind: HistogramKind, label: _Label, values: Sequence[float]) -> None:
        """Count these values."""
        bounds = kind.bounds
        with self._lock:
            row = self._row_of(kind, label)
            for value in values:
                row[bisect_left(bounds, value)] += 1
            row[-1] += sum(values)

    def take_counts(self) -> Taken:
        """Return the counts not stored yet, and forget them."""
        with self._lock:
            taken, self._rows = self._rows, {}
        return taken

    def _row_of(self, kind: HistogramKind, label: _Label) -> list[float]:
        row = self._rows.get((kind.name, label))
        if row is None:
            row = self._rows[kind.name, label] = [0] * (len(kind.bounds) + 2)
        return row


counts = ObservedCounts()


def add_to(pipeline: Any, taken: Taken) -> None:
    """Let a pipeline of Redis, of either kind, add this to the sums."""
    for (kind, label), row in taken.items():
        parts = [*map(str, range(len(row) - 1)), SUM]
        for part, number in zip(parts, row, strict=True):
            if number:
                pipeline.hincrbyfloat(KEY, f"{kind}|{label}|{part}", number)


class _Storing:
    """When this process stored last."""

    at = float("-inf")


def store_soon(url: str) -> None:
    """Store what this process has observed, unless it has just done so."""
    if time.monotonic() - _Storing.at > STORE_SECONDS:
        _Storing.at = time.monotonic()
        store_now(url)


def store_now(url: str) -> None:
    """Store what this process has observed. While Redis is away it is lost."""
    if taken := counts.take_counts():
        try:
            with _counts_client(url).pipeline(transaction=False) as pipeline:
                add_to(pipeline, taken)
                pipeline.execute()
        except Exception as error:  # its client raises many kinds; nothing depends on these counts
            log.info("histograms are not stored: %s", error)


class StoredHistogram(NamedTuple):
    """The counts of a histogram with one label, by bucket; the last one is open above."""

    buckets: list[float]
    total: float

    def cumulate_buckets(self, kind: HistogramKind) -> Iterator[tuple[str, float]]:
        """Yield the buckets as Prometheus has them: upper bound, and how many values are not larger."""
        seen = 0.0
        for bound, number in zip((*(f"{one:g}" for one in kind.bounds), "+Inf"), self.buckets, strict=True):
            seen += number
            yield bound, seen


def read_sums(found: Mapping[bytes, bytes]) -> dict[HistogramKind, dict[str, StoredHistogram]]:
    """Return the histograms by kind and label, from the hash at KEY. Fields of other versions are left out."""
    kinds = {one.name: one for one in KINDS}
    sums: dict[HistogramKind, dict[str, Counter[str]]] = {one: defaultdict(Counter) for one in KINDS}
    for field, number in found.items():
        name, label, part = field.decode().split("|")
        if kind := kinds.get(name):
            sums[kind][label][part] += float(number)  # type: ignore[assignment]
    return {
        kind: {
            label: StoredHistogram([float(one[str(n)]) for n in range(len(kind.bounds) + 1)], float(one[SUM]))
            for label, one in labels.items()
        }
        for kind, labels in sums.items()
    }


@cache
def _counts_client(url: str) -> Any:
    return redis_clients.make_client(url, PATIENCE)
