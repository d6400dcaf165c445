"""Receipts come in: what a vendor reports of letters that it had accepted, stored together with what programs hear."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from campaigns import delivery_report_queries
from campaigns.delivery_report_queries import Report, ReportChange
from campaigns.models import ReportKind, references
from campaigns.webhooks import events
from vendors.adapters.reports import Reported

LONGEST = 255  # characters that the columns hold
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # the database knows times that Python cannot read
AHEAD = timedelta(days=1)  # a vendor's clock may be wrong by so much, and its receipts come doubled all the same


@dataclass(frozen=True, slots=True)
class Taken:
    """changed: messages of which this was news. unknown: references of no letter of this vendor. calls: of webhooks."""

    changed: int
    unknown: tuple[str, ...]
    calls: tuple[int, ...]


def take(vendor_id: int, reported: Sequence[Reported]) -> Taken:
    """Stores them all, in one transaction; what was stored before changes nothing. Raises django.db's errors."""
    now = timezone.now()
    read = [(one.reference, _read(one, now)) for one in reported]
    unknown = [reference for reference, told in read if told is None]
    changes: list[ReportChange] = []
    with transaction.atomic():
        for batch in _batches(told for _, told in read if told):
            news, strange = delivery_report_queries.store(vendor_id, batch)
            changes += news
            unknown += [f"{one.uuid}-{one.resend_no}" for one in strange]
        calls = events.report(changes)
    return Taken(len({change.id for change in changes}), tuple(dict.fromkeys(unknown)), tuple(calls))


def _read(reported: Reported, now: datetime) -> Report | None:
    """None: this is no reference of ours. What is said of a far future is moved to where clocks can differ."""
    found = references.read(reported.reference)
    if found is None:
        return None
    evidence = reported.vendor_id or f"receipt:{reported.reference}"
    kind = ReportKind(reported.kind)
    at = max(EARLIEST, min(reported.at, now + AHEAD))
    told = Report(found.id, found.uuid, found.resend_no, kind, at, _stored(evidence))
    return replace(told, note=_stored(reported.note)) if reported.note and kind == ReportKind.BOUNCED else told


def _stored(text: str) -> str:
    return text.replace("\0", "\ufffd")[:LONGEST]


def _batches(told: Iterable[Report]) -> Iterator[list[Report]]:
    """Of each sending the last receipt; then so many batches as one message has sendings."""
    last: dict[tuple[UUID, int], Report] = {}
    for one in told:
        known = last.setdefault((one.uuid, one.resend_no), one)
        if (one.at, one.kind == ReportKind.BOUNCED) > (known.at, known.kind == ReportKind.BOUNCED):
            last[one.uuid, one.resend_no] = one
    left = list(last.values())
    while left:
        batch = {one.id: one for one in reversed(left)}
        yield list(batch.values())
        left = [one for one in left if batch[one.id] is not one]
