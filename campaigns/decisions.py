"""What all decisions about jobs share: lock the job with its family, check that it can be decided now, reopen it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet

from campaigns import lifecycle
from campaigns.lifecycle import MOVES, Status, move
from campaigns.models import Job, Session

UNDONE: dict[str, Any] = {"stopped_at": None, "stopped_by": "", "finished_at": None, "waits_for": ""}


class Verdict(StrEnum):
    """What came of a decision."""

    DONE = "done"
    ALREADY = "already"  # it is so, or there is nothing to do
    BUSY = "busy"  # not yet: it is still being sent or finalised
    STALE = "stale"  # somebody else decided meanwhile
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What came of one decision. message: a sentence; ready: the jobs that wait for the dispatcher now."""

    job_id: int
    verdict: Verdict
    message: str
    messages: int = 0
    ready: tuple[int, ...] = ()


def hold(job_id: int) -> Job | None:
    """Locks the job with its parent or its children, then reads it; None: there is none."""
    lifecycle.hold_family(job_id)
    return Job.objects.filter(pk=job_id).first()


def leaves_of(job: Job) -> list[Job]:
    """The leaves of a job: its children, or the job itself."""
    return list(Job.objects.filter(parent=job.pk).order_by("pk")) if job.is_parent else [job]


def called_next(campaign_id: int) -> "QuerySet[Job]":
    """Those of a campaign's jobs whose vendors are called if it goes on: what has not ended, and a parent that is not
    cut to the end. On a route they are not all of one vendor."""
    live = Job.objects.filter(campaign=campaign_id).exclude(status__in=lifecycle.DONE)
    return live.exclude(status__in=lifecycle.PARENTS, remaining=0)


def busy(job: Job, leaves: list[Job]) -> str:
    """Why nothing can be sent again yet, as a sentence; empty: it can."""
    if job.is_parent and job.status not in MOVES["retry_parent"].sources:
        return f"job {job.pk} is under way ({job.get_status_display()}): stop it first, or wait until it is finished"
    open_leaves = [leaf for leaf in leaves if leaf.status != Status.LOGGED]
    if any(leaf.status in (Status.STOPPED, Status.SENT) for leaf in open_leaves):
        return f"job {job.pk} is still being finalised; try again in a moment"
    if open_leaves:
        return f"job {job.pk} is under way ({open_leaves[0].get_status_display()}): nothing to send again yet"
    return ""


def reopen_leaves(leaves: QuerySet[Job], **sets: Any) -> None:
    """LOGGED -> READY, and the parents of these leaves are open again.

    What a stop kept from being cut stays uncut. Their claims ask for all suppressions, not for those since the import
    only: who was suppressed then may wait again, by a recovery of the store or a person's word about a doubt.
    """
    above = Job.objects.filter(children__in=list(leaves), status__in=MOVES["reopen_parent"].sources)
    ids = list(above.distinct().values_list("pk", flat=True))
    _reopen_sessions([*ids, *leaves.values_list("pk", flat=True)])
    Job.objects.filter(pk__in=ids, remaining=0).update(**UNDONE)
    move(Job.objects.filter(pk__in=ids), "reopen_parent", finished_at=None)
    move(leaves, "retry", **UNDONE, mailcaster=None, not_before=None, suppressions=0, **sets)


def retry_parent(parent_id: int) -> None:
    """Opens a parent again: its children go on, and mailcasters cut the rest."""
    _reopen_sessions([parent_id])
    move(Job.objects.filter(pk=parent_id), "retry_parent", **UNDONE)
    move(Job.objects.filter(pk=parent_id, remaining=0), "assigned")


def _reopen_sessions(job_ids: Iterable[int]) -> None:
    """The results that their clients have are not final any more."""
    Session.objects.filter(job__in=list(job_ids)).update(finished_at=None, shard=None, in_doubt=0)


def stale(job_id: int) -> JobDecision:
    """The answer to a decision on an old revision."""
    return JobDecision(job_id, Verdict.STALE, f"somebody else has just decided about job {job_id}: look again")


def count(number: int, thing: str) -> str:
    """1 message, 2 messages."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
