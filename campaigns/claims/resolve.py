"""What a person decides about messages in doubt, when nothing else could settle them (promise P1: recorded)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from campaigns.claims.people import reopen
from campaigns.models import Job, Message, Resolution
from campaigns.states import PARENTS, Status

As = Resolution.As
SHOWN = 10  # ids in one sentence


class CannotResolve(Exception):
    """Nothing was changed; the text says which messages stand in the way. later: it may work in a moment."""

    def __init__(self, told: str, later: bool = False) -> None:
        super().__init__(told)
        self.later = later


@dataclass(frozen=True, slots=True)
class Resolved:
    """How many messages; ready: the jobs that wait for the dispatcher now; held: stopped jobs that were left so."""

    messages: int
    ready: tuple[int, ...] = ()
    held: tuple[int, ...] = ()


@transaction.atomic
def resolve(message_ids: Iterable[int], decision: str, reason: str, by: str) -> Resolved:
    """sent: the vendor has it. failed: it has not, and it is given up. resend: call again, under a new reference.

    All of them or none. Only what is in doubt in the truth, so its job has been finalised; to be sent again, the job
    must be logged now. A job that was stopped half-way is not started by this: its messages wait for a retry. Raises
    CannotResolve. The caller dispatches the jobs in `ready`.
    """
    ids = sorted(set(message_ids))
    if not reason.strip():
        raise CannotResolve("say why: a reason is kept with every decision")
    jobs = _lock_jobs(ids)  # before their messages, as everybody locks them
    messages = list(Message.objects.select_for_update().filter(pk__in=ids, in_doubt_at__isnull=False).order_by("pk"))
    _all_in_doubt(ids, messages)
    if decision == As.RESEND:
        _all_logged(set(jobs.values()))
    Resolution.objects.bulk_create(_entry(message, decision, reason, by) for message in messages)
    _settle(ids, decision, reason, by)
    return _count(ids, jobs, decision)


def ask_again(message_ids: Iterable[int]) -> int:
    """The vendor is asked about these by the next settling; how many of them are in doubt. A second look does no harm:
    of two who prove the same call, one repeats it."""
    return Message.objects.filter(pk__in=list(message_ids), in_doubt_at__isnull=False).update(settle_at=Now())


def _lock_jobs(ids: Sequence[int]) -> dict[int, int]:
    """The leaf job of each message; parents are locked first, as everywhere."""
    with connection.cursor() as cursor:
        cursor.execute(LEAVES, {"ids": list(ids), "parents": list(PARENTS)})
        jobs = dict(cursor.fetchall())
    parents = Job.objects.filter(children__in=set(jobs.values())).order_by("pk").distinct()
    for locked in (list(parents.values_list("pk", flat=True)), list(set(jobs.values()))):
        list(Job.objects.select_for_update().filter(pk__in=locked).order_by("pk").values_list("pk"))
    return jobs


LEAVES = """
SELECT m.id, j.id FROM campaigns_message m JOIN campaigns_job j ON j.campaign_id = m.campaign_id
    AND m.id >= j.first_message AND m.id < j.first_message + j.size AND j.status <> ALL(%(parents)s)
WHERE m.id = ANY(%(ids)s)
"""


def _all_in_doubt(ids: Sequence[int], messages: Sequence[Message]) -> None:
    known = set(Message.objects.filter(pk__in=ids).values_list("pk", flat=True))
    doubted = {message.pk for message in messages}
    faults = [
        f"{verb}: {_list(missing)}"
        for verb, missing in (("no such message", set(ids) - known), ("not in doubt", known - doubted))
        if missing
    ]
    if faults:
        raise CannotResolve("; ".join(faults) + "; nothing was changed")


def _all_logged(job_ids: set[int]) -> None:
    running = Job.objects.filter(pk__in=job_ids).exclude(status=Status.LOGGED).values_list("pk", flat=True)
    if running:
        raise CannotResolve(f"still being sent or finalised: job {_list(running)}; try again in a moment", later=True)


def _entry(message: Message, decision: str, reason: str, by: str) -> Resolution:
    seen = f"called {message.sent_at:%Y-%m-%d %H:%M:%S %Z}: {message.error_sub_type or 'nothing was seen'}"
    return Resolution(message=message, decision=decision, reason=reason, decided_by=by[:150], evidence=seen)


def _settle(ids: Sequence[int], decision: str, reason: str, by: str) -> None:
    rows = Message.objects.filter(pk__in=ids)
    if decision == As.SENT:
        rows.update(
            message_id=f"person:{by}"[:255], delivered_at=Now(), in_doubt_at=None, settle_at=None, error_sub_type=None
        )
    elif decision == As.FAILED:
        rows.update(
            error_code="person", error_sub_type=reason[:255], delivered_at=Now(), in_doubt_at=None, settle_at=None
        )
    else:
        rows.update(
            resend_no=F("resend_no") + 1,
            dequeued_at=None,
            sent_at=None,
            in_doubt_at=None,
            settle_at=None,
            error_sub_type=None,
        )


def _count(ids: Sequence[int], jobs: dict[int, int], decision: str) -> Resolved:
    """The counters of the jobs follow; jobs without other open messages are sent again."""
    column = {As.SENT.value: "accepted", As.FAILED.value: "refused"}.get(decision)
    for job_id, number in sorted(Counter(jobs[one] for one in ids).items()):
        counters: dict[str, Any] = {"in_doubt": Greatest(F("in_doubt") - number, 0)}
        if column:
            counters[column] = F(column) + number
        Job.objects.filter(Q(pk=job_id) | Q(children=job_id)).update(**counters)
    if decision != As.RESEND:
        return Resolved(len(ids))
    complete: list[int] = []
    held: list[int] = []
    for job in Job.objects.filter(pk__in=set(jobs.values())).order_by("pk"):
        open_messages = job.size - job.accepted - job.refused - job.expired - job.in_doubt
        alone = open_messages == sum(1 for one in jobs.values() if one == job.pk)
        (complete if alone else held).append(job.pk)
    reopen(Job.objects.filter(pk__in=complete))
    return Resolved(len(ids), tuple(complete), tuple(held))


def _list(ids: Iterable[int]) -> str:
    ordered = sorted(ids)
    return ", ".join(map(str, ordered[:SHOWN])) + (f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else "")
