"""Totals of the messages waiting for vendors, cached in Redis for a short time if counting them is slow.

Many viewers have the operations page and the vendors' pages open, which ask every two seconds. With very many waiting
jobs the sums are slow, so they are kept for SHARE times the duration of the count. They come with the time of the
count. With fewer than MANY jobs nothing is kept. Only those pages read kept totals; everything else counts.
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
    key = f"mailhub:queues:{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]}"
    if found := redis_clients.kept(settings.REDIS_URL, key):
        kept = json.loads(found)
        return QueueTotals(kept["rows"], datetime.fromtimestamp(kept["at"], UTC))
    at, began = time.time(), time.monotonic()
    rows = count()
    seconds = min(LONGEST, SHARE * (time.monotonic() - began))
    if sum(facts[1] for _what, _vendor, facts in rows) > MANY:
        redis_clients.keep(settings.REDIS_URL, key, json.dumps({"at": at, "rows": rows}), seconds)
    return QueueTotals(rows)
