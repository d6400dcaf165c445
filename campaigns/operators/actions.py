"""Operators' decisions, from a command or the admin: stop, retry, dispatch, settle; each with its record.

What a decision makes ready is dispatched in its transaction. `by` None leaves no record, as for programs, whose
session is the record.
"""

from collections.abc import Callable, Iterable

from django.db import transaction

from campaigns import decisions
from campaigns.decisions import JobDecision, Verdict
from campaigns.dispatch import dispatcher
from campaigns.doubts import resolve
from campaigns.lifecycle import MOVES
from campaigns.models import Job, Message, Resolution
from campaigns.tasks import notify_vendors, reconcile_soon
from vendors import history
from vendors.history import Actor


def stop(job_ids: Iterable[int], by: Actor, reason: str = "", revision: int | None = None) -> list[JobDecision]:
    """As decisions.stop."""
    return _each(job_ids, by, reason, lambda job_id: decisions.stop([job_id], revision, by.name))


def retry(
    job_ids: Iterable[int],
    revision: int | None = None,
    expired: bool = False,
    by: Actor | None = None,
    reason: str = "",
) -> list[JobDecision]:
    """As decisions.retry; the jobs are dispatched in the same transaction, the vendors notified after it."""
    return _each(job_ids, by, reason, lambda job_id: _retry(job_id, revision, expired))


def dispatch(job_ids: Iterable[int], by: Actor, reason: str = "", revision: int | None = None) -> list[JobDecision]:
    """Sends rendered jobs on now, without waiting for the night; others are told why not."""
    return _each(job_ids, by, reason, lambda job_id: [_dispatch(job_id, revision)])


def settle(
    message_ids: Iterable[int], decision: str, reason: str, by: str, user_id: int | None = None
) -> resolve.Resolved:
    """As doubts.resolve.resolve; jobs that send again are dispatched in the same transaction."""
    ids = list(message_ids)
    with transaction.atomic():
        resolved = resolve.resolve(ids, decision, reason, by)
        told = [(one, f"settled as {Resolution.Decision(decision).label}") for one in ids]
        history.record(Actor(by, user_id), Message, told, reason)
        if resolved.ready:
            _send_on(resolved.ready)
    return resolved


def settle_jobs(
    job_ids: Iterable[int], decision: str, by: Actor, reason: str, seen: int | None = None
) -> list[JobDecision]:
    """As doubts.resolve.resolve_job; jobs that send again are dispatched in the same transaction."""
    return _each(job_ids, by, reason, lambda job_id: [_settle(job_id, decision, reason, by.name, seen)])


def ask_again(message_ids: Iterable[int]) -> int:
    """The vendors are asked about these doubts at once; how many were in doubt still."""
    asked = resolve.ask_again(message_ids)
    transaction.on_commit(reconcile_soon)
    return asked


def _each(
    job_ids: Iterable[int], by: Actor | None, reason: str, act: Callable[[int], list[JobDecision]]
) -> list[JobDecision]:
    """One transaction a job: the decision and its record."""
    answers: list[JobDecision] = []
    for job_id in dict.fromkeys(job_ids):
        with transaction.atomic():
            answers += (told := act(job_id))
            done = [(job_id, answer.told) for answer in told if answer.verdict == Verdict.DONE]
            if by and done:
                history.record(by, Job, done, reason)
    return answers


def _retry(job_id: int, revision: int | None, expired: bool) -> list[JobDecision]:
    (answer,) = decisions.retry([job_id], revision, expired)
    if answer.verdict == Verdict.DONE:
        _send_on([job_id, *answer.ready])
    return [answer]


def _settle(job_id: int, decision: str, reason: str, by: str, seen: int | None) -> JobDecision:
    answer = resolve.resolve_job(job_id, decision, reason, by, seen)
    if answer.ready:
        _send_on(answer.ready)
    return answer


def _dispatch(job_id: int, revision: int | None) -> JobDecision:
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        return JobDecision(job_id, Verdict.UNKNOWN, f"there is no job {job_id}")
    if job.status not in MOVES["dispatch"].sources:
        return JobDecision(
            job_id, Verdict.ALREADY, f"job {job_id} is {job.get_status_display()}: it was dispatched before"
        )
    if revision not in (None, job.revision):
        return JobDecision(job_id, Verdict.STALE, f"somebody else has just decided about job {job_id}: look again")
    gone = dispatcher.dispatch_these([job_id])
    if not gone.jobs:
        return JobDecision(job_id, Verdict.BUSY, f"job {job_id} waits for its time to be sent")
    transaction.on_commit(lambda: notify_vendors(gone.vendors))
    return JobDecision(job_id, Verdict.DONE, f"job {job_id} dispatched", job.size)


def _send_on(job_ids: Iterable[int]) -> None:
    jobs = list(job_ids)
    dispatcher.dispatch_ready(jobs)
    vendors = list(Job.objects.filter(pk__in=jobs).values_list("vendor_id", flat=True).distinct())
    transaction.on_commit(lambda: notify_vendors(vendors))
