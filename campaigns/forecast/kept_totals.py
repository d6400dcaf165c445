"""What waits for vendors, counted now, or kept in Redis for a moment if that took long.

Many people look at the operations page and at vendors' pages, which ask every two seconds. Of a hundred thousand jobs
that wait the sums take a tenth of a second. So they are kept for SHARE times as long as they took, and told with the
time at which they were counted. Of fewer jobs than MANY nothing is kept. Only those pages read what is kept; all else
counts.
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

MANY = 10_000  # jobs in line
SHARE = 200  # counting takes half a percent of the time
LONGEST = 10.0  # seconds
TotalsRow = list[Any]  # 'totals', a vendor, and what queries.TOTALS says of one of its credentials


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """at: when they were counted, if that was earlier."""

    rows: list[TotalsRow]
    at: datetime | None = None


def recent(asked: Any, count: Callable[[], list[TotalsRow]]) -> QueueTotals:
    """The totals that are kept of the same question, or those that `count` finds now."""
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
