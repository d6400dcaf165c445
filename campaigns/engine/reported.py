"""Reports in the form in which they are stored, and the choice between several reports of one letter."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from campaigns.engine import ground_truth
from campaigns.engine.message_events import ReportedEvent
from campaigns.models import MessageEvent, ReportKind
from campaigns.models.jobs import read_reference
from vendors.adapters.reports import Reported
from vendors.causes.returned import ReportJudgement, judge_return
from vendors.instants import convert_to_utc

LONGEST = 255  # characters that the columns take
MOST_CODE = 20  # likewise
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # the database knows times that Python cannot read
BOUNCED = {
    "hard": MessageEvent.Kind.HARD_BOUNCE,
    "soft": MessageEvent.Kind.SOFT_BOUNCE,
    "blocked": MessageEvent.Kind.BLOCKED,
}
# For each kind of report: its effect on the message, and the event to append; None: none.
MEANINGS: dict[str, tuple[ReportKind | None, MessageEvent.Kind | None]] = {
    "delivered": (ReportKind.DELIVERED, None),
    "deferred": (None, MessageEvent.Kind.DEFERRED),
    "bounced": (ReportKind.BOUNCED, MessageEvent.Kind.SOFT_BOUNCE),
    "failed": (ReportKind.BOUNCED, MessageEvent.Kind.FAILED),
    "accepted": (None, None),
    "refused": (ReportKind.BOUNCED, MessageEvent.Kind.FAILED),
    "complained": (None, MessageEvent.Kind.COMPLAINT),
    "unsubscribed": (None, MessageEvent.Kind.UNSUBSCRIBED),
    "opened": (None, MessageEvent.Kind.OPENED),
    "clicked": (None, MessageEvent.Kind.CLICKED),
}
JUDGED = ("bounced", "deferred", "failed", "refused")
AHEAD = timedelta(days=1)  # how far a vendor's clock may be ahead for its repeated reports to be recognised


@dataclass(frozen=True, slots=True)
class Report:
    """One report as stored. id, uuid, resend_no: from its reference. evidence: stored as the acceptance, if it is one.

    kind: None if it is only evidence. timed: `at` is by the vendor's clock. event: to append to the message's events,
    or None. refusal: the code with which the vendor refused the letter, or "". cause: an AnswerCause, if it has failed.
    """

    id: int
    uuid: UUID
    resend_no: int
    kind: ReportKind | None
    at: datetime
    evidence: str
    note: str | None = None
    event: ReportedEvent | None = None
    timed: bool = True
    refusal: str = ""
    cause: str | None = None


def read_report(reported: Reported, now: datetime) -> Report | None:
    """Convert a report for storage. None: its reference is not ours. Cuts times in the far future to AHEAD."""
    found = read_reference(reported.reference)
    if found is None:
        return None
    evidence = reported.vendor_id or f"receipt:{reported.reference}"
    kind, happened = MEANINGS[reported.kind]
    at = max(EARLIEST, min(convert_to_utc(reported.at), now + AHEAD))
    report = Report(found.id, found.uuid, found.resend_no, kind, at, _fit_text(evidence), timed=reported.timed)
    judged = _judge_report(reported) if reported.kind in JUDGED else None
    if judged and kind == ReportKind.BOUNCED:
        report = replace(report, cause=judged.cause.value)
    if reported.kind == "refused":
        report = replace(report, refusal=ground_truth.refusal_code(_fit_text(reported.code)))
    if happened is None:
        return report
    event = BOUNCED[judged.bounce] if judged and reported.kind == "bounced" else happened
    note, code = _fit_text(reported.note), _fit_text(reported.code)[:MOST_CODE]
    report = replace(report, event=ReportedEvent(*found, event, min(at, now), code, note, judged))
    return replace(report, note=note) if note and kind else report


def _judge_report(reported: Reported) -> ReportJudgement:
    delayed = reported.kind == "deferred"
    return judge_return(reported.bounce, reported.code, reported.note, cause=reported.cause, delayed=delayed)


def _fit_text(text: str) -> str:
    """Make a text fit its column: an invalid one would fail the whole statement."""
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:LONGEST]


def drop_contradicted(reports: list[Report]) -> list[Report]:
    """Drop the refusal of a letter also reported as accepted: it was accepted and then failed."""
    taken = {(one.uuid, one.resend_no) for one in reports if one.kind != ReportKind.BOUNCED}
    return [replace(one, refusal="") if (one.uuid, one.resend_no) in taken else one for one in reports]


def batch_reports(reports: Iterable[Report]) -> Iterator[list[Report]]:
    """Yield the last report of each sending, in batches with at most one report for each message."""
    last: dict[tuple[UUID, int], Report] = {}
    for one in reports:
        known = last.setdefault((one.uuid, one.resend_no), one)
        if _report_rank(one) > _report_rank(known):
            last[one.uuid, one.resend_no] = one
    left = list(last.values())
    while left:
        batch = {one.id: one for one in reversed(left)}
        yield list(batch.values())
        left = [one for one in left if batch[one.id] is not one]


def _report_rank(one: Report) -> tuple[bool, bool, bool, datetime, bool]:
    """Return a sort key: the largest of a sending's reports counts. Mere evidence never outranks another report."""
    bounced = one.kind == ReportKind.BOUNCED
    return one.kind is not None, bounced and not one.timed, one.timed, one.at, bounced
