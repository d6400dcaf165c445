"""Counts of a sponsor's messages by day (UTC): rows appended in the transaction that stores a report, then summed up.

Summing over messages would read all of them, and an index for it would add a write to each delivered message. One row
for each statement that stores reports costs almost nothing. The number of messages sent is in the accounts, by day of
the call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

MOST_SUMMED = 10_000  # rows at a time
DAYS_SHOWN, MOST_DAYS = 30, 366  # the default, and the maximum of one query
# Parts of the statements that store reports and events. The rows `changed` have: id, campaign_id, kind, at, and the
# previous was, was_at.
OF_REPORTS = """
INSERT INTO campaigns_daycount (day, sponsor_id, delivered, bounced)
SELECT (one.at AT TIME ZONE 'UTC')::date, p.sponsor_id,
    coalesce(sum(n) FILTER (WHERE one.kind = 'delivered'), 0), coalesce(sum(n) FILTER (WHERE one.kind = 'bounced'), 0)
FROM (
    SELECT campaign_id, kind, at, 1 AS n FROM changed WHERE kind IS DISTINCT FROM was
    UNION ALL SELECT campaign_id, was, was_at, -1 FROM changed WHERE kind IS DISTINCT FROM was AND was IS NOT NULL
) one JOIN campaigns_campaign p ON p.id = one.campaign_id GROUP BY 1, 2
"""
OF_EVENTS = """
INSERT INTO campaigns_daycount (day, sponsor_id, complained, unsubscribed)
SELECT (e.at AT TIME ZONE 'UTC')::date, c.sponsor_id, count(*) FILTER (WHERE e.kind = 'complaint'),
    count(*) FILTER (WHERE e.kind = 'unsubscribed')
FROM stored e JOIN campaigns_campaign c ON c.id = e.campaign_id
WHERE e.kind IN ('complaint', 'unsubscribed') GROUP BY 1, 2
"""
UNSUBSCRIBED = """
INSERT INTO campaigns_daycount (day, sponsor_id, unsubscribed)
VALUES ((clock_timestamp() AT TIME ZONE 'UTC')::date, %s, 1)
"""
SUM_UP = """
WITH gone AS (
    DELETE FROM campaigns_daycount WHERE id = ANY(ARRAY(
        SELECT id FROM campaigns_daycount WHERE NOT summed ORDER BY id LIMIT %(most)s FOR UPDATE SKIP LOCKED
    )) RETURNING *
)
INSERT INTO campaigns_daycount AS was (day, sponsor_id, delivered, bounced, complained, unsubscribed, summed)
SELECT day, sponsor_id, sum(delivered), sum(bounced), sum(complained), sum(unsubscribed), true FROM gone
GROUP BY 1, 2 ORDER BY 1, 2  -- two at once lock the sums in the same order
ON CONFLICT (day, sponsor_id) WHERE summed DO UPDATE SET delivered = was.delivered + excluded.delivered,
    bounced = was.bounced + excluded.bounced, complained = was.complained + excluded.complained,
    unsubscribed = was.unsubscribed + excluded.unsubscribed
"""
DAYS = """
SELECT day, sum(sent)::bigint, sum(delivered)::bigint, sum(bounced)::bigint, sum(complained)::bigint,
    sum(unsubscribed)::bigint
FROM (
    SELECT day, sponsor_id, messages AS sent, 0 AS delivered, 0 AS bounced, 0 AS complained, 0 AS unsubscribed
    FROM campaigns_costentry WHERE day > %(before)s AND day <= %(last)s
    UNION ALL
    SELECT day, sponsor_id, 0, delivered, bounced, complained, unsubscribed
    FROM campaigns_daycount WHERE day > %(before)s AND day <= %(last)s
) one
WHERE %(sponsors)s::bigint[] IS NULL OR sponsor_id = ANY(%(sponsors)s::bigint[])
GROUP BY day
"""

BY_VENDOR = """
SELECT vendor_id, sum(messages)::bigint FROM campaigns_costentry
WHERE day > %(before)s AND day <= %(last)s
    AND (%(sponsors)s::bigint[] IS NULL OR sponsor_id = ANY(%(sponsors)s::bigint[]))
GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class DaySums:
    """The counts of one day."""

    day: date
    sent: int = 0
    delivered: int = 0
    bounced: int = 0
    complained: int = 0
    unsubscribed: int = 0


KINDS = tuple(one.name for one in fields(DaySums) if one.name != "day")


def sum_days(sponsors: Sequence[int] | None, days: int = DAYS_SHOWN) -> list[DaySums]:
    """Return the sums of the last `days` days (UTC), ending today, for these sponsors; None means all.

    Raises ValueError unless 1 <= days <= MOST_DAYS.
    """
    last = timezone.now().date()
    with connection.cursor() as cursor:
        cursor.execute(DAYS, _span_params(sponsors, last, days))
        found = {row[0]: DaySums(*row) for row in cursor.fetchall()}
    every = (last - timedelta(days=ago) for ago in range(days - 1, -1, -1))
    return [found.get(day) or DaySums(day) for day in every]


def sent_by_vendors(sponsors: Sequence[int] | None, days: int = DAYS_SHOWN) -> dict[int, int]:
    """Return how many messages each vendor accepted in the same days, by its id."""
    with connection.cursor() as cursor:
        cursor.execute(BY_VENDOR, _span_params(sponsors, timezone.now().date(), days))
        return dict(cursor.fetchall())


def _span_params(sponsors: Sequence[int] | None, last: date, days: int) -> Any:
    if not 1 <= days <= MOST_DAYS:
        raise ValueError(f"ask for 1 to {MOST_DAYS} days")
    return {"before": last - timedelta(days=days), "last": last, "sponsors": sponsors}


def sum_all_days(days: Sequence[DaySums]) -> DaySums:
    """Return the sums over all these days, dated with the last one."""
    return DaySums(days[-1].day, *(sum(getattr(one, name) for one in days) for name in KINDS))


def count_unsubscribed(sponsor_id: int) -> None:
    """Count somebody who unsubscribed through a link of ours, in the transaction that stores it."""
    with connection.cursor() as cursor:
        cursor.execute(UNSUBSCRIBED, [sponsor_id])


def sum_up() -> None:
    """Merge rows into one for each day and sponsor; queries give the same results."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(SUM_UP, {"most": MOST_SUMMED})
