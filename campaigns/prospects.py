"""Why a job waits, what comes next, and about when it ends: for lists, from the rows alone."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Case, IntegerField, OuterRef, QuerySet, Subquery, When
from django.utils import timezone

from campaigns.models import HOLDING, Job
from campaigns.progress import Progress
from campaigns.states import PARENTS, RUNNING, S
from vendors.forecast import forecast
from vendors.limits import Limit

NEAR = 1000  # jobs of a vendor in one state that are counted to say when one of them ends
QUEUED = (S.READY, S.DISPATCHED, S.RECOVERING, S.ENQUEUED, S.SENDING, S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED)


def with_holder(jobs: "QuerySet[Job]") -> "QuerySet[Job]":
    """Each job with holder: the job of another campaign that uses its exclusive credential, or None (document 001)."""
    others = Job.objects.filter(HOLDING, credential=OuterRef("credential")).exclude(campaign=OuterRef("campaign"))
    # In the order of the index of holders; by id, the planner would walk through all jobs there ever were.
    holder = Subquery(others.order_by("campaign_id").values("id")[:1])
    return jobs.annotate(holder=Case(When(credential__exclusive=True, then=holder), output_field=IntegerField()))


def next_of(job: Any, sums: Progress, now: datetime) -> str:
    """One phrase; empty when nothing is to come. The job needs vendor, credential and its holder."""
    if job.status in (S.STOPPED, S.P_STOPPED):
        when = f" at {_clock(job.stopped_at, now)}" if job.stopped_at else ""
        return f"stopped by {job.stopped_by or 'somebody'}{when}"
    if job.is_done:
        return ""
    if job.status == S.SENT:
        return "waits for the last answers"
    if job.status == S.RENDERED:
        return f"nightly dispatch at {job.vendor.dispatch_at:%H:%M} {job.vendor.time_zone}"
    return _obstacle(job, now) or _turn(job, sums)


def _obstacle(job: Any, now: datetime) -> str:
    """What keeps it from being called at this moment."""
    vendor, login = job.vendor, job.credential
    if vendor.paused:
        return f"vendor paused: {vendor.paused_reason}".rstrip(": ")
    if login.paused:
        return f"credential {login.name} paused: {login.paused_reason}".rstrip(": ")
    if login.closed_until and login.closed_until > now:
        return f"vendor closed until {_clock(login.closed_until, now)}"
    if job.holder:
        return f"credential busy with job {job.holder}"
    until = max((at for at in (job.not_before, job.campaign.send_at) if at), default=now)
    if until > now:
        return job.waits_for or f"waits until {_clock(until, now)}"
    if login.full_until and login.full_until > now:
        return f"place at {_clock(login.full_until, now)}"
    return ""


def _turn(job: Any, sums: Progress) -> str:
    if job.status == S.RECOVERING:
        return "its sender was lost; goes first"
    if job.is_parent:
        return f"{sums.parts_done:,} of {sums.parts:,} parts done" if sums.parts else "waits for a mailcaster"
    if job.status in RUNNING:
        return f"{sums.in_flight:,} in flight" if sums.in_flight else "being sent"
    return "waits for its turn"


def _clock(at: datetime, now: datetime) -> str:
    local = timezone.localtime(at)
    return f"{local:%H:%M}" if abs(at - now) < timedelta(hours=20) else f"{local:%d %b %H:%M}"


@dataclass(frozen=True, slots=True)
class Place:
    """Messages of the vendor up to the end of this job, and the limits that hold them back."""

    messages: int
    limits: tuple[Limit, ...]


# A vendor's jobs go out by age; children take their parent's place. Of a hundred thousand jobs that wait in one state
# the oldest are enough: whatever is younger than the last of them is not foretold, and where all that is asked for is
# younger, nothing is added up. An order by the status, too, is one that only the index of the line has, whatever
# statistics say; compared as rows, it would be read on to the vendor's last job.
PLACES = """
WITH far AS MATERIALIZED (
    SELECT v.id AS vendor, min(f.id) AS last
    FROM unnest(%(vendors)s::bigint[]) v(id) CROSS JOIN unnest(%(queued)s::text[]) s(name) CROSS JOIN LATERAL (
        SELECT id FROM campaigns_job WHERE vendor_id = v.id AND status BETWEEN s.name AND s.name
        ORDER BY status, id OFFSET %(most)s LIMIT 1
    ) f GROUP BY v.id
), asked AS MATERIALIZED (
    SELECT a.id, a.vendor FROM unnest(%(jobs)s::bigint[], %(of)s::bigint[]) a(id, vendor) LEFT JOIN far USING (vendor)
    WHERE a.id < coalesce(far.last, %(end)s)
), line AS (
    SELECT id, v.vendor, credential_id, sum(open) OVER (PARTITION BY v.vendor ORDER BY age)::bigint AS upto
    FROM (SELECT DISTINCT vendor FROM asked) v LEFT JOIN far USING (vendor)
    CROSS JOIN unnest(%(queued)s::text[]) s(name) CROSS JOIN LATERAL (
        SELECT id, coalesce(parent_id, id) AS age, credential_id, greatest(0, CASE WHEN status = ANY(%(parents)s)
            THEN remaining ELSE size - accepted - refused - expired - in_doubt END) AS open
        FROM campaigns_job
        WHERE vendor_id = v.vendor AND status BETWEEN s.name AND s.name AND id < coalesce(far.last, %(end)s)
        ORDER BY status, id LIMIT %(most)s
    ) near
)
SELECT l.id, l.upto, (
    SELECT coalesce(json_agg(json_build_array(r.units, r.seconds)), '[]') FROM vendors_ratelimit r
    WHERE r.vendor_id = l.vendor AND coalesce(r.credential_id, l.credential_id) = l.credential_id
)
FROM line l JOIN asked USING (id)
"""


def places(jobs: Iterable[Job]) -> dict[int, Place]:
    """By job id, for those that are in their vendor's line and near enough; one statement."""
    asked = [job for job in jobs if job.status in QUEUED]
    if not asked:
        return {}
    words: dict[str, Any] = {
        "vendors": sorted({job.vendor_id for job in asked}),
        "of": [job.vendor_id for job in asked],
        "queued": list(QUEUED),
        "parents": list(PARENTS),
        "most": NEAR,
        "end": 2**63 - 1,
        "jobs": [job.pk for job in asked],
    }
    with connection.cursor() as cursor:
        cursor.execute(PLACES, words)
        rows = cursor.fetchall()
    return {job_id: Place(upto, tuple(Limit(*one) for one in _read(limits))) for job_id, upto, limits in rows}


def _read(limits: Any) -> Sequence[Sequence[Any]]:
    return json.loads(limits) if isinstance(limits, str) else limits


def ends_at(place: Place | None, now: datetime) -> datetime | None:
    """About when the last message is called, if all goes well; None: nobody can say, as without limits."""
    if place is None or not place.limits:
        return None
    seconds = forecast(place.messages, place.limits, (), now.timestamp())
    return None if seconds is None else later(now, seconds)


def later(now: datetime, seconds: float) -> datetime | None:
    """None beyond the ten years in which anybody could be interested."""
    return now + timedelta(seconds=seconds) if seconds < timedelta(days=3650).total_seconds() else None


def about(at: datetime | None, now: datetime) -> str:
    """As people read it: 21:20 (3 h 19 min); always rounded up to the minute."""
    if at is None:
        return ""
    minutes = -(-(at - now) // timedelta(minutes=1))
    local = timezone.localtime(now + timedelta(minutes=minutes))
    hours, rest = divmod(minutes, 60)
    long = f"{hours // 24} d {hours % 24} h" if hours >= 48 else f"{hours} h {rest} min" if hours else f"{rest} min"
    return f"{local:%H:%M} ({long})" if hours < 20 else f"{local:%d %b %H:%M} ({long})"
