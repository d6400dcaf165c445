"""The vendor's books: one JSON line for each call that reached it, and queries on them.

`worst_window` gives the most arrivals within any window of a given length: the vendor's view of promise P4 (rate).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Literal

import orjson


class WorstWindow:
    """The fullest half-open window [a, a + seconds) over arrival times that only grow.

    It is incremental: an update after k more arrivals costs O(k), so queries to a busy vendor do not delay its time
    stamps.
    """

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:
            raise ValueError("a window is longer than 0 seconds")
        self.seconds = seconds
        self.count = 0
        self._left = 0
        self._seen = 0

    def update(self, times: Sequence[float]) -> int:
        """Count the calls added to `times` (seconds, ascending) since the last update. Returns the maximum so far."""
        left, worst = self._left, self.count
        for right in range(self._seen, len(times)):
            while times[right] - times[left] >= self.seconds:
                left += 1
            worst = max(worst, right - left + 1)
        self._left, self._seen, self.count = left, len(times), worst
        return worst


def worst_window(times: Sequence[float], seconds: float) -> int:
    """Return the most arrivals in any half-open window of this many seconds; `times` in seconds, ascending."""
    return WorstWindow(seconds).update(times)


BookVerdict = Literal[
    "accepted",  # accepted for the first time
    "duplicate",  # accepted although its reference was accepted before
    "repeat",  # known key: answered 409 with the earlier id, not accepted again
    "refused",  # 4xx for good
    "throttled",  # 429, faster than the limit set here: a violation
    "deferred",  # 429, once for each reference of tempfail@
    "failed",  # 500 before acceptance
    "unauthorized",
    "down",
    "found",  # the answers to a look-up
    "absent",
]
ACCEPTING: frozenset[str] = frozenset({"accepted", "duplicate"})


@dataclass(slots=True)
class BookEntry:
    """One call, to send or to look up.

    `t`: the vendor's monotonic clock; `wall`: Unix time; both in seconds, at the request's last byte. `status`: None if
    there was no answer. `id`: may be empty.
    """

    seq: int
    t: float
    wall: float
    reference: str
    key: str
    recipient: str
    verdict: BookVerdict
    status: int | None
    credential: str
    id: str
    look_up: bool = False

    def line(self) -> bytes:
        return orjson.dumps(self, option=orjson.OPT_APPEND_NEWLINE)


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield complete lines. A last line cut by a kill was never answered, so it does not count."""
    return (line for line in file if line.endswith(b"\n"))


def parse(line: bytes) -> BookEntry:
    return BookEntry(**orjson.loads(line))


def read(path: str | Path) -> "Books":
    """Read the file as it is now; the vendor may be running, stopped or killed."""
    with open(path, "rb") as file:
        return Books([parse(line) for line in whole_lines(file)])


class Books:
    """The calls in the file. `entries`: calls to send. `look_ups`: the others."""

    def __init__(self, calls: list[BookEntry]) -> None:
        self._calls = calls
        self.entries = [entry for entry in calls if not entry.look_up]
        self.look_ups = [entry for entry in calls if entry.look_up]

    @cached_property
    def acceptances(self) -> list[BookEntry]:
        """All acceptances in order of arrival, including repeated ones of one reference."""
        return [entry for entry in self.entries if entry.verdict in ACCEPTING]

    @cached_property
    def accepted(self) -> dict[str, BookEntry]:
        """Reference → its first acceptance."""
        first: dict[str, BookEntry] = {}
        for entry in self.acceptances:
            first.setdefault(entry.reference, entry)
        return first

    @cached_property
    def recipients(self) -> Counter[str]:
        """Recipient → number of acceptances."""
        return Counter(entry.recipient for entry in self.acceptances)

    @cached_property
    def verdicts(self) -> Counter[str]:
        """Verdict → number of calls to send."""
        return Counter(entry.verdict for entry in self.entries)

    def duplicates(self) -> dict[str, int]:
        """Return how often references and recipients were accepted, if more than once; empty if promise P1 was kept."""
        references = Counter(entry.reference for entry in self.acceptances)
        return {name: n for counts in (references, self.recipients) for name, n in counts.items() if n > 1}

    def missing(self, recipients: Iterable[str]) -> list[str]:
        """Return recipients never accepted; one given k times must have been accepted k times."""
        return sorted((Counter(recipients) - self.recipients).elements())

    def arrivals(self, credential: str | None = None) -> list[float]:
        """Return the times of all calls, with any answer or none, in ascending seconds of the vendor's clock.

        `credential`: only its calls (the value of the Authorization header).
        """
        return [entry.t for entry in self._calls if credential is None or entry.credential == credential]

    def worst_window(self, seconds: float, credential: str | None = None) -> int:
        """Return the most calls in any half-open window of this many seconds."""
        return worst_window(self.arrivals(credential), seconds)
