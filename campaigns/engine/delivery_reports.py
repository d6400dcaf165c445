"""Stores delivery reports of vendors and returned mails in few statements, with all their consequences.

A report is also evidence that the vendor accepted the letter (promise P3): it settles a doubt, overrules a refusal, and
keeps a message from being sent again. The result is the same whether reports are repeated, late, out of order, or
earlier than the call's answer: the latest report of a sending counts, by the vendor's clock, or a bounce if the vendor
gives no time. A bounce of one sending does not undo the delivery of another.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from campaigns.engine import day_counts, ground_truth, lifecycle, message_events, ports, reported_waits, vendor_ids
from campaigns.engine.message_events import NewEvent
from campaigns.engine.ports import Complaint, ReportChange
from campaigns.engine.reported import Report, batch_reports, drop_contradicted, read_report
from campaigns.engine.routes import whose
from campaigns.engine.routes.whose import ReportingAccount
from campaigns.engine.vendor_ids import DueReport
from campaigns.models import MessageEvent, ReportKind
from vendors import alarms, histograms
from vendors.adapters.reports import Reported
from vendors.not_now import is_not_now

log = logging.getLogger(__name__)

MOST = 10_000  # events in one request
MOST_NAMED = 10  # receivers that begin to wait because of one request and have a line of the log each


@dataclass(frozen=True, slots=True)
class ReportsStored:
    """The result of storing the reports of one request.

    changed: number of messages. unknown: references that name no letter of this vendor. calls: ids of webhook calls.
    events: new bounces and complaints. early: refusals, without effect, of letters whose calls are not answered yet.
    """

    changed: int
    unknown: tuple[str, ...]
    calls: tuple[int, ...]
    events: int = 0
    early: int = 0


def store_reports(
    vendor_id: int, reported: Sequence[Reported], source: str = "vendor", credentials: Sequence[int] = ()
) -> ReportsStored:
    """Store all reports in one transaction; repeated ones change nothing. Raises database errors.

    source: who reports. credentials: whose letters the reports may name; empty: all of the vendor's. Before the
    transaction, recipients of hard bounces and complaints are suppressed, and those who unsubscribed.
    """
    return store_requests_together(vendor_id, [reported], source, credentials)[0]


def store_requests_together(
    vendor_id: int, requests: Sequence[Sequence[Reported]], source: str, credentials: Sequence[int] = ()
) -> list[ReportsStored]:
    """Store the reports of several requests. Returns a result for each; calls, events and early are those of all."""
    now = timezone.now()
    of = ReportingAccount(vendor_id, tuple(credentials))
    named = vendor_ids.name_letters(of, requests)
    said = [[(one.reference or one.vendor_id, read_report(one, now)) for one in request] for request in named]
    known = drop_contradicted([report for request in said for _, report in request if report])
    heard = message_events.new_events(of, [report.event for report in known if report.event])
    ports.suppressions.suppress_reported(heard)
    changes: list[ReportChange] = []
    strange: set[tuple[UUID, int]] = set()
    early = 0
    with transaction.atomic():
        lifecycle.wait_at_most()  # the reporter tries again
        accepted: set[int] = set()
        ours = [_reports_that_count(of, batch, strange, accepted) for batch in batch_reports(known)]
        # For all batches together: jobs are locked in the order of their ids.
        if any(ours):
            lifecycle.hold_around({one.id for batch in ours for one in batch})
        for batch in ours:
            changed_now, early_now = _store_locked(vendor_id, batch, accepted)
            changes += changed_now
            early += early_now
        stored = message_events.append_events(heard, source)
        waiting = reported_waits.put_off_reported(heard)
        calls = (*ports.events.reports_changed(changes), *ports.events.complaints_came(_list_complaints(heard)))
        nameless = [one for request in named for one in request if one.vendor_id and not one.reference]
        kept = (
            {one.vendor_id for one in nameless}
            if nameless and vendor_ids.keep_unknown_reports(of, nameless, source)
            else set()
        )
    histograms.store_soon(settings.REDIS_URL)
    _log_waits(vendor_id, waiting)
    changed = {change.id for change in changes}
    return [
        ReportsStored(
            len({report.id for _, report in request if report} & changed),
            tuple(
                dict.fromkeys(
                    name
                    for name, one in request
                    if (name not in kept if one is None else (one.uuid, one.resend_no) in strange)
                )
            ),
            calls,
            stored,
            early,
        )
        for request in said
    ]


def take_waiting() -> int:
    """Store waiting reports whose letters are known by now. Returns their number. Raises database errors.

    Reports still without a letter after a week are given up and logged.
    """
    taken = 0
    for group in vendor_ids.due_reports():
        try:
            taken += _take_due(group)
        except Exception as error:  # one bad report must not stop the others
            if isinstance(error, OperationalError) or is_not_now(error):
                raise  # a database error: the rest is tried again
            for one in group:
                try:
                    taken += _take_due([one])
                except Exception:
                    alarms.WAITING_REPORT_NOT_TAKEN.log(log, one.source, one.id, exc_info=True)
    vendor_ids.forget_oldest_ids()
    return taken


def _log_waits(vendor_id: int, waiting: Sequence[tuple[str, str]]) -> None:
    for receiver, answer in waiting[:MOST_NAMED]:
        alarms.RECEIVER_WAITS.log(log, vendor_id, receiver, answer)
    if (more := len(waiting) - MOST_NAMED) > 0:
        alarms.RECEIVERS_WAIT.log(log, vendor_id, more)


def _list_complaints(heard: Iterable[NewEvent]) -> list[Complaint]:
    return [
        Complaint(one.reported.id, one.reported.resend_no + 1, one.campaign_id, one.reported.at, one.reported.note)
        for one in heard
        if one.reported.kind == MessageEvent.Kind.COMPLAINT
    ]


def _take_due(group: Sequence[DueReport]) -> int:
    """Store the waiting reports of one account. Returns their number."""
    source, known = group[0].source, [one.read_stored_report() for one in group if one.is_known]
    if known:
        store_reports(group[0].vendor_id, known, source, group[0].credentials)
    vendor_ids.delete_due_reports(
        [one.id for one in group]
    )  # if the process dies before, they are stored again without effect
    if given_up := len(group) - len(known):
        alarms.REPORTS_UNKNOWN.log(log, given_up, source)
    return len(known)


KNOWN = f"""
SELECT m.id, m.uuid, m.resend_no, m.message_id IS NOT NULL FROM campaigns_message m
JOIN campaigns_campaign c ON c.id = m.campaign_id WHERE m.id = ANY(%(ids)s) AND {whose.REPORTS}
"""
REPORTED = """
WITH reported AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(nos)s::int[], %(kinds)s::text[], %(ats)s::timestamptz[],
        %(evidence)s::text[], %(notes)s::text[], %(causes)s::text[], %(timed)s::bool[])
        AS a(id, no, kind, at, evidence, note, cause, timed)
)
"""
# A bounce of a refused letter or of an earlier sending is not evidence.
EVIDENCE = f"""{REPORTED}
SELECT a.id, a.evidence, a.no FROM reported a JOIN campaigns_message m USING (id)
WHERE m.message_id IS NULL AND (a.kind IS DISTINCT FROM 'bounced' OR a.no = m.resend_no AND m.error_code IS NULL)
"""
REPORT = f"""{REPORTED}, before AS (
    SELECT a.*, m.report AS was, m.report_at AS was_at FROM reported a JOIN campaigns_message m USING (id)
), changed AS (
    UPDATE campaigns_message m SET report = a.kind, report_at = a.at, report_no = a.no, report_note = a.note,
        cause = CASE WHEN a.kind = 'bounced' THEN a.cause END
    FROM before a WHERE m.id = a.id AND a.kind IS NOT NULL AND m.message_id IS NOT NULL AND CASE
        WHEN m.report_no = a.no
            THEN a.timed AND a.at > m.report_at
                OR (NOT a.timed OR a.at = m.report_at) AND m.report = 'delivered' AND a.kind = 'bounced'
        WHEN a.kind = 'delivered' THEN m.report IS NULL OR m.report = 'bounced' AND a.no < m.report_no
        ELSE m.report IS NULL AND (a.no = m.resend_no OR a.evidence = m.message_id) END
    RETURNING m.id, m.campaign_id, m.message_id, a.no, a.kind, a.at, a.note, a.was, a.was_at, m.sent_at
), days AS ({day_counts.OF_REPORTS}), counted AS (
    UPDATE campaigns_job j SET delivered = greatest(0, j.delivered + s.delivered),
        bounced = greatest(0, j.bounced + s.bounced)
    FROM (
        SELECT o.id,
            count(*) FILTER (WHERE kind = 'delivered') - count(*) FILTER (WHERE was = 'delivered') AS delivered,
            count(*) FILTER (WHERE kind = 'bounced') - count(*) FILTER (WHERE was = 'bounced') AS bounced
        FROM changed c JOIN campaigns_job o ON o.campaign_id = c.campaign_id
            AND c.id >= o.first_message AND c.id < o.first_message + o.size
        WHERE c.kind IS DISTINCT FROM c.was GROUP BY o.id
    ) s WHERE j.id = s.id
)
SELECT c.id, c.no + 1, c.kind, c.at, c.note, c.message_id, s.id, c.was IS NOT NULL,
    extract(epoch FROM clock_timestamp() - c.sent_at)::float8
FROM changed c LEFT JOIN campaigns_job top ON top.campaign_id = c.campaign_id AND top.parent_id IS NULL
LEFT JOIN campaigns_session s ON s.job_id = top.id
WHERE c.kind IS DISTINCT FROM c.was ORDER BY c.id
"""
# Counts reveal a stale stored result unless two reports swapped, so the result is not used again.
REVISED = "UPDATE campaigns_session SET shard = NULL WHERE id = ANY(%(ids)s)"


def _reports_that_count(
    of: ReportingAccount, reports: Sequence[Report], strange: set[tuple[UUID, int]], accepted: set[int]
) -> list[Report]:
    """Return the reports that may change something. Adds those that name no letter of the account to `strange`.

    Adds accepted messages, which never change, to `accepted`. Reports that are only evidence have nothing to add to
    them, so neither the senders of their jobs nor anybody else has to wait.
    """
    with connection.cursor() as cursor:
        cursor.execute(KNOWN, {"ids": [one.id for one in reports], **of.params})
        known = {id: facts for id, *facts in cursor.fetchall()}
    ours = [one for one in reports if _names_this_sending(known.get(one.id), one)]
    strange.update((one.uuid, one.resend_no) for one in reports if not _names_this_sending(known.get(one.id), one))
    accepted.update(one.id for one in ours if known[one.id][2])
    return [one for one in ours if one.kind or not known[one.id][2]]


def _store_locked(
    vendor_id: int, reports: Sequence[Report], accepted: Collection[int]
) -> tuple[list[ReportChange], int]:
    """Store reports in the caller's transaction, after it has locked their jobs. Returns changes and early refusals.

    Takes at most one report for each message; the caller passes several in turn. accepted: messages that need no
    evidence.
    """
    if not reports:
        return [], 0
    early = ground_truth.refuse_reported(
        [(one.id, one.resend_no, one.refusal, one.note, one.cause) for one in reports if one.refusal]
    )
    with connection.cursor() as cursor:
        if doubted := [one for one in reports if not one.refusal and one.id not in accepted]:
            cursor.execute(EVIDENCE, _report_columns(doubted))
            if proved := cursor.fetchall():
                found, evidence, nos = (list(column) for column in zip(*proved, strict=True))
                answers = {"ids": found, "codes": evidence, "notes": [None] * len(found), "nos": nos}
                cursor.execute(ground_truth.ACCEPT, answers)
        cursor.execute(REPORT, _report_columns(reports))
        rows = cursor.fetchall()
        revised = [row[6] for row in rows if row[6] and row[7]]
        if revised:
            cursor.execute(REVISED, {"ids": revised})
    for *_, revises, lag in rows:
        if not revises and lag is not None:
            histograms.counts.observe_value(histograms.REPORT_LAG, vendor_id, max(0.0, lag))
    return [ReportChange(id, no, ReportKind(kind), *rest) for id, no, kind, *rest, _, _ in rows], early


def _names_this_sending(row: Sequence[Any] | None, report: Report) -> bool:
    """Return True if the reference names this message and one of its sendings."""
    return row is not None and row[0] == report.uuid and report.resend_no <= row[1]


def _report_columns(reports: Sequence[Report]) -> dict[str, list[object]]:
    return {
        "ids": [one.id for one in reports],
        "nos": [one.resend_no for one in reports],
        "kinds": [one.kind.value if one.kind else None for one in reports],
        "ats": [one.at for one in reports],
        "evidence": [one.evidence for one in reports],
        "notes": [one.note for one in reports],
        "causes": [one.cause for one in reports],
        "timed": [one.timed for one in reports],
    }
