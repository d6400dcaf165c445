"""Counts that are slow because there is much to count, cached in Redis for a short time.

Many viewers have pages open that ask every two seconds. With very many waiting jobs the sums are slow, so they are kept
for SHARE times the duration of the count. Totals of queues come with the time of the count. With fewer than MANY jobs,
doubts or failures nothing is kept. Only pages that poll read what is kept; everything else counts.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from vendors import redis_clients

MANY = 10_000  # jobs that wait or are being sent
SHARE = 200  # so that counting takes at most half a percent of the time
LONGEST = 10.0  # seconds
TotalsRow = list[Any]  # 'totals', the vendor's id, and the columns of queries.TOTALS for one of its credentials


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """The totals. at: time of an earlier count; None: just counted."""

    rows: list[TotalsRow]
    at: datetime | None = None


def recent(asked: Any, count: Callable[[], list[TotalsRow]]) -> QueueTotals:
    """Return the totals kept for the same question, or else count them now."""
    key = _key("queues", asked)
    if found := redis_clients.kept(settings.REDIS_URL, key):
        kept = json.loads(found)
        return QueueTotals(kept["rows"], datetime.fromtimestamp(kept["at"], UTC))
    return QueueTotals(_count(key, count, lambda rows: sum(facts[1] for _what, _vendor, facts in rows) > MANY))


def kept_counts(what: str, asked: Any, count: Callable[[], list[Any]], is_much: Callable[[list[Any]], bool]) -> Any:
    """Return the counts kept for the same question, or else count them now. They are kept if they are much.

    what: names the count. asked, and the rows that `count` returns: values of JSON.
    """
    key = _key(what, asked)
    found = redis_clients.kept(settings.REDIS_URL, key)
    return json.loads(found)["rows"] if found else _count(key, count, is_much)


def _key(what: str, asked: Any) -> str:
    return f"mailhub:{what}:{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]}"


def _count(key: str, count: Callable[[], list[Any]], is_much: Callable[[list[Any]], bool]) -> list[Any]:
    at, began = time.time(), time.monotonic()
    rows = count()
    seconds = min(LONGEST, SHARE * (time.monotonic() - began))
    if is_much(rows):
        redis_clients.keep(settings.REDIS_URL, key, json.dumps({"at": at, "rows": rows}), seconds)
    return rows
