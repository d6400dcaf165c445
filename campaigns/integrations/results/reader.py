"""The result of a session, from its result server or else from the rows (document 002, 9).

The rows are the truth: a stored result is used only if the job's counters have not changed since.
"""

import logging
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q
from django.utils import timezone

from campaigns.doors import labels, public_ids
from campaigns.engine import progress
from campaigns.engine.lifecycle import MOVES
from campaigns.engine.pausing import complaints
from campaigns.engine.progress import STILL, Progress
from campaigns.engine.routes import whose
from campaigns.integrations.results import writer as result_store
from campaigns.models import Job, Message, MessageEvent, ReportKind, Session, Suppression
from campaigns.models.message_events import BOUNCES
from campaigns.models.states import S
from campaigns.senders import entitlements
from campaigns.suppression.refused import reason_of
from vendors import alarms, deferrals, ownership, shut
from vendors.adapters.letter_faults import PART_SENTENCES, part_of_refusal
from vendors.models import Credential, Vendor

log = logging.getLogger(__name__)

# Reasons for failures with a code of our own, not the vendor's.
REASONS = {"expired": "it was not sent before its expiry", "template": "its template could not be filled"}
TO_CALL = (S.RENDERED, S.READY, S.DISPATCHED, S.ENQUEUED, S.SENDING, S.RECOVERING, S.P_QUEUED, S.P_ASSIGNING)
COUNTERS = ("accepted", "refused", "in_doubt", "expired", "suppressed", "delivered", "bounced")
UNREAD = ("answer", "fingerprint", "job__campaign__approval__frozen", "job__credential__secret")  # of a session
MOST_RECEIVERS = 20
WHY_SUPPRESSED = dict(Suppression.Reason.choices)


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session with the state of its job. held: the reason to wait for a person; empty: none."""

    session: Session
    job: Job
    sums: Progress
    held: str

    @property
    def status(self) -> str:
        waits = self.job.status == "READY" and self.job.not_before is not None
        return "scheduled" if waits else machine_word(labels.label_of_sum(self.sums))

    @property
    def continues_at(self) -> datetime | None:
        """The time at which the session continues, or None. Set if its whole rest waits for a time.

        The end of quiet hours is an example.
        """
        if self.is_finished or self.job.paused_at or self.sums.paused or self.held:
            return None
        now, jobs = timezone.now(), Job.objects.filter(Q(pk=self.job.pk) | Q(parent=self.job.pk), status__in=TO_CALL)
        times = [at if at and at > now else None for at in jobs.values_list("not_before", flat=True)]
        return None if None in times else min((at for at in times if at), default=None)

    @property
    def is_finished(self) -> bool:
        """Whether all calls are over, unless somebody retries."""
        return self.job.is_done

    @property
    def paused(self) -> str | None:
        """The reason why nothing is called until somebody resumes it, its vendor or its credential."""
        if self.is_finished:
            return None
        return (
            self.job.campaign.why_paused if self.job.paused_at else _shut_reason(self.job) if self.sums.paused else None
        )

    @property
    def paused_providers(self) -> list[dict[str, Any]]:
        """The providers to which its mail waits for an operator, after too many complaints."""
        if self.is_finished or not complaints.may_hold(self.job.vendor, self.job.campaign):
            return []
        return [
            {
                "provider": one.receiver,
                "since": one.paused_at,
                "complaints": one.complaints,
                "accepted": one.accepted,
                "limit": one.limit,
            }
            for one in complaints.lasting_pauses([self.job.sponsor_id])
        ]

    @property
    def waiting_receivers(self) -> list[dict[str, Any]]:
        """The receiving domains that put off its mail, the longest wait first, up to MOST_RECEIVERS."""
        if self.is_finished or self.job.vendor.channel != Vendor.Channel.EMAIL:
            return []
        logins = {self.job.credential_id}
        if self.job.campaign.routed:
            logins |= set(Job.objects.filter(parent=self.job.pk).values_list("credential", flat=True).distinct())
        return [
            {"receiver": one.receiver, "since": one.since, "until": one.until, "refuses": one.refused}
            for one in deferrals.shown_waits(logins, self._is_owner_of, MOST_RECEIVERS)
        ]

    def _is_owner_of(self, vendor: Vendor) -> bool:
        """Whether its sponsor may see all of this vendor."""
        owner: Any = vendor
        return owner.owner_id == self.job.sponsor_id or ownership.are_alone()

    @property
    def approval(self) -> dict[str, Any] | None:
        """For a session that needs approval: its state, who decided, when, and their remark."""
        row: Any = getattr(self.job.campaign, "approval", None)
        facts = row and {"by": row.decided_by, "decided_at": row.decided_at, "remark": row.remark or None}
        return facts and {"state": row.verdict or "waiting", **facts}

    @property
    def route(self) -> str | None:
        """The name of its route."""
        return self.job.campaign.route.name if self.job.campaign.route else None

    @property
    def is_stopped(self) -> bool:
        """Whether new calls are excluded; calls in flight may still be answered."""
        return _is_job_stopped(self.job)


def _shut_reason(job: Job) -> str | None:
    """Return the reason why a credential needed by the rest of the job, or by one of its parts, is shut, or None.

    The full text is returned only if its vendor is the sponsor's own, or if there is only one sponsor.
    """
    left = Job.objects.filter(Q(pk=job.pk) & ~Q(status=S.P_ASSIGNED) | Q(parent=job.pk)).exclude(status__in=STILL)
    over = Credential.objects.filter(pk__in=left.values("credential")).annotate(
        shut=shut.OF_LOGINS, brief=shut.BRIEF_OF_LOGINS
    )
    found = over.exclude(shut=None).order_by("pk").values_list("shut", "brief", "vendor__owner").first()
    if found is None:
        return None
    why, brief, owner = found
    reason: str | None = why if owner == job.sponsor_id or ownership.are_alone() else brief
    return reason


def _is_job_stopped(job: Job) -> bool:
    return job.status in STILL


def machine_word(word: str) -> str:
    """Return a label as the API writes it: Needs attention -> needs_attention."""
    return word.lower().replace(" ", "_")


def find_session_view(session_id: UUID, sponsor_id: int, test: bool) -> SessionView | None:
    """Return the session of that sponsor and mode, or None."""
    mine = Session.objects.of_sponsors([sponsor_id]).filter(pk=session_id, test=test)
    session = (
        mine.select_related("job__vendor", "job__credential", "job__campaign__route", "job__campaign__approval")
        .defer(*UNREAD)
        .first()
    )
    if session is None:
        return None
    job = session.job
    held = entitlements.find_held_reason([job.pk]) if job.paused_at or job.status in MOVES["dispatch"].sources else ""
    if job.status == S.READY and not held:
        held = entitlements.held_reasons([job.pk]).get(job.pk, "")
    return SessionView(session, job, progress.progress_of_jobs([job])[job.pk], held.removeprefix("held: "))


def count_events(look: SessionView) -> dict[str, int]:
    """Return how many of its messages bounced, by kind of bounce, and how many drew a complaint.

    A later delivery does not remove a bounce, so these may exceed the number of *bounced* messages.
    """
    kinds = (*BOUNCES, MessageEvent.Kind.COMPLAINT)
    of = MessageEvent.objects.filter(campaign=look.job.campaign_id, kind__in=kinds).order_by()
    found = dict(of.values_list("kind").annotate(Count("message", distinct=True)))
    return {kind.value: found.get(kind.value, 0) for kind in kinds}


def session_moves(look: SessionView) -> list[dict[str, Any]]:
    """Return the moves to other vendors of its route."""
    return [asdict(one) for one in whose.list_moves(look.job.campaign_id)] if look.job.campaign.routed else []


def has_changed_since(look: SessionView) -> bool:
    """Tell if the job has moved, ended or changed its counts since; for long polls."""
    names = ("status", "finished_at", "paused_at", *COUNTERS)
    now = Job.objects.filter(pk=look.job.pk).values_list(*names).first()
    return now != tuple(getattr(look.job, name) for name in names)


def session_messages(look: SessionView) -> list[dict[str, Any]]:
    """Return all messages of a session, in order, as the API shows them."""
    return (_stored_messages(look) if look.is_finished else None) or messages_from_rows(look.session, look.job)


def find_session_message(message_id: int, sponsor_id: int, test: bool) -> dict[str, Any] | None:
    """Return one message of a session of that sponsor and mode, from the rows, or None."""
    row = Message.objects.filter(pk=message_id).defer("params", "recipient").first()
    mine = Session.objects.of_sponsors([sponsor_id]).filter(test=test).select_related("job")
    session = mine.filter(job__campaign=row.campaign_id).first() if row else None
    if row is None or session is None:
        return None
    job = session.job
    name = session.references[row.pk - job.first_message] if session.references else None
    called = progress.messages_in_flight([job.pk])
    row.refresh_from_db()  # after the claims, so that an end in the meantime counts
    return {"session_id": session.name, **message_facts(row, name, called, stopped=_is_job_stopped(job))}


def result_tag(job: Job) -> list[Any]:
    """Return the counters that a result is made from; if they change later, the result is stale."""
    return [_iso_or_none(job.finished_at), *(getattr(job, name) for name in COUNTERS)]


def _stored_messages(look: SessionView) -> list[dict[str, Any]] | None:
    if look.session.shard is None:
        return None
    try:
        result = result_store.get_result(look.session.shard, look.session.pk)
    except result_store.ResultStoreUnreachable as error:
        alarms.RESULT_SERVER_AWAY.log(log, look.session.shard, error)
        return None
    return result["messages"] if result and result["tag"] == result_tag(look.job) else None


def messages_from_rows(session: Session, job: Job) -> list[dict[str, Any]]:
    """Return all messages of a session from the ground truth."""
    called = progress.messages_in_flight([job.pk])
    rows = Message.objects.filter(id__gte=job.first_message, id__lt=job.end).order_by("id").defer("params", "recipient")
    stopped = _is_job_stopped(job)
    names: Sequence[str | None] = session.references or [None] * job.size
    pairs = zip(rows, names, strict=True)
    return [message_facts(row, name, called, stopped=stopped) for row, name in pairs]


def message_facts(row: Message, reference: str | None, called: Container[int], *, stopped: bool) -> dict[str, Any]:
    """Return a message as the API shows it. called: the messages in a call."""
    return {
        "id": public_ids.id_of_number("msg", row.pk),
        "reference": reference,
        "status": machine_word(labels.label_of_message(row, in_flight=row.pk in called, stopped=stopped)),
        "reason": _reported_fact(row) or _reason_fact(row),
        "cause": row.cause,
        "vendor_message_id": row.message_id,
        "sent_at": _iso_or_none(row.sent_at),
        "reported_at": _iso_or_none(row.report_at),
        "attempt": row.resend_no + 1,
    }


def _reported_fact(message: Message) -> dict[str, str | None] | None:
    return {"code": "bounced", "text": message.report_note} if message.report == ReportKind.BOUNCED else None


def _reason_fact(row: Message) -> dict[str, str | None] | None:
    if row.error_code == "suppressed":
        why = WHY_SUPPRESSED.get(row.error_sub_type or "", "By hand")
        return {"code": "suppressed", "text": f"nobody may write to this recipient: {why}"}
    if row.error_code is not None:
        part = part_of_refusal(row.error_code, row.error_sub_type)
        text = REASONS.get(row.error_code, row.error_sub_type)
        if part and text:
            text = f"{PART_SENTENCES[part].rstrip('.')}: {text.removeprefix(f'{part}: ')}"
        if why := reason_of(row.error_code, row.error_sub_type):
            text = f"{text or row.error_code}; nobody may write to this recipient any more: {WHY_SUPPRESSED[why]}"
        return {"code": row.error_code, "text": text}
    return {"code": "in_doubt", "text": row.error_sub_type} if row.in_doubt_at else None


def _iso_or_none(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
