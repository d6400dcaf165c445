"""Decisions about jobs from commands, the admin or the API: stop, retry, dispatch, settle; each one is recorded.

One transaction for each job: it locks the job with its family, makes and records the decision, and dispatches jobs that
are ready. Vendors are notified after the commit. A JobDecision reports the result. The admin's log records an Actor's
decisions, but not those of an API key, whose session is the record.

A mailcaster cuts under the lock of the parent's row, so no child is cut after a stop has committed (promise P5).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from campaigns.approvals import approval_rules
from campaigns.engine import decisions, lifecycle
from campaigns.engine.decisions import JobDecision, Verdict
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.doubts import causes, resolve
from campaigns.engine.doubts.causes import Cause
from campaigns.engine.doubts.resolve import CannotResolve
from campaigns.engine.lifecycle import MOVES, move
from campaigns.models import Job, Message, Resolution
from campaigns.models.states import Status
from campaigns.senders import entitlements
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import NewWork, QuotaRefusal
from campaigns.suppression.comparing import free_lifted
from campaigns.suppression.refused import REFUSED_SO
from campaigns.tasks import reconcile_soon
from vendors import history
from vendors.history import Actor
from vendors.said import Said, gettext_noop

AT_ONCE = 20_000  # messages in one decision about causes; the history keeps each


@dataclass(frozen=True, slots=True)
class QuotaDecision(JobDecision):
    """A decision that a quota forbids now; its verdict is BUSY."""

    refusal: QuotaRefusal | None = None


def stop_jobs(
    job_ids: Iterable[int], by: Actor | str = "", reason: str = "", revision: int | None = None
) -> list[JobDecision]:
    """Stop jobs: once this has committed, no new call is allowed. A parent is stopped with all its children.

    by: its name is stored with the job; only an Actor's decision is recorded. revision: the one shown; if it
    is not current, the verdict is STALE. Stopping a stopped job changes nothing. The finalizer writes the answers to
    the ground truth afterwards.
    """
    return [_stop_job(job_id, by, reason, revision) for job_id in dict.fromkeys(job_ids)]


def stoppable_condition() -> Q:
    """Select jobs that can be stopped, including every parent with a live child, whatever its own status."""
    alive = Job.objects.filter(parent=OuterRef("pk"), status__in=MOVES["stop"].sources)
    return Q(status__in=MOVES["stop"].sources + MOVES["stop_parent"].sources) | Q(
        Exists(alive), status__in=MOVES["reopen_parent"].sources
    )


@transaction.atomic
def _stop_job(job_id: int, by: Actor | str, reason: str, revision: int | None) -> JobDecision:
    job = decisions.hold_with_family(job_id)
    if job is None:
        return decisions.unknown_job(job_id)
    children = Job.objects.filter(parent=job_id)
    running = children.filter(status__in=MOVES["stop"].sources).count()
    if job.stopped_at and job.status in (Status.STOPPED, Status.P_STOPPED) and not running:
        return JobDecision(
            job_id, Verdict.ALREADY, Said(gettext_noop("job %(job)s is stopped already"), job=str(job_id))
        )
    if revision not in (None, job.revision):
        return decisions.stale_decision(job_id)
    # Read after the lock, so that every earlier call has an earlier time; the audit of P5 compares them.
    mark = {"stopped_at": Now(), "stopped_by": (by.name if isinstance(by, Actor) else by)[:150], "waits_for": ""}
    # A SENT job keeps its status, but is not sent again if one of its calls turns out not to have been made.
    Job.objects.filter(Q(pk=job_id) | Q(parent=job_id), status=Status.SENT).update(**mark)
    move(children, "stop", **mark)
    nothing_left = job.is_parent and not job.remaining and not running
    verb = "stop_parent" if job.is_parent else "stop"
    moved = 0 if nothing_left else move(Job.objects.filter(pk=job_id), verb, **mark)
    if not moved and not running:
        over = Said(
            gettext_noop("job %(job)s is %(status)s: nothing is left to stop"),
            job=str(job_id), status=Said(job.get_status_display()),
        )  # fmt: skip
        return JobDecision(job_id, Verdict.ALREADY, over)
    answer = JobDecision(job_id, Verdict.DONE, Said(STOPPED[min(running, 2)], job=str(job_id), count=running))
    return _record_actor_decision(answer, by, reason)


STOPPED = (
    gettext_noop("job %(job)s stopped: no new call starts"),
    gettext_noop("job %(job)s and 1 child job stopped: no new call starts"),
    gettext_noop("job %(job)s and %(count)s child jobs stopped: no new call starts"),
)


def retry_jobs(
    job_ids: Iterable[int],
    revision: int | None = None,
    expired: bool = False,
    by: Actor | None = None,
    reason: str = "",
) -> list[JobDecision]:
    """Send refused and uncalled messages again (document 001; resuming is the same).

    Accepted messages and doubts are left out. So are suppressed recipients, and recipients refused as unknown or after
    a STOP, until a person lifts that. Expired messages go only if `expired`. The verdict is BUSY until the job is
    logged. A refused message gets a new reference, because a vendor that deduplicates would only repeat its refusal.
    revision: as in `stop_jobs`.
    """
    return [_retry_job(job_id, revision, expired, by, reason) for job_id in dict.fromkeys(job_ids)]


@transaction.atomic
def _retry_job(job_id: int, revision: int | None, expired: bool, by: Actor | None, reason: str) -> JobDecision:
    job = decisions.hold_with_family(job_id)
    if job is None:
        return decisions.unknown_job(job_id)
    leaves = decisions.leaves_of(job)
    if why := decisions.busy_reason(job, leaves):
        return JobDecision(job_id, Verdict.BUSY, why)
    if revision not in (None, job.revision):
        return decisions.stale_decision(job_id)
    if job.paused_at:
        why = approval_rules.bar_reason(job.campaign_id) or Said(gettext_noop("resume_job lets it go on"))
        said = Said(gettext_noop("job %(job)s is paused with its campaign: %(why)s"), job=str(job_id), why=why)
        return JobDecision(job_id, Verdict.BUSY, said)
    free_lifted(job, leaves)
    freed = _free_messages([leaf.pk for leaf in leaves], expired)
    ready = tuple(leaf_id for leaf_id, count in freed.items() if count)
    rest = job.remaining - job.remaining_suppressed if job.is_parent else 0
    if not ready and not rest:
        return JobDecision(job_id, Verdict.ALREADY, _nothing_again(job, leaves))
    if why := entitlements.find_held_reason([*ready, *([job_id] if rest else [])]):
        transaction.set_rollback(True)  # undo the freeing of messages
        return JobDecision(job_id, Verdict.BUSY, Said(gettext_noop("job %(job)s is %(why)s"), job=str(job_id), why=why))
    if refused := _ask_quotas(job, sum(freed.values()) + rest):
        transaction.set_rollback(True)
        return refused
    if job.is_parent:
        decisions.retry_parent(job_id)
    decisions.reopen_leaves(Job.objects.filter(pk__in=ready))
    messages = sum(freed.values()) + (0 if job.is_parent and job.is_kept_back else min(rest, job.left_to_cut))
    form = SENDS[bool(job.wait_after)][messages != 1]
    message = Said(form, job=str(job_id), count=messages, first=job.wait_after or 0)
    answer = _record_actor_decision(JobDecision(job_id, Verdict.DONE, message, messages, ready), by, reason)
    _send_on([job_id, *ready])
    return answer


def _ask_quotas(job: Job, messages: int) -> QuotaDecision | None:
    """Ask the sponsor's quotas about messages that a decision adds to the work. The job is locked and not reopened."""
    work = NewWork(job.sponsor_id, job.vendor_id, job.credential_id, messages, timezone.now())
    with connection.cursor() as cursor:
        refusal = admission.admit_all(cursor, [work])[0]
    if refusal is None:
        return None
    said = Said(gettext_noop("job %(job)s is not sent again: %(why)s"), job=str(job.pk), why=refusal.sentence)
    return QuotaDecision(job.pk, Verdict.BUSY, said, refusal=refusal)


SENDS = (
    (gettext_noop("job %(job)s sends 1 message"), gettext_noop("job %(job)s sends %(count)s messages")),
    (
        gettext_noop("job %(job)s sends 1 message, and waits after its first %(first)s"),
        gettext_noop("job %(job)s sends %(count)s messages, and waits after its first %(first)s"),
    ),
)
# Sent again: refused messages, under a new reference, and uncalled ones; not accepted ones or doubts.
FREE = f"""
WITH freed AS (
    UPDATE campaigns_message m SET
        resend_no = m.resend_no + (m.sent_at IS NOT NULL)::int, dequeued_at = NULL, sent_at = NULL,
        delivered_at = NULL, error_code = NULL, error_sub_type = NULL, cause = NULL, put_off_at = NULL,
        call_after = NULL
    FROM campaigns_job j
    WHERE j.id = ANY(%(jobs)s) AND m.id >= j.first_message AND m.id < j.first_message + j.size
        AND m.message_id IS NULL AND m.in_doubt_at IS NULL AND m.dequeued_at IS NOT NULL
        AND (m.error_code IS NOT NULL OR m.sent_at IS NULL)
        AND (m.error_code IS DISTINCT FROM 'expired' OR %(expired)s) AND m.error_code IS DISTINCT FROM 'suppressed'
        AND NOT {REFUSED_SO}
    RETURNING j.id
)
SELECT j.id, (SELECT count(*) FROM freed WHERE freed.id = j.id) + (
    SELECT count(*) FROM campaigns_message m
    WHERE m.id >= j.first_message AND m.id < j.first_message + j.size AND m.dequeued_at IS NULL
)
FROM campaigns_job j WHERE j.id = ANY(%(jobs)s) ORDER BY j.id
"""
RECOUNT = """
UPDATE campaigns_job j SET refused = s.refused, expired = s.expired, suppressed = s.suppressed FROM (
    SELECT o.id, count(*) FILTER (WHERE m.error_code <> ALL(ARRAY['expired', 'suppressed'])) AS refused,
        count(*) FILTER (WHERE m.error_code = 'expired') AS expired,
        count(*) FILTER (WHERE m.error_code = 'suppressed') AS suppressed
    FROM campaigns_job o JOIN campaigns_message m ON m.id >= o.first_message AND m.id < o.first_message + o.size
    WHERE o.id = ANY(%(jobs)s) GROUP BY o.id
) s WHERE j.id = s.id
"""


def _free_messages(leaf_ids: list[int], expired: bool) -> dict[int, int]:
    """Make sendable messages wait again. Returns the number of waiting messages by job."""
    with connection.cursor() as cursor:
        cursor.execute(FREE, {"jobs": leaf_ids, "expired": expired})
        freed = dict(cursor.fetchall())
        cursor.execute(RECOUNT, {"jobs": [leaf_id for leaf_id, count in freed.items() if count]})
        return freed


def _nothing_again(job: Job, leaves: list[Job]) -> Said:
    names = ("accepted", "refused", "in_doubt", "expired", "suppressed")
    sums = Counter({name: sum(getattr(leaf, name) for leaf in leaves) for name in names})
    sums["suppressed"] += job.remaining_suppressed if job.is_parent else 0
    if not any(sums.values()):
        return Said(gettext_noop("job %(job)s has nothing to send again: nothing was in it"), job=str(job.pk))
    counted = (
        Said("%(count)s %(name)s", count=str(sums[name]), name=Said(name.replace("_", " ")))
        for name in names
        if sums[name]
    )
    nothing = gettext_noop("job %(job)s has nothing to send again: %(sums)s")
    if sums["in_doubt"]:
        nothing = gettext_noop(
            "job %(job)s has nothing to send again: %(sums)s; what is in doubt is decided under Needs attention, or by "
            "resolve --job %(job)s"
        )
    return Said(nothing, job=str(job.pk), sums=Said.join_parts(", ", counted))


def dispatch_jobs(
    job_ids: Iterable[int], by: Actor, reason: str = "", revision: int | None = None
) -> list[JobDecision]:
    """Dispatch rendered jobs now, without waiting for the night. For other jobs the message gives the reason."""
    return [_dispatch_job(job_id, by, reason, revision) for job_id in dict.fromkeys(job_ids)]


@transaction.atomic
def _dispatch_job(job_id: int, by: Actor, reason: str, revision: int | None) -> JobDecision:
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        return decisions.unknown_job(job_id)
    if job.status not in MOVES["dispatch"].sources:
        before = Said(
            gettext_noop("job %(job)s is %(status)s: it was dispatched before"),
            job=str(job_id), status=Said(job.get_status_display()),
        )  # fmt: skip
        return JobDecision(job_id, Verdict.ALREADY, before)
    if revision not in (None, job.revision):
        return decisions.stale_decision(job_id)
    gone = dispatcher.dispatch_these([job_id])
    if not gone.jobs:
        why = (
            entitlements.find_held_reason([job_id])
            or approval_rules.bar_reason(job.campaign_id)
            or _held_by_quota(job_id)
        )
        form = (
            gettext_noop("job %(job)s is %(why)s") if why else gettext_noop("job %(job)s waits for its time to be sent")
        )
        return JobDecision(job_id, Verdict.BUSY, Said(form, job=str(job_id), why=why))
    transaction.on_commit(lambda: dispatcher.notify_vendors(gone.vendors))
    said = Said(gettext_noop("job %(job)s dispatched"), job=str(job_id))
    return _record_actor_decision(JobDecision(job_id, Verdict.DONE, said, job.size), by, reason)


def _held_by_quota(job_id: int) -> str:
    return admission.tell_held([job_id]).get(job_id, "")


def settle_doubts(
    message_ids: Iterable[int], decision: str, reason: str, by: str, user_id: int | None = None
) -> resolve.Resolved:
    """Settle doubts as doubts.resolve.resolve does, and dispatch jobs that send again in the same transaction."""
    ids = list(message_ids)
    with transaction.atomic():
        resolved = resolve.resolve_doubts(ids, decision, reason, by)
        said = Said(gettext_noop("settled as %(state)s"), state=Said(Resolution.Decision(decision).label))
        settled = [(one, said) for one in ids]
        history.record_changes(Actor(by, user_id), Message, settled, reason)
        if resolved.ready:
            _send_on(resolved.ready)
        if decision == Resolution.Decision.SAME:
            transaction.on_commit(reconcile_soon)
    return resolved


def settle_jobs(
    job_ids: Iterable[int], decision: str, by: Actor, reason: str, seen: int | None = None
) -> list[JobDecision]:
    """Settle doubts as doubts.resolve.resolve_job does, and dispatch jobs that send again in the same transaction."""
    return [_settle_doubts_of_job(job_id, decision, by, reason, seen) for job_id in dict.fromkeys(job_ids)]


@transaction.atomic
def _settle_doubts_of_job(job_id: int, decision: str, by: Actor, reason: str, seen: int | None) -> JobDecision:
    answer = resolve.resolve_job(job_id, decision, reason, by.name, seen)
    if answer.ready:
        _send_on(answer.ready)
    if decision == Resolution.Decision.SAME:
        transaction.on_commit(reconcile_soon)
    return _record_actor_decision(answer, by, reason)


def ask_again(message_ids: Iterable[int]) -> int:
    """Have the vendors asked about these doubts now. Returns how many are in doubt."""
    asked = resolve.ask_again(message_ids)
    transaction.on_commit(reconcile_soon)
    return asked


def settle_causes(asked: Iterable[tuple[Cause, str | None]], decision: str, reason: str, by: Actor) -> resolve.Resolved:
    """Settle all messages of these causes as `settle_doubts` does, all or none.

    asked: each cause with the version shown (causes.version_of_messages); None: in its current state. Raises
    CannotResolve if one has changed since, if there is nothing to settle, or if there are too many messages.
    """
    ids: set[int] = set()
    with transaction.atomic():
        asked = list(asked)
        around = {pk for cause, _ in asked for pk in causes.messages_of(cause).values_list("pk", flat=True)}
        lifecycle.hold_around(around)  # from here on the messages compared below do not change
        for cause, seen in asked:
            found, version = causes.version_of_messages(causes.messages_of(cause))
            if seen not in (None, version):
                raise CannotResolve(
                    Said(
                        gettext_noop("of “%(cause)s” other messages are in doubt than were shown: look again"),
                        cause=cause.key,
                    )
                )
            ids.update(found)
        if not ids:
            raise CannotResolve(Said(gettext_noop("none of these is in doubt any more")))
        if len(ids) > AT_ONCE:
            many = gettext_noop("%(count)s messages are too many for one decision: choose at most %(most)s")
            raise CannotResolve(Said(many, count=len(ids), most=AT_ONCE))
        return settle_doubts(ids, decision, reason, by.name, by.id)


def ask_again_about(asked: Iterable[Cause]) -> int:
    """Call `ask_again` for all messages of these causes."""
    return ask_again({pk for cause in asked for pk in causes.messages_of(cause).values_list("pk", flat=True)})


def _record_actor_decision(answer: JobDecision, by: Actor | str | None, reason: str) -> JobDecision:
    """Record an Actor's decision in its transaction, and return it."""
    if isinstance(by, Actor) and answer.verdict == Verdict.DONE:
        history.record_changes(by, Job, [(answer.job_id, answer.message)], reason)
    return answer


def _send_on(job_ids: Iterable[int]) -> None:
    jobs = list(job_ids)
    if len(jobs) > 1:
        admission.take_turns(jobs)
    dispatcher.dispatch_ready(jobs)
    vendors = list(Job.objects.filter(pk__in=jobs).values_list("vendor_id", flat=True).distinct())
    transaction.on_commit(lambda: dispatcher.notify_vendors(vendors))
