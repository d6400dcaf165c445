"""How far jobs and campaigns are, in messages: counted from the rows, a parent as the sum of its children."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from django.db import connection
from django.db.models import Q

from campaigns.models import Job
from campaigns.states import DONE, GROUPS, Status


@dataclass(frozen=True, slots=True)
class Progress:
    """Messages by what became of them; the counts add up to the size (promise P2).

    moving: some job of it may still start calls; begun: some call was made, or a sender is at it.
    """

    size: int = 0
    waiting: int = 0
    in_flight: int = 0
    accepted: int = 0
    refused: int = 0
    expired: int = 0
    in_doubt: int = 0
    moving: bool = False
    begun: bool = False

    def __add__(self, other: "Progress") -> "Progress":
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Progress(*(a or b if isinstance(a, bool) else a + b for a, b in pairs))

    @property
    def open(self) -> int:
        """Messages without an end: not called, or called and not answered."""
        return self.waiting + self.in_flight


# Read by key range, job by job: the ops table has no other index (see claims/sending.py).
IN_FLIGHT = """
SELECT j.id, count(*) FROM campaigns_job j
JOIN campaigns_opsmessage o ON o.id >= j.first_message AND o.id < j.first_message + j.size AND o.job_id = j.id
WHERE j.id = ANY(%s) AND o.sent_at IS NOT NULL AND o.delivered_at IS NULL AND o.in_doubt_at IS NULL
GROUP BY j.id
"""
STILL = (Status.STOPPED, Status.P_STOPPED, *DONE)


def of_jobs(jobs: Iterable[Job]) -> dict[int, Progress]:
    """By job id, in two statements however many jobs they are."""
    asked = list(jobs)
    parents = [job.pk for job in asked if job.is_parent]
    children = list(Job.objects.filter(parent__in=parents)) if parents else []
    calls = _in_flight([job.pk for job in (*asked, *children) if not job.is_parent and not job.is_done])
    sums = {job.pk: _parent(job) if job.is_parent else _leaf(job, calls.get(job.pk, 0)) for job in asked}
    for child in children:
        sums[child.parent_id or 0] += _leaf(child, calls.get(child.pk, 0))
    return sums


def of_campaigns(campaign_ids: Sequence[int]) -> dict[int, Progress]:
    """By campaign id; all jobs of a campaign together."""
    jobs = list(Job.objects.filter(Q(parent=None), campaign__in=campaign_ids))
    sums = of_jobs(jobs)
    totals = dict.fromkeys(campaign_ids, Progress())
    for job in jobs:
        totals[job.campaign_id] += sums[job.pk]
    return totals


def _in_flight(job_ids: list[int]) -> dict[int, int]:
    if not job_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(IN_FLIGHT, [job_ids])
        return dict(cursor.fetchall())


def _leaf(job: Job, in_flight: int) -> Progress:
    answered = job.accepted + job.refused + job.expired + job.in_doubt
    return Progress(
        size=job.size,
        waiting=max(0, job.size - answered - in_flight),
        in_flight=in_flight,
        accepted=job.accepted,
        refused=job.refused,
        expired=job.expired,
        in_doubt=job.in_doubt,
        moving=job.status not in STILL,
        begun=bool(answered or in_flight) or job.status in GROUPS["Sending"],
    )


def _parent(job: Job) -> Progress:
    """What is not cut yet; the children are added to it."""
    return Progress(
        size=job.remaining,
        waiting=job.remaining,
        moving=job.status not in STILL,
        begun=job.status in GROUPS["Sending"],
    )
