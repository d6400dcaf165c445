"""What people decide about jobs: stop, send the rest again. One transaction a job; each answer says what came of it.

A caster cuts under the lock of the parent's row, so no child is cut after a stop has committed (promise P5).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from campaigns import lifecycle
from campaigns.lifecycle import MOVES, Status, move
from campaigns.models import Job, Session

UNDONE: dict[str, Any] = {"stopped_at": None, "stopped_by": "", "finished_at": None, "waits_for": ""}


class Verdict(StrEnum):
    DONE = "done"
    ALREADY = "already"  # it is so, or there is nothing to do
    BUSY = "busy"  # not yet: it is still being sent or finalised
    STALE = "stale"  # somebody else decided meanwhile
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What came of one decision. ready: the jobs that wait for the dispatcher now."""

    job_id: int
    verdict: Verdict
    told: str
    messages: int = 0
    ready: tuple[int, ...] = ()


def stop(job_ids: Iterable[int], revision: int | None = None, by: str = "") -> list[JobDecision]:
    """No new call for these jobs once this has committed; a parent is stopped with all its children.

    revision: the decision was made on this picture of the job, and loses if another was faster. Stopping what is
    stopped changes nothing. The finalizer then brings the answers into the truth.
    """
    return [_stop(job_id, revision, by) for job_id in dict.fromkeys(job_ids)]


def retry(job_ids: Iterable[int], revision: int | None = None, expired: bool = False) -> list[JobDecision]:
    """Sends again what was refused or never called (document 001; to resume is the same).

    Never what is accepted or in doubt; what expired only when `expired` says so. Refused until the job is logged. A
    refused message gets a new reference: a vendor that deduplicates would only repeat its refusal. The caller
    dispatches the jobs in `ready`, best in the same transaction.
    """
    return [_retry(job_id, revision, expired) for job_id in dict.fromkeys(job_ids)]


def stoppable() -> Q:
    """Jobs that a stop can do something to. A parent with a live child is one, whatever its own state says."""
    alive = Job.objects.filter(parent=OuterRef("pk"), status__in=MOVES["stop"].sources)
    return Q(status__in=MOVES["stop"].sources + MOVES["stop_parent"].sources) | Q(
        Exists(alive), status__in=MOVES["reopen"].sources
    )


@transaction.atomic
def _stop(job_id: int, revision: int | None, by: str) -> JobDecision:
    job = hold(job_id)
    if job is None:
        return JobDecision(job_id, Verdict.UNKNOWN, f"there is no job {job_id}")
    children = Job.objects.filter(parent=job_id)
    running = children.filter(status__in=MOVES["stop"].sources).count()
    if job.status in (Status.STOPPED, Status.P_STOPPED) and not running:
        return JobDecision(job_id, Verdict.ALREADY, f"job {job_id} is stopped already")
    if revision not in (None, job.revision):
        return stale(job_id)
    # After the lock: a call that started before has an earlier time (the audit of P5 compares them).
    mark = {"stopped_at": Now(), "stopped_by": by[:150], "waits_for": ""}
    # What has called everything keeps its state, but goes on no more if one of its calls turns out not to have been.
    Job.objects.filter(Q(pk=job_id) | Q(parent=job_id), status=Status.SENT).update(**mark)
    move(children, "stop", **mark)
    nothing_left = job.is_parent and not job.remaining and not running
    verb = "stop_parent" if job.is_parent else "stop"
    moved = 0 if nothing_left else move(Job.objects.filter(pk=job_id), verb, **mark)
    if not moved and not running:
        return JobDecision(
            job_id, Verdict.ALREADY, f"job {job_id} is {job.get_status_display()}: nothing is left to stop"
        )
    many = f" and {count(running, 'child job')}" if running else ""
    return JobDecision(job_id, Verdict.DONE, f"job {job_id}{many} stopped: no new call starts")


@transaction.atomic
def _retry(job_id: int, revision: int | None, expired: bool) -> JobDecision:
    job = hold(job_id)
    if job is None:
        return JobDecision(job_id, Verdict.UNKNOWN, f"there is no job {job_id}")
    leaves = leaves_of(job)
    if why := busy(job, leaves):
        return JobDecision(job_id, Verdict.BUSY, why)
    if revision not in (None, job.revision):
        return stale(job_id)
    freed = _free([leaf.pk for leaf in leaves], expired)
    ready = tuple(leaf_id for leaf_id, count in freed.items() if count)
    rest = job.remaining if job.is_parent else 0
    if not ready and not rest:
        return JobDecision(job_id, Verdict.ALREADY, f"job {job_id} has nothing to send again: {_sums(leaves)}")
    if job.is_parent:
        _reopen_parent(job_id)
    reopen(Job.objects.filter(pk__in=ready), refused=0, expired=0 if expired else F("expired"))
    messages = sum(freed.values()) + rest
    return JobDecision(job_id, Verdict.DONE, f"job {job_id} sends {count(messages, 'message')}", messages, ready)


def hold(job_id: int) -> Job | None:
    """The job, held with its parent or its children, and as it is now."""
    lifecycle.hold_family(job_id)
    return Job.objects.filter(pk=job_id).first()


def leaves_of(job: Job) -> list[Job]:
    """The job itself or its children."""
    return list(Job.objects.filter(parent=job.pk).order_by("pk")) if job.is_parent else [job]


def busy(job: Job, leaves: list[Job]) -> str:
    """Why nothing can be sent again yet, in words."""
    if job.is_parent and job.status not in MOVES["retry_parent"].sources:
        return f"job {job.pk} is under way ({job.get_status_display()}): stop it first, or wait until it is finished"
    open_leaves = [leaf for leaf in leaves if leaf.status != Status.LOGGED]
    if any(leaf.status in (Status.STOPPED, Status.SENT) for leaf in open_leaves):
        return f"job {job.pk} is still being finalised; try again in a moment"
    if open_leaves:
        return f"job {job.pk} is under way ({open_leaves[0].get_status_display()}): nothing to send again yet"
    return ""


# Sent again: what was refused, under a new reference, and what was never called. Not what is accepted or in doubt.
FREE = """
WITH freed AS (
    UPDATE campaigns_message m SET
        resend_no = m.resend_no + (m.sent_at IS NOT NULL)::int, dequeued_at = NULL, sent_at = NULL,
        delivered_at = NULL, error_code = NULL, error_sub_type = NULL
    FROM campaigns_job j
    WHERE j.id = ANY(%(jobs)s) AND m.id >= j.first_message AND m.id < j.first_message + j.size
        AND m.message_id IS NULL AND m.in_doubt_at IS NULL AND m.dequeued_at IS NOT NULL
        AND (m.error_code IS NOT NULL OR m.sent_at IS NULL)
        AND (m.error_code IS DISTINCT FROM 'expired' OR %(expired)s)
    RETURNING j.id
)
SELECT j.id, (SELECT count(*) FROM freed WHERE freed.id = j.id) + (
    SELECT count(*) FROM campaigns_message m
    WHERE m.id >= j.first_message AND m.id < j.first_message + j.size AND m.dequeued_at IS NULL
)
FROM campaigns_job j WHERE j.id = ANY(%(jobs)s) ORDER BY j.id
"""


def _free(leaf_ids: list[int], expired: bool) -> dict[int, int]:
    """The messages of these jobs that may be sent again become waiting ones; how many wait then, by job."""
    with connection.cursor() as cursor:
        cursor.execute(FREE, {"jobs": leaf_ids, "expired": expired})
        return dict(cursor.fetchall())


def reopen(leaves: QuerySet[Job], **sets: Any) -> None:
    """LOGGED -> READY; the parent of a child that is sent again has not ended any more.

    What a stop kept from being cut stays uncut, and stopped.
    """
    above = Job.objects.filter(children__in=list(leaves), status__in=MOVES["reopen"].sources)
    ids = list(above.distinct().values_list("pk", flat=True))
    _reopen_sessions([*ids, *leaves.values_list("pk", flat=True)])
    Job.objects.filter(pk__in=ids, remaining=0).update(**UNDONE)
    move(Job.objects.filter(pk__in=ids), "reopen")
    move(leaves, "retry", **UNDONE, mailcaster=None, not_before=None, **sets)


def _reopen_parent(parent_id: int) -> None:
    """Its children go on; what is not cut yet, the casters cut."""
    _reopen_sessions([parent_id])
    move(Job.objects.filter(pk=parent_id), "retry_parent", **UNDONE)
    move(Job.objects.filter(pk=parent_id, remaining=0), "assigned")


def _reopen_sessions(job_ids: Iterable[int]) -> None:
    """What they were told is not the last word any more."""
    Session.objects.filter(job__in=list(job_ids)).update(finished_at=None, shard=None, in_doubt=0)


def stale(job_id: int) -> JobDecision:
    return JobDecision(job_id, Verdict.STALE, f"somebody else has just decided about job {job_id}: look again")


def _sums(leaves: list[Job]) -> str:
    words = ((sum(getattr(leaf, name) for leaf in leaves), name) for name in ("accepted", "in_doubt", "expired"))
    return ", ".join(f"{count} {name.replace('_', ' ')}" for count, name in words if count) or "nothing was in it"


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
