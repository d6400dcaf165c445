"""Step 8, resolve: lists messages in doubt and settles them by an operator's recorded decision (promise P1)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Now

from campaigns.engine import decisions, ground_truth, lifecycle
from campaigns.engine.decisions import JobDecision, Verdict
from campaigns.engine.routes import whose
from campaigns.models import Job, Message, Resolution
from campaigns.models.states import PARENTS, Status
from vendors import destinations
from vendors.causes import AnswerCause
from vendors.said import Said, gettext_noop


def list_doubts(job: Job | None = None, jobs: "QuerySet[Job] | None" = None) -> QuerySet[Message]:
    """Select the messages in doubt, oldest first, each with the id of its leaf.

    Only finalised jobs have doubts in the ground truth. job: only this job's; jobs: only these jobs'.
    """
    rows = Message.objects.filter(in_doubt_at__isnull=False)
    if job:
        rows = rows.filter(id__gte=job.first_message, id__lt=job.end)
    if jobs is not None:
        rows = rows.filter(Exists(_jobs_around_message(jobs)))
    leaf = _jobs_around_message(Job.objects.all()).exclude(status__in=PARENTS)
    rows = rows.select_related("campaign__sponsor")
    rows = rows.defer("params", "campaign__subject", "campaign__body")
    by = Subquery(leaf.values("vendor__slug")[:1])
    calls_at = Subquery(leaf.values(at=F("vendor__destination") + F("credential__destination"))[:1])
    return rows.annotate(leaf=Subquery(leaf.values("pk")[:1]), goes_by=by, calls_at=calls_at).order_by("id")


def _jobs_around_message(jobs: "QuerySet[Job]") -> "QuerySet[Job]":
    """Select those jobs that contain the message of the outer query."""
    of_campaign = jobs.filter(campaign=OuterRef("campaign"), first_message__lte=OuterRef("id"))
    return of_campaign.filter(size__gt=OuterRef("id") - F("first_message"))


def doubt_facts(row: Any) -> dict[str, Any]:
    """Return a row of `list_doubts` for pages and --json. waits_for: why its vendor is not asked; "" if it is."""
    elsewhere = (row.destination or 0) != row.calls_at
    return {
        "message": row.pk,
        "job": row.leaf,
        "campaign": row.campaign.name,
        "sponsor": row.campaign.sponsor.name,
        "vendor": row.goes_by,
        "recipient": row.recipient,
        "reference": row.reference,
        "called": row.sent_at,
        "seen": row.error_sub_type,
        "asked_again": None if elsewhere else row.settle_at,
        "waits_for": ELSEWHERE if elsewhere else "",
    }


SHOWN = 10  # ids listed in one sentence
ELSEWHERE = "called before the vendor's settings or its key changed: only a person can settle it"


class CannotResolve(Exception):
    """Nothing was changed; the text says why. later: a new attempt may work in a moment."""

    def __init__(self, message: str, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


@dataclass(frozen=True, slots=True)
class Resolved:
    """The number of messages settled. ready: jobs to dispatch now. held: stopped jobs, which stay stopped."""

    messages: int
    ready: tuple[int, ...] = ()
    held: tuple[int, ...] = ()


@transaction.atomic
def resolve_doubts(message_ids: Iterable[int], decision: str, reason: str, by: str) -> Resolved:
    """Settle doubts, all or none. Raises CannotResolve. The caller dispatches the jobs in `ready`.

    The decisions:

    - sent: the vendor has the messages.
    - failed: it does not.
    - resend: call again, under a new reference; the job must be LOGGED.
    - same: the credential still reaches the account of the first call, despite changed settings.

    After `same`, the vendor may settle the doubts. Resending does not start a job stopped half-way: its messages wait
    for a retry.
    """
    ids = sorted(set(message_ids))
    if not reason.strip():
        raise CannotResolve(Said("say why: a reason is kept with every decision"))
    lifecycle.hold_around(ids)
    jobs = _leaves_of_messages(ids)
    _all_in_doubt(ids, _lock_doubts(ids))
    if decision == Resolution.Decision.RESEND:
        _all_logged(set(jobs.values()))
    with connection.cursor() as cursor:
        cursor.execute(KEEP, {"ids": ids, "decision": decision, "reason": reason, "by": by[:150]})
    if decision == Resolution.Decision.SAME:
        with connection.cursor() as cursor:
            cursor.execute(CALLED_WHERE_IT_IS_NOW, {"ids": ids})
        return Resolved(len(ids))
    _settle_messages(ids, decision, reason, by)
    return _count_settled(jobs, decision)


SETTLED_ONE = gettext_noop("job %(job)s: %(count)s message in doubt settled as %(decision)s")
SETTLED = gettext_noop("job %(job)s: %(count)s messages in doubt settled as %(decision)s")
HELD_ONE = gettext_noop(
    "job %(job)s: %(count)s message in doubt settled as %(decision)s; "
    "stopped half-way, so they wait for a retry: job %(jobs)s"
)
HELD = gettext_noop(
    "job %(job)s: %(count)s messages in doubt settled as %(decision)s; "
    "stopped half-way, so they wait for a retry: job %(jobs)s"
)


@transaction.atomic
def resolve_job(job_id: int, decision: str, reason: str, by: str, seen: int | None = None) -> JobDecision:
    """Settle all doubts of a job that has ended, including those of its children.

    seen: the version shown (`count_decisions`); the verdict is STALE if another one is current. Doubts settled in
    the meantime do no harm, and new ones cannot appear until somebody sends again.
    """
    job = decisions.hold_with_family(job_id)
    if job is None:
        return decisions.unknown_job(job_id)
    if why := decisions.busy_reason(job, decisions.leaves_of(job)):
        return JobDecision(job_id, Verdict.BUSY, why)
    if seen not in (None, count_decisions([job_id])[job_id]):
        return decisions.stale_decision(job_id)
    doubts = Message.objects.filter(id__gte=job.first_message, id__lt=job.end, in_doubt_at__isnull=False)
    ids = list(doubts.values_list("pk", flat=True))
    if not ids:
        return JobDecision(
            job_id, Verdict.ALREADY, Said(gettext_noop("job %(job)s has no message in doubt"), job=str(job_id))
        )
    done = resolve_doubts(ids, decision, reason, by)
    settled = (SETTLED_ONE, SETTLED)[done.messages != 1], (HELD_ONE, HELD)[done.messages != 1]
    message = Said(
        settled[bool(done.held)], job=str(job_id), count=done.messages,
        decision=Said(Resolution.Decision(decision).label), jobs=_join_ids(done.held),
    )  # fmt: skip
    return JobDecision(job_id, Verdict.DONE, message, done.messages, done.ready)


def count_decisions(job_ids: Iterable[int]) -> Counter[int]:
    """Return a number for each job that grows with every decision to resend it or a child of it."""
    asked = list(job_ids)
    own = dict(Job.objects.filter(pk__in=asked).values_list("pk", "revision"))
    children = Job.objects.filter(parent__in=asked).order_by().values_list("parent").annotate(Sum("revision"))
    return Counter(own) + Counter(dict(children))


def ask_again(message_ids: Iterable[int]) -> int:
    """Make these doubts due for the next reconciliation. Returns how many of them are in doubt.

    Asking twice does no harm: if two look-ups prove the same, only one repeats the call. Messages called at
    another destination are left out.
    """
    ids = set(message_ids)
    here = ids - whose.called_elsewhere(ids)
    return Message.objects.filter(pk__in=here, in_doubt_at__isnull=False).update(settle_at=Now())


CALLED_WHERE_IT_IS_NOW = f"""
UPDATE campaigns_message m SET settle_at = clock_timestamp(), asked_destination = NULL, destination = (
    SELECT {destinations.NUMBER} FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id
    WHERE l.id = {whose.CREDENTIAL})
FROM campaigns_campaign c WHERE m.id = ANY(%(ids)s) AND m.in_doubt_at IS NOT NULL AND c.id = m.campaign_id
"""


def _leaves_of_messages(ids: Sequence[int]) -> dict[int, int]:
    """Return {message: its leaf}."""
    with connection.cursor() as cursor:
        cursor.execute(LEAVES, {"ids": list(ids), "parents": list(PARENTS)})
        return dict(cursor.fetchall())


LEAVES = """
SELECT m.id, j.id FROM campaigns_message m JOIN campaigns_job j ON j.campaign_id = m.campaign_id
    AND m.id >= j.first_message AND m.id < j.first_message + j.size AND j.status <> ALL(%(parents)s)
WHERE m.id = ANY(%(ids)s)
"""


def _lock_doubts(ids: Sequence[int]) -> set[int]:
    """Lock those of the messages in doubt, and return their ids."""
    with connection.cursor() as cursor:
        cursor.execute(DOUBTS, {"ids": list(ids)})
        return {message_id for (message_id,) in cursor.fetchall()}


DOUBTS = """
SELECT id FROM campaigns_message WHERE id = ANY(%(ids)s) AND in_doubt_at IS NOT NULL ORDER BY id FOR UPDATE
"""
# Runs before the message changes, because the decision keeps the evidence of the call.
KEEP = """
INSERT INTO campaigns_resolution (message_id, resend_no, decision, reason, decided_by, evidence, created_at)
SELECT id, resend_no, %(decision)s, %(reason)s, %(by)s,
    'called ' || to_char(sent_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
    || ' UTC: ' || coalesce(nullif(error_sub_type, ''), 'nothing was seen'), now()
FROM campaigns_message WHERE id = ANY(%(ids)s) ORDER BY id
"""


def _all_in_doubt(ids: Sequence[int], doubted: set[int]) -> None:
    if len(ids) == len(doubted):
        return
    known = set(Message.objects.filter(pk__in=ids).values_list("pk", flat=True))
    faults = (("no such message", set(ids) - known), ("not in doubt", known - doubted))
    reasons = [f"{reason}: {_join_ids(missing)}" for reason, missing in faults if missing]
    raise CannotResolve("; ".join(reasons) + "; nothing was changed")


def _all_logged(job_ids: set[int]) -> None:
    running = Job.objects.filter(pk__in=job_ids).exclude(status=Status.LOGGED).values_list("pk", flat=True)
    if running:
        raise CannotResolve(
            Said("still being sent or finalised: job %(jobs)s; try again in a moment", jobs=_join_ids(running)),
            later=True,
        )


def _settle_messages(ids: Sequence[int], decision: str, reason: str, by: str) -> None:
    rows = Message.objects.filter(pk__in=ids)
    if decision == Resolution.Decision.SENT:
        rows.update(
            message_id=f"person:{by}"[:255],
            delivered_at=Now(),
            in_doubt_at=None,
            settle_at=None,
            error_sub_type=None,
            cause=None,
        )
        ground_truth.charge_settled(ids)
    elif decision == Resolution.Decision.FAILED:
        rows.update(
            error_code="person",
            error_sub_type=reason[:255],
            cause=AnswerCause.UNKNOWN.value,
            delivered_at=Now(),
            in_doubt_at=None,
            settle_at=None,
        )
    else:
        rows.update(
            resend_no=F("resend_no") + 1,
            dequeued_at=None,
            sent_at=None,
            in_doubt_at=None,
            settle_at=None,
            error_sub_type=None,
            cause=None,
            put_off_at=None,
            call_after=None,
            asked_destination=None,
        )


def _count_settled(jobs: dict[int, int], decision: str) -> Resolved:
    """Update the jobs' counters, and reopen those without other open messages."""
    numbers = Counter(jobs.values())
    settled: dict[str, Any] = {
        "jobs": list(numbers),
        "numbers": list(numbers.values()),
        "sent": int(decision == Resolution.Decision.SENT),
        "failed": int(decision == Resolution.Decision.FAILED),
    }
    with connection.cursor() as cursor:
        cursor.execute(COUNT, settled)
    if decision != Resolution.Decision.RESEND:
        return Resolved(len(jobs))
    complete: list[int] = []
    held: list[int] = []
    for job in Job.objects.filter(pk__in=numbers).order_by("pk"):
        open_messages = job.size - job.accepted - job.refused - job.expired - job.suppressed - job.in_doubt
        (complete if open_messages == numbers[job.pk] else held).append(job.pk)
    decisions.reopen_leaves(Job.objects.filter(pk__in=complete))
    return Resolved(len(jobs), tuple(complete), tuple(held))


# A parent's counters are the sums of its children's.
COUNT = """
WITH settled AS (SELECT unnest(%(jobs)s::bigint[]) AS id, unnest(%(numbers)s::int[]) AS number)
UPDATE campaigns_job j SET in_doubt = greatest(j.in_doubt - n.number, 0),
    accepted = j.accepted + n.number * %(sent)s, refused = j.refused + n.number * %(failed)s
FROM (
    SELECT id, number FROM settled
    UNION ALL SELECT c.parent_id, sum(s.number)::int FROM settled s JOIN campaigns_job c USING (id)
        WHERE c.parent_id IS NOT NULL GROUP BY c.parent_id
) n WHERE j.id = n.id
"""


def _join_ids(ids: Iterable[int]) -> str:
    ordered = sorted(ids)
    return ", ".join(map(str, ordered[:SHOWN])) + (f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else "")
