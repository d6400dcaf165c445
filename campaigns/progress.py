"""How far jobs and campaigns are, in messages, counted from the rows; a parent is the sum of its children."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from django.db import connection
from django.db.models import Q

from campaigns import prepared
from campaigns.lifecycle import DONE, GROUPS, Status
from campaigns.merging import IN_FLIGHT
from campaigns.models import Job


@dataclass(frozen=True, slots=True)
class Progress:
    """Counts of messages by state; waiting to in_doubt, suppressed among them, add up to the size (promise P2).

    delivered, bounced: accepted messages with such a delivery report. units: the cost of all calls. moving: one of
    the jobs may still start calls. begun: a call was made, or a sender has a job. paused: their campaign is. parts:
    the children cut from parents; parts_done: those of them that are LOGGED.
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
    paused: bool = False
    parts: int = 0
    parts_done: int = 0

    def __add__(self, other: "Progress") -> "Progress":
        pairs = zip(_counts(self), _counts(other), strict=True)
        return Progress(*[a or b if isinstance(a, bool) else a + b for a, b in pairs])

    @property
    def open(self) -> int:
        """Messages without a result: not called, or called and not answered."""
        return self.waiting + self.in_flight


_counts = attrgetter(*Progress.__slots__)

# One statement, so that all counts are of one moment. OFFSET 0: calls in flight are counted once for each job, and not
# once for each sum.
SUMS = f"""
SELECT top, sum(size), sum(greatest(0, size - answered - flying)), sum(flying), sum(accepted), sum(refused),
    sum(expired), sum(suppressed), sum(in_doubt), sum(delivered), sum(bounced), sum(units),
    bool_or(NOT status = ANY(%(still)s)),
    bool_or(answered + flying > 0 OR status = ANY(%(begun)s)), bool_or(paused_at IS NOT NULL), sum(part),
    sum(part) FILTER (WHERE status = ANY(%(done)s))
FROM (
    SELECT j.*, j.accepted + j.refused + j.expired + j.suppressed + j.in_doubt AS answered,
        CASE WHEN j.status = ANY(%(done)s) THEN 0 ELSE (
            SELECT count(*) FROM {IN_FLIGHT}
        ) END AS flying
    FROM (
        SELECT id AS top, 0 AS part, * FROM campaigns_job WHERE id = ANY(%(leaves)s)
        UNION ALL SELECT parent_id, 1, * FROM campaigns_job WHERE parent_id = ANY(%(parents)s)
    ) j OFFSET 0
) leaf GROUP BY top
"""
CALLED = f"""
SELECT called.id FROM campaigns_job j CROSS JOIN LATERAL (SELECT u.id FROM {IN_FLIGHT}) called
WHERE j.id = ANY(%(jobs)s) OR j.parent_id = ANY(%(jobs)s)
"""
# After the store was taken over (recover_store) also what is not cut yet may be in doubt.
UNCUT_DOUBTS = """
SELECT j.id, count(*) FROM campaigns_job j JOIN campaigns_message m
    ON m.id >= j.first_message + j.size - j.remaining AND m.id < j.first_message + j.size
WHERE j.id = ANY(%(jobs)s) AND m.in_doubt_at IS NOT NULL GROUP BY j.id
"""
STILL = (Status.STOPPED, Status.P_STOPPED, *DONE)


def of_jobs(jobs: Iterable[Job]) -> dict[int, Progress]:
    """Progress by job id, in one statement for any number of jobs, leaves and parents alike."""
    asked = list(jobs)
    parents = [job.pk for job in asked if job.is_parent]
    cut = set(parents)
    doubts = _uncut_doubts([job.pk for job in asked if job.is_parent and job.remaining and job.in_doubt])
    sums = {job.pk: _uncut(job, doubts.get(job.pk, 0)) if job.is_parent else Progress() for job in asked}
    for top, *counts in _leaves([job.pk for job in asked if not job.is_parent], parents):
        sums[top] = sums[top] + Progress(*counts) if top in cut else Progress(*counts)
    return sums


def of_leaves(job_ids: Sequence[int]) -> dict[int, Progress]:
    """Progress by job id, of jobs that are no parents."""
    return {job_id: Progress(*counts) for job_id, *counts in _leaves(list(job_ids), [])}


def of_campaigns(campaign_ids: Sequence[int]) -> dict[int, Progress]:
    """Progress by campaign id: the sum of all jobs of each campaign."""
    jobs = list(Job.objects.filter(Q(parent=None), campaign__in=campaign_ids))
    sums = of_jobs(jobs)
    totals = dict.fromkeys(campaign_ids, Progress())
    for job in jobs:
        totals[job.campaign_id] += sums[job.pk]
    return totals


def _leaves(leaves: list[int], parents: list[int]) -> list[tuple[Any, ...]]:
    if not leaves and not parents:
        return []
    params: dict[str, Any] = {
        "leaves": leaves,
        "parents": parents,
        "still": list(STILL),
        "done": list(DONE),
        "begun": list(GROUPS["Sending"]),
    }
    found = prepared.rows(SUMS, params)
    return [tuple([n if isinstance(n, bool) else int(n or 0) for n in row]) for row in found]


def _uncut_doubts(parents: list[int]) -> dict[int, int]:
    """Messages in doubt that are not cut yet, by parent."""
    if not parents:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(UNCUT_DOUBTS, {"jobs": parents})
        return dict(cursor.fetchall())


def _uncut(job: Job, in_doubt: int) -> Progress:
    """The part of a parent that is not cut yet; its children are added to this."""
    return Progress(
        size=job.remaining,
        waiting=max(0, job.remaining - job.remaining_suppressed - in_doubt),
        in_doubt=in_doubt,
        suppressed=job.remaining_suppressed,
        moving=job.status not in STILL,
        begun=job.status in GROUPS["Sending"],
        paused=job.paused_at is not None,
    )


def in_flight(job_ids: Iterable[int]) -> set[int]:
    """The messages of these jobs and of their children that are in a call; read it before the messages."""
    with connection.cursor() as cursor:
        cursor.execute(CALLED, {"jobs": list(job_ids)})
        return {message_id for (message_id,) in cursor.fetchall()}
