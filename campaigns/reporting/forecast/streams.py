"""The streams that run, and the jobs that wait only for a stream; for pages, monitors and alarms.

A stream is a job in the hands of a sender. A job waits for a stream if a mailcaster has taken it and no sender has
begun it, or if an idle mailcaster would take it now. A notification bridges that gap quickly, so a wait over LATE
seconds points to a fault: too few senders, none for this vendor, or one that does not answer.

One statement serves all vendors. It reads the jobs with a sender and the oldest few of those that wait.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.conf import settings
from django.utils import formats, timezone
from django.utils.translation import ngettext

from campaigns.engine import prepared
from campaigns.engine.casting.mailcaster import ORDER, Rank
from campaigns.engine.failover import guard
from campaigns.engine.turns.order import CALLABLE, UNCUT
from campaigns.reporting.forecast import obstacles, queues
from campaigns.reporting.forecast.queues import VendorQueue
from vendors import shut

LATE = 5.0  # seconds
STILL_CALLED = "1 hour"  # after a stop; the calls in flight then have long ended
NEAR = 100  # the oldest jobs of a vendor in each rank, which are examined

# Selects jobs that an idle mailcaster would take. Jobs outside their sending hours count until a mailcaster has looked
# at them. Of an exclusive credential, only the jobs of the campaign using it count (document 001).
_OLDEST = f"""
SELECT j.* FROM (SELECT DISTINCT vendor_id FROM idle WHERE kind IN ({{kinds}})) i CROSS JOIN LATERAL (
    SELECT * FROM campaigns_job j WHERE j.vendor_id = i.vendor_id AND {{rank}} ORDER BY j.id LIMIT {NEAR}
) j
"""


def _oldest_jobs_sql() -> str:
    """Return SQL for the oldest jobs in each rank, of vendors whose idle mailcasters have that rank in their order."""
    kinds: dict[Rank, list[str]] = {}
    for kind, ranks in ORDER.items():
        for rank in ranks:
            kinds.setdefault(rank, []).append(f"'{kind}'")
    parts = (_OLDEST.format(kinds=", ".join(names), rank=rank.jobs) for rank, names in kinds.items())
    return " UNION ALL ".join(parts)


_TAKEABLE = f"""
SELECT j.vendor_id, greatest(coalesce(j.status_at, j.dispatched_at, j.created_at),
    j.not_before, l.retry_after_until, l.rate_limited_until, l.resumed_at, v.resumed_at, v.limits_since) AS since
FROM ({_oldest_jobs_sql()}) j JOIN vendors_credential l ON l.id = j.credential_id JOIN vendors_vendor v ON v.id =
j.vendor_id WHERE {UNCUT} AND coalesce(j.not_before <= statement_timestamp(), true)
    AND {CALLABLE.format(now="statement_timestamp()")}
    AND NOT (l.exclusive AND EXISTS (SELECT FROM campaigns_job h
        WHERE h.credential_id = j.credential_id AND h.campaign_id <> j.campaign_id
            AND (h.status IN ('ENQUEUED', 'SENDING', 'RECOVERING', 'SENT', 'P_ASSIGNING', 'P_ASSIGNED')
                OR h.status IN ('DISPATCHED', 'STOPPED') AND h.started_at IS NOT NULL)))
"""


# A mailcaster is idle for a moment between two jobs. While jobs of its vendor come and go, an idle one proves nothing.
READ = f"""
WITH busy AS MATERIALIZED (
    SELECT vendor_id, mailcaster_id, status, heartbeat_at, coalesce(status_at, heartbeat_at) AS since
    FROM campaigns_job WHERE status IN ('ENQUEUED', 'SENDING', 'SENT')
        OR status = 'STOPPED' AND stopped_at > statement_timestamp() - interval '{STILL_CALLED}'
), idle AS MATERIALIZED (
    SELECT DISTINCT m.vendor_id, m.kind FROM vendors_mailcaster m
    JOIN vendors_vendor v ON v.id = m.vendor_id AND {shut.VENDOR} IS NULL
    WHERE m.enabled AND EXISTS ({guard.KNOWN}) AND NOT EXISTS (
        SELECT FROM busy b WHERE b.mailcaster_id = m.id AND b.status IN ('ENQUEUED', 'SENDING'))
), active AS (
    SELECT vendor_id FROM busy WHERE since > statement_timestamp() - interval '{LATE} seconds'
    UNION SELECT vendor_id FROM campaigns_job
    WHERE finished_at > statement_timestamp() - interval '{LATE} seconds'
), waits AS (
    SELECT vendor_id, extract(epoch FROM statement_timestamp() - since)::float8 AS seconds, true AS taken
    FROM busy WHERE status = 'ENQUEUED'
    UNION ALL SELECT vendor_id, extract(epoch FROM statement_timestamp() - since)::float8, false
    FROM ({_TAKEABLE}) takeable
)
SELECT v.id, v.slug, coalesce(s.running, 0), coalesce(w.waiting, 0), greatest(w.oldest, 0), coalesce(w.late, 0)
FROM vendors_vendor v LEFT JOIN (
    SELECT vendor_id, count(*) AS running FROM busy WHERE status IN ('SENDING', 'STOPPED')
        AND heartbeat_at > statement_timestamp() - %(lease)s * interval '1 second' GROUP BY vendor_id
) s ON s.vendor_id = v.id LEFT JOIN (
    SELECT vendor_id, count(*) AS waiting, max(seconds) AS oldest, count(*) FILTER (
        WHERE seconds > {LATE} AND (taken OR vendor_id NOT IN (SELECT vendor_id FROM active))) AS late
    FROM waits GROUP BY vendor_id
) w ON w.vendor_id = v.id
"""


@dataclass(frozen=True, slots=True)
class VendorStreams:
    """The streams of one vendor and the jobs that wait for one.

    oldest: the longest wait, in seconds. late: jobs that have waited longer than LATE. waiting and late count only the
    first NEAR jobs of each rank.
    """

    vendor_id: int
    slug: str
    running: int
    waiting: int
    oldest: float
    late: int

    @property
    def more(self) -> bool:
        """True if more jobs may wait than were counted."""
        return self.waiting >= NEAR


def streams_of_vendors() -> list[VendorStreams]:
    """Return the streams of all vendors, by the database's clock."""
    asked = {"lease": float(settings.LEASE_SECONDS)}
    return [VendorStreams(*row) for row in prepared.fetch_prepared(READ, asked)]


def late_alarms(found: Iterable[VendorStreams], seen: Mapping[int, VendorQueue] | None = None) -> list[str]:
    """Return a sentence for each vendor with late jobs, with the reason. seen: the vendors' queues, if already read."""
    late = [one for one in found if one.late]
    if seen is None:
        seen = queues.queues_without_totals([one.vendor_id for one in late], timezone.now())
    return [
        _alarm_sentence(one, obstacles.sender_obstacle(seen[one.vendor_id])) for one in late if one.vendor_id in seen
    ]


def _alarm_sentence(one: VendorStreams, why: str) -> str:
    said = ngettext(
        "vendor %(vendor)s: %(jobs)s job could be sent and no sender has begun for %(seconds)s s: %(why)s",
        "vendor %(vendor)s: %(jobs)s jobs could be sent and no sender has begun for %(seconds)s s: %(why)s",
        one.late,
    )
    jobs = f"{formats.number_format(one.late, force_grouping=True)}{'+' if one.more else ''}"
    return said % {"vendor": one.slug, "jobs": jobs, "seconds": f"{one.oldest:.0f}", "why": why}
