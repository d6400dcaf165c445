"""Today's outcomes of calls, by vendor: sums of minutes; sums of past minutes are cached."""

import hashlib
import json
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.utils import timezone

from campaigns.reporting.forecast.queues import Sponsors
from vendors import redis_clients
from vendors.models import Minute

COUNTS = ("accepted", "refused", "in_doubt", "units")  # columns of Minute
# An outcome counts in the minute of its storage. After this time few are added: those merged late, as after the loss of
# a sender. They appear once the sums are computed anew.
CLOSED = timedelta(minutes=15)
KEPT = 60.0  # seconds for which sums are cached
CLOSED_EVERY = 10  # minutes
MANY = 5_000  # cache sums of more rows


def outcomes_of_today(now: datetime, sponsors: Sponsors) -> tuple[dict[int, dict[str, int]], int]:
    """Return counts by vendor since midnight in the current time zone, and all accepted in the last whole minute."""
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    minute = now.replace(second=0, microsecond=0) - timedelta(minutes=1)
    closed = max(midnight, minute - CLOSED - timedelta(minutes=minute.minute % CLOSED_EVERY))
    minutes = Minute.objects.all() if sponsors is None else Minute.objects.filter(sponsor__in=sponsors)
    recent = Sum("accepted", filter=Q(at=minute), default=0)
    late = minutes.filter(at__gte=closed).values_list("vendor_id").annotate(*map(Sum, COUNTS), recent=recent)
    counted: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    last = 0
    for vendor_id, *counts, now_accepted in (*_closed_minutes(minutes, sponsors, midnight, closed), *late):
        so_far = counted[vendor_id]
        counted[vendor_id] = {name: so_far[name] + count for name, count in zip(COUNTS, counts, strict=True)}
        last += now_accepted
    return counted, last


def _closed_minutes(minutes: Any, sponsors: Sponsors, midnight: datetime, closed: datetime) -> list[list[int]]:
    """Return the same rows for closed minutes, which no longer change; sums of many are cached."""
    if midnight >= closed:
        return []
    asked = [midnight.isoformat(), closed.isoformat(), sponsors]
    key = f"mailhub:today:{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]}"
    if found := redis_clients.read_cached(settings.REDIS_URL, key):
        rows: list[list[int]] = json.loads(found)
        return rows
    early = minutes.filter(at__gte=midnight, at__lt=closed).values_list("vendor_id")
    rows = [list(row) for row in early.annotate(*map(Sum, COUNTS), rows=Count("pk"))]
    many = sum(row.pop() for row in rows) > MANY
    rows = [[*row, 0] for row in rows]
    if many:
        redis_clients.cache_text(settings.REDIS_URL, key, json.dumps(rows), KEPT)
    return rows
