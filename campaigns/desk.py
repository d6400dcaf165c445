"""What people press, from a command or in the admin: the decision, then the dispatch of what it set free."""

from collections.abc import Iterable

from django.db import transaction

from campaigns import dispatcher
from campaigns.claims import people, resolve
from campaigns.claims.people import Answer
from campaigns.models import Job
from campaigns.tasks import ring


def retry(job_ids: Iterable[int], revision: int | None = None, expired: bool = False) -> list[Answer]:
    """As claims.people.retry; the jobs are dispatched in the same transaction, the bell rings after it."""
    return [_retry(job_id, revision, expired) for job_id in dict.fromkeys(job_ids)]


@transaction.atomic
def _retry(job_id: int, revision: int | None, expired: bool) -> Answer:
    (answer,) = people.retry([job_id], revision, expired)
    if answer.verdict == people.Verdict.DONE:
        _send_on([job_id, *answer.ready])
    return answer


@transaction.atomic
def settle(message_ids: Iterable[int], decision: str, reason: str, by: str) -> resolve.Resolved:
    """As claims.resolve.resolve; jobs that send again are dispatched in the same transaction."""
    resolved = resolve.resolve(message_ids, decision, reason, by)
    if resolved.ready:
        _send_on(resolved.ready)
    return resolved


def _send_on(job_ids: Iterable[int]) -> None:
    jobs = list(job_ids)
    dispatcher.dispatch_ready(jobs)
    vendors = list(Job.objects.filter(pk__in=jobs).values_list("vendor_id", flat=True).distinct())
    transaction.on_commit(lambda: ring(vendors))
