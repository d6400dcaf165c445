"""Slow counts of many rows, cached in Redis for a short time.

Many viewers have pages open that ask every two seconds. With very many waiting jobs the sums are slow, so they are kept
for SHARE times the duration of the count. Totals and places in queues come with the time of the count. With fewer than
MANY jobs, doubts or failures, or MANY_PLACES, nothing is kept. Only pages that poll read the cache; everything else
counts.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django.conf import settings

from vendors import redis_clients

MANY = 10_000  # jobs that wait or are being sent
MANY_PLACES = 2_000  # of jobs near the front of their queues
SHARE = 200  # so that counting takes at most half a percent of the time
LONGEST = 10.0  # seconds
TotalsRow = list[Any]  # 'totals', the vendor's id, and the columns of queries.TOTALS for one of its credentials
TotalsFacts = list[Any]  # the last of them


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """The totals by vendor. at: time of an earlier count; None: just counted.

    worked_out: for readers, what follows from these totals and a key. It is shared by all threads, so nobody changes
    it.
    """

    by_vendor: dict[int, list[TotalsFacts]]
    at: datetime | None = None
    worked_out: dict[Any, Any] = field(default_factory=dict)


def recent_totals(asked: Any, count: Callable[[], list[TotalsRow]]) -> QueueTotals:
    """Return the totals kept for the same question, or else count them now.

    While the same totals are kept, a process returns the same object, and works out what follows from them once.
    """
    key = _cache_key("queues", asked)
    if found := redis_clients.read_cached(settings.REDIS_URL, key):
        return _kept_totals(found)
    return QueueTotals(_totals_by_vendor(_count_and_keep(key, count, _are_many)))


@lru_cache(maxsize=8)
def _kept_totals(found: bytes | str) -> QueueTotals:
    kept = json.loads(found)
    return QueueTotals(_totals_by_vendor(kept["rows"]), datetime.fromtimestamp(kept["at"], UTC))


def _totals_by_vendor(rows: list[TotalsRow]) -> dict[int, list[TotalsFacts]]:
    found = dict[int, list[TotalsFacts]]()
    for _what, vendor, facts in rows:
        found.setdefault(vendor, []).append(facts)
    return found


def _are_many(rows: list[TotalsRow]) -> bool:
    waiting: int = sum(facts[1] for _what, _vendor, facts in rows)
    return waiting > MANY


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """The places of jobs in the queues of vendors, and what sponsors have there, counted at the same moment.

    positions: by vendor and job, the numbers of a queues.QueuePosition. sponsors: by vendor, the facts of its sponsors.
    cut: vendors with further jobs, which have no position.
    worked_out: as in QueueTotals.
    """

    positions: dict[int, dict[int, list[int]]]
    sponsors: dict[int, list[Any]]
    cut: frozenset[int]
    at: datetime
    worked_out: dict[Any, Any] = field(default_factory=dict)

    def vendors(self) -> set[int]:
        return {*self.positions, *self.sponsors}


def recent_places(asked: Any, count: Callable[[], list[Any]]) -> KeptPlaces:
    """Return the places kept for the same question, or else count them now and keep them.

    count: returns rows of queries.POSITIONS for all near jobs.
    """
    key = _cache_key("places", asked)
    if found := redis_clients.read_cached(settings.REDIS_URL, key):
        return _kept_places(found)
    at, began = time.time(), time.monotonic()
    counted = json.dumps({"at": at, "rows": count()})
    redis_clients.cache_text(settings.REDIS_URL, key, counted, min(LONGEST, SHARE * (time.monotonic() - began)))
    return _kept_places(counted.encode())


@lru_cache(maxsize=8)
def _kept_places(found: bytes | str) -> KeptPlaces:
    kept = json.loads(found)
    rows = kept["rows"]
    places = {vendor: {one[0]: one[1:] for one in facts} for what, vendor, facts in rows if what == "positions"}
    sponsors = {vendor: facts for what, vendor, facts in rows if what == "sponsors"}
    cut = frozenset(vendor for what, vendor, _ in rows if what == "cut")
    return KeptPlaces(places, sponsors, cut, datetime.fromtimestamp(kept["at"], UTC))


def kept_counts(what: str, asked: Any, count: Callable[[], list[Any]], is_much: Callable[[list[Any]], bool]) -> Any:
    """Return the counts kept for the same question, or else count them now. They are kept if they are much.

    what: names the count. asked, and the rows that `count` returns: values of JSON.
    """
    key = _cache_key(what, asked)
    found = redis_clients.read_cached(settings.REDIS_URL, key)
    return json.loads(found)["rows"] if found else _count_and_keep(key, count, is_much)


def _cache_key(what: str, asked: Any) -> str:
    return f"mailhub:{what}:{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]}"


def _count_and_keep(key: str, count: Callable[[], list[Any]], is_much: Callable[[list[Any]], bool]) -> list[Any]:
    at, began = time.time(), time.monotonic()
    rows = count()
    seconds = min(LONGEST, SHARE * (time.monotonic() - began))
    if is_much(rows):
        redis_clients.cache_text(settings.REDIS_URL, key, json.dumps({"at": at, "rows": rows}), seconds)
    return rows
