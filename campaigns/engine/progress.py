"""The progress of jobs and campaigns in messages, counted from the rows; a parent is the sum of its children."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from django.db import connection
from django.db.models import Q

from campaigns.engine import prepared
from campaigns.engine.lifecycle import GROUPS
from campaigns.engine.merging import IN_FLIGHT
from campaigns.models import Job
from campaigns.models.states import DONE, Status
from vendors import shut


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of messages by state; waiting to in_doubt, suppressed among them, add up to the size (promise P2).

    delivered, bounced: accepted messages with such a delivery report. units: the cost of all calls. moving: one of the
    jobs may still start calls. begun: a call was made, or a sender has a job. held: a job with open messages makes no
    call until somebody resumes its campaign, vendor or credential; going: a job with open messages is not held. parts:
    the children cut from parents; parts_done: those that are LOGGED.
    """

    size: int = 0
    waiting: int = 0
    in_flight: int = 0
    accepted: int = 0
    refused: int = 0
    expired: int = 0
    suppressed: int = 0
    in_doubt: int = 0
    delivered: int = 0
    bounced: int = 0
    units: int = 0
    moving: bool = False
    begun: bool = False
    held: bool = False
    going: bool = False
    parts: int = 0
    parts_done: int = 0

    def __add__(self, other: "Progress") -> "Progress":
        pairs = zip(_counts(self), _counts(other), strict=True)
        return Progress(*[a or b if isinstance(a, bool) else a + b for a, b in pairs])

    @property
    def open_messages(self) -> int:
        """Messages without a result: not called yet, or unanswered."""
        return self.waiting + self.in_flight

    @property
    def charged(self) -> int:
        """About the units of the accepted messages: vendors charge for these. Units of refused ones are not stored."""
        called = self.accepted + self.refused + self.in_doubt
        return round(max(self.units, called) * self.accepted / called) if called else 0

    @property
    def paused(self) -> bool:
        """Whether nothing more is called until somebody resumes something."""
        return self.held and not self.going


_counts = attrgetter(*Progress.__slots__)

# For a job j, next to the shut credentials: nothing of it is called until somebody acts.
SHUT = f"shut AS MATERIALIZED ({shut.LOGINS})"
HELD = "(j.paused_at IS NOT NULL OR j.status <> 'RENDERED' AND j.credential_id IN (SELECT id FROM shut))"
COUNTED = "status, fence, credential_id, paused_at, accepted, refused, expired, delivered, bounced, units"
# One statement, so all counts are of one moment. It covers leaves, the children of parents, and the uncut rest of
# parents, which may be in doubt after a takeover of the store (recover_store). OFFSET 0 counts calls in flight once for
# each job instead of once for each sum.
SUMS = f"""
WITH {SHUT}
SELECT top, sum(size), sum(greatest(0, size - answered - flying)), sum(flying), sum(accepted), sum(refused),
    sum(expired), sum(suppressed), sum(in_doubt), sum(delivered), sum(bounced), sum(units),
    bool_or(alive),
    bool_or(accepted + refused + in_doubt + flying > 0 OR status = ANY(%(begun)s)),
    bool_or(alive AND held AND size > answered), bool_or(alive AND NOT held AND size > answered),
    sum(part), sum(part) FILTER (WHERE status = ANY(%(done)s))
FROM (
    SELECT j.*, j.accepted + j.refused + j.expired + j.suppressed + j.in_doubt AS answered,
        NOT j.status = ANY(%(still)s) AS alive,
        {HELD} AS held,
        CASE WHEN j.status = ANY(%(done)s) THEN 0 ELSE (
            SELECT count(*) FROM {IN_FLIGHT}
        ) END AS flying
    FROM (
        SELECT id, id AS top, 0 AS part, size, suppressed, in_doubt, {COUNTED}
        FROM campaigns_job WHERE id = ANY(%(leaves)s)
        UNION ALL SELECT id, parent_id, 1, size, suppressed, in_doubt, {COUNTED}
        FROM campaigns_job WHERE parent_id = ANY(%(parents)s)
        UNION ALL SELECT id, id, 0, remaining, remaining_suppressed, CASE WHEN remaining > 0 AND in_doubt > 0 THEN (
            SELECT count(*) FROM campaigns_message m
            WHERE m.id >= p.first_message + p.size - p.remaining AND m.id < p.first_message + p.size
                AND m.in_doubt_at IS NOT NULL
        ) ELSE 0 END, status, fence, credential_id, paused_at, 0, 0, 0, 0, 0, 0
        FROM campaigns_job p WHERE id = ANY(%(parents)s)
    ) j OFFSET 0
) leaf GROUP BY top
"""
CALLED = f"""
SELECT called.id FROM campaigns_job j CROSS JOIN LATERAL (SELECT u.id FROM {IN_FLIGHT}) called
WHERE j.id = ANY(%(jobs)s) OR j.parent_id = ANY(%(jobs)s)
"""
STILL = (Status.STOPPED, Status.P_STOPPED, *DONE)


def progress_of_jobs(jobs: Iterable[Job]) -> dict[int, Progress]:
    """Return progress by job id, with one statement for any number of jobs, leaves and parents alike."""
    leaves: list[int] = []
    parents: list[int] = []
    for job in jobs:
        (parents if job.is_parent else leaves).append(job.pk)
    return dict.fromkeys((*leaves, *parents), Progress()) | _sum_progress(leaves, parents)


def progress_of_leaves(job_ids: Sequence[int]) -> dict[int, Progress]:
    """Return progress by job id, for leaves only."""
    return _sum_progress(list(job_ids), [])


def progress_of_campaigns(campaign_ids: Sequence[int]) -> dict[int, Progress]:
    """Return progress by campaign id: the sum of all jobs of each campaign."""
    jobs = list(Job.objects.filter(Q(parent=None), campaign__in=campaign_ids))
    sums = progress_of_jobs(jobs)
    totals = dict.fromkeys(campaign_ids, Progress())
    for job in jobs:
        totals[job.campaign_id] += sums[job.pk]
    return totals


def _sum_progress(leaves: list[int], parents: list[int]) -> dict[int, Progress]:
    if not leaves and not parents:
        return {}
    params: dict[str, Any] = {
        "leaves": leaves,
        "parents": parents,
        "still": list(STILL),
        "done": list(DONE),
        "begun": list(GROUPS["Sending"]),
    }
    return {job_id: _make_progress(counts) for job_id, *counts in prepared.fetch_prepared(SUMS, params)}


def _make_progress(counts: list[Any]) -> Progress:
    counted: list[Any] = [n if isinstance(n, bool) else int(n or 0) for n in counts]
    return Progress(*counted)


def messages_in_flight(job_ids: Iterable[int]) -> set[int]:
    """Return the messages of these jobs and of their children in a call. Read this before the messages."""
    with connection.cursor() as cursor:
        cursor.execute(CALLED, {"jobs": list(job_ids)})
        return {message_id for (message_id,) in cursor.fetchall()}
