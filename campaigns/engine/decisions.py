"""Shared steps of all decisions about jobs: lock the job with its family, check that it can be decided, reopen it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet

from campaigns.engine import lifecycle
from campaigns.engine.lifecycle import MOVES, move
from campaigns.models import Job, Session
from campaigns.models.states import DONE, FINALISING, PARENTS, Status
from vendors.said import Said, gettext_noop

UNDONE: dict[str, Any] = {"stopped_at": None, "stopped_by": "", "finished_at": None, "waits_for": ""}


class Verdict(StrEnum):
    """The outcome of a decision."""

    DONE = "done"
    ALREADY = "already"  # already so, or nothing to do
    BUSY = "busy"  # not yet: it is still being sent or finalised
    STALE = "stale"  # somebody else decided meanwhile
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobDecision:
    """The result of one decision. message: a sentence; ready: the jobs that now wait for the dispatcher."""

    job_id: int
    verdict: Verdict
    message: str
    messages: int = 0
    ready: tuple[int, ...] = ()


def hold_with_family(job_id: int) -> Job | None:
    """Lock the job with its parent or its children, then read it. None if it does not exist."""
    lifecycle.hold_family(job_id)
    return Job.objects.filter(pk=job_id).first()


def leaves_of(job: Job) -> list[Job]:
    """Return the leaves of a job: its children, or the job itself."""
    return list(Job.objects.filter(parent=job.pk).order_by("pk")) if job.is_parent else [job]


def called_next(campaign_id: int) -> "QuerySet[Job]":
    """Match the campaign's jobs whose vendors would be called if it continued: unfinished ones, uncut parents included.

    On a route their vendors may differ.
    """
    live = Job.objects.filter(campaign=campaign_id).exclude(status__in=DONE)
    return live.exclude(status__in=PARENTS, remaining=0)


def busy_reason(job: Job, leaves: list[Job]) -> str:
    """Return as a sentence why nothing can be sent again yet; empty if it can."""
    if job.is_parent and job.status not in MOVES["retry_parent"].sources:
        return Said(
            gettext_noop("job %(job)s is under way (%(status)s): stop it first, or wait until it is finished"),
            job=str(job.pk), status=Said(job.get_status_display()),
        )  # fmt: skip
    open_leaves = [leaf for leaf in leaves if leaf.status != Status.LOGGED]
    if any(leaf.status in FINALISING for leaf in open_leaves):
        return Said(gettext_noop("job %(job)s is still being finalised; try again in a moment"), job=str(job.pk))
    if open_leaves:
        return Said(
            gettext_noop("job %(job)s is under way (%(status)s): nothing to send again yet"),
            job=str(job.pk), status=Said(open_leaves[0].get_status_display()),
        )  # fmt: skip
    return ""


def reopen_leaves(leaves: QuerySet[Job], **sets: Any) -> None:
    """Move these leaves LOGGED -> READY and reopen their parents.

    Parts that a stop left uncut stay uncut. The claims then check all suppressions, not only those since the import: a
    message suppressed then may wait again, through a recovery of the store or a person's decision about a doubt.
    """
    reopen_parents(leaves)
    move(leaves, "retry", **UNDONE, mailcaster=None, not_before=None, suppressions=0, **sets)


def reopen_parents(leaves: QuerySet[Job]) -> None:
    """Reopen the parents of these leaves, and the results of both.

    If a leaf is stopped and stays so, the sweep ends its parent as stopped.
    """
    above = Job.objects.filter(children__in=list(leaves), status__in=MOVES["reopen_parent"].sources)
    ids = list(above.distinct().values_list("pk", flat=True))
    _reopen_sessions([*ids, *leaves.values_list("pk", flat=True)])
    Job.objects.filter(pk__in=ids, remaining=0).update(**UNDONE)
    move(Job.objects.filter(pk__in=ids), "reopen_parent", finished_at=None)


def retry_parent(parent_id: int) -> None:
    """Reopen a parent: its children go on, and mailcasters cut the rest."""
    _reopen_sessions([parent_id])
    move(Job.objects.filter(pk=parent_id), "retry_parent", **UNDONE)
    move(Job.objects.filter(pk=parent_id, remaining=0), "assigned")


def _reopen_sessions(job_ids: Iterable[int]) -> None:
    """Mark the results that clients already have as not final."""
    Session.objects.filter(job__in=list(job_ids)).update(finished_at=None, shard=None, in_doubt=0)


def stale_decision(job_id: int) -> JobDecision:
    """Return the answer to a decision on an old revision."""
    said = gettext_noop("somebody else has just decided about job %(job)s: look again")
    return JobDecision(job_id, Verdict.STALE, Said(said, job=str(job_id)))


def unknown_job(job_id: int) -> JobDecision:
    """Return the answer to a decision about a job that does not exist."""
    return JobDecision(job_id, Verdict.UNKNOWN, Said(gettext_noop("there is no job %(job)s"), job=str(job_id)))
