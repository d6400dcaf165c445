"""What a vendor reports later: delivered or bounced, stored for any number of letters in a handful of statements.

A receipt is also evidence that the letter had been accepted (promise P3): it settles a doubt, beats a refusal, and
keeps from being called what was to be sent again. Doubled, late, reordered or before the answer of the call, receipts
come to the same: of one sending the latest counts, by the vendor's own clock. What one sending of a letter delivered,
a bounce of another one does not take back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from campaigns import ground_truth, lifecycle
from campaigns.models import ReportKind


@dataclass(frozen=True, slots=True)
class Report:
    """One receipt. id, uuid, resend_no: of its reference; evidence: what is stored as the acceptance, if it is one."""

    id: int
    uuid: UUID
    resend_no: int
    kind: ReportKind
    at: datetime
    evidence: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ReportChange:
    """A message of which something else is reported now than before. session: of the program that sent it, if any."""

    id: int
    attempt: int
    kind: ReportKind
    at: datetime
    note: str | None
    vendor_message_id: str
    session: UUID | None


KNOWN = """
SELECT m.id, m.uuid, m.resend_no FROM campaigns_message m
JOIN campaigns_campaign c ON c.id = m.campaign_id JOIN vendors_credential v ON v.id = c.credential_id
WHERE m.id = ANY(%(ids)s) AND v.vendor_id = %(vendor)s
"""
TOLD = """
WITH told AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(nos)s::int[], %(kinds)s::text[], %(ats)s::timestamptz[],
        %(evidence)s::text[], %(notes)s::text[]) AS a(id, no, kind, at, evidence, note)
)
"""
# A bounce of a letter that was refused, or of an earlier sending of it, tells nothing new.
EVIDENCE = f"""{TOLD}
SELECT a.id, a.evidence FROM told a JOIN campaigns_message m USING (id) LEFT JOIN campaigns_opsmessage o USING (id)
WHERE m.message_id IS NULL AND o.message_id IS NULL AND (a.kind = 'delivered'
    OR a.no = m.resend_no AND coalesce(m.error_code, o.error_code) IS NULL)
"""
# What only ops knows to be accepted is written down here as well; finalising passes over it then.
REPORT = f"""{TOLD}, before AS (
    SELECT a.*, m.receipt AS was, o.message_id, o.delivered_at, o.sent_at
    FROM told a JOIN campaigns_message m USING (id) LEFT JOIN campaigns_opsmessage o USING (id)
), changed AS (
    UPDATE campaigns_message m SET receipt = a.kind, receipt_at = a.at, receipt_no = a.no, receipt_note = a.note,
        message_id = coalesce(m.message_id, a.message_id), delivered_at = coalesce(m.delivered_at, a.delivered_at),
        sent_at = coalesce(m.sent_at, a.sent_at)
    FROM before a WHERE m.id = a.id AND coalesce(m.message_id, a.message_id) IS NOT NULL AND CASE
        WHEN m.receipt_no = a.no
            THEN a.at > m.receipt_at OR a.at = m.receipt_at AND m.receipt = 'delivered' AND a.kind = 'bounced'
        WHEN a.kind = 'delivered' THEN m.receipt IS NULL OR m.receipt = 'bounced' AND a.no < m.receipt_no
        ELSE m.receipt IS NULL AND a.no = m.resend_no END
    RETURNING m.id, m.campaign_id, m.message_id, a.no, a.kind, a.at, a.note, a.was
), counted AS (
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
SELECT c.id, c.no + 1, c.kind, c.at, c.note, c.message_id, s.id, c.was IS NOT NULL
FROM changed c LEFT JOIN campaigns_job top ON top.campaign_id = c.campaign_id AND top.parent_id IS NULL
LEFT JOIN campaigns_session s ON s.job_id = top.id
WHERE c.kind IS DISTINCT FROM c.was ORDER BY c.id
"""
# A result that is kept on its server shows by its counts that it is old; where two receipts changed sides, it does not.
REVISED = "UPDATE campaigns_session SET shard = NULL WHERE id = ANY(%(ids)s)"


def store(vendor_id: int, told: Sequence[Report]) -> tuple[list[ReportChange], list[Report]]:
    """What is news, and what names no letter that this vendor was ever called for. In the caller's transaction.

    At most one receipt for each message; of several the caller stores one after the other.
    """
    ids = [one.id for one in told]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(KNOWN, {"ids": ids, "vendor": vendor_id})
        known = {id: (uuid, resend_no) for id, uuid, resend_no in cursor.fetchall()}
        ours = [one for one in told if _names(known.get(one.id), one)]
        strange = [one for one in told if not _names(known.get(one.id), one)]
        if not ours:
            return [], strange
        lifecycle.hold_around(one.id for one in ours)
        columns = _columns(ours)
        cursor.execute(EVIDENCE, columns)
        accepted = cursor.fetchall()
        if accepted:
            found, evidence = zip(*accepted, strict=True)
            cursor.execute(
                ground_truth.ACCEPT, {"ids": list(found), "codes": list(evidence), "notes": [None] * len(found)}
            )
        cursor.execute(REPORT, columns)
        rows = cursor.fetchall()
        revised = [row[6] for row in rows if row[6] and row[7]]
        if revised:
            cursor.execute(REVISED, {"ids": revised})
    return [ReportChange(id, no, ReportKind(kind), *rest) for id, no, kind, *rest, _ in rows], strange


def _names(row: tuple[UUID, int] | None, told: Report) -> bool:
    """Is this the message that the reference names, and was it sent so often?"""
    return row is not None and row[0] == told.uuid and told.resend_no <= row[1]


def _columns(told: Sequence[Report]) -> dict[str, list[object]]:
    return {
        "ids": [one.id for one in told],
        "nos": [one.resend_no for one in told],
        "kinds": [one.kind.value for one in told],
        "ats": [one.at for one in told],
        "evidence": [one.evidence for one in told],
        "notes": [one.note for one in told],
    }
