"""What came of the calls of today, by vendor: sums of the minutes, of which those that are over are kept."""

import hashlib
import json
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Q, Sum
from django.utils import timezone

from campaigns.forecast.queues import Sponsors
from vendors import redis_clients
from vendors.models import Minute

COUNTS = ("accepted", "refused", "in_doubt", "units")  # as Minute has them
# Outcomes are counted into the minute in which their answer was stored. After so long few come any more: those that are
# merged late, as after a sender was lost, and are seen when the sums are made anew.
CLOSED = timedelta(minutes=15)
KEPT = 60.0  # seconds for which sums are kept
CLOSED_EVERY = 10  # minutes
MANY = 5_000  # rows of minutes whose sums are kept


def of_today(now: datetime, sponsors: Sponsors) -> tuple[dict[int, dict[str, int]], int]:
    """Counts by vendor since midnight in the current time zone; and how many were accepted in the last whole minute."""
    midnight = timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)
    minute = now.replace(second=0, microsecond=0) - timedelta(minutes=1)
    closed = max(midnight, minute - CLOSED - timedelta(minutes=minute.minute % CLOSED_EVERY))
    minutes = Minute.objects.all() if sponsors is None else Minute.objects.filter(sponsor__in=sponsors)
    recent = Sum("accepted", filter=Q(at=minute), default=0)
    late = minutes.filter(at__gte=closed).values_list("vendor_id").annotate(*map(Sum, COUNTS), recent=recent)
    counted: dict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    last = 0
    for vendor_id, *counts, now_accepted in (*_closed(minutes, sponsors, midnight, closed), *late):
        so_far = counted[vendor_id]
        counted[vendor_id] = {name: so_far[name] + count for name, count in zip(COUNTS, counts, strict=True)}
        last += now_accepted
    return counted, last


def _closed(minutes: Any, sponsors: Sponsors, midnight: datetime, closed: datetime) -> list[list[int]]:
    """The same rows for the minutes into which nothing is counted any more; summed up once, if they are many."""
    if midnight >= closed:
        return []
    asked = [midnight.isoformat(), closed.isoformat(), sponsors]
    key = f"mailhub:today:{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]}"
    if found := redis_clients.kept(settings.REDIS_URL, key):
        return json.loads(found)
    early = minutes.filter(at__gte=midnight, at__lt=closed).values_list("vendor_id")
    rows = [list(row) for row in early.annotate(*map(Sum, COUNTS), rows=Count("pk"))]
    many = sum(row.pop() for row in rows) > MANY
    rows = [[*row, 0] for row in rows]
    if many:
        redis_clients.keep(settings.REDIS_URL, key, json.dumps(rows), KEPT)
    return rows
