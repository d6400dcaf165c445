"""Writes to the ground truth acceptances and refusals that did not come through the message's sender."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from psycopg import AsyncConnection

from campaigns.engine.lifecycle import execute_holding, hold_around
from campaigns.engine.merging import ACCEPTED, SENDING
from campaigns.engine.routes import whose
from campaigns.models import AnswerBatch
from campaigns.models.states import OWN_ENDS, Status
from vendors.outcomes import Refused

AWAITED = timedelta(hours=1)  # a doubt that waits longer for its next question raises no alarm: the vendor will report
GIVE_UP = 86_400.0  # seconds after its call; then only an operator can settle a doubt

# Updates the counters of the leaf and of its parent. An unfinished parent is summed up again at its end.
COUNTED = """
UPDATE campaigns_job j SET accepted = j.accepted + s.accepted, refused = greatest(0, j.refused + s.refused),
    in_doubt = greatest(0, j.in_doubt - s.settled), expired = greatest(0, j.expired - s.expired),
    suppressed = greatest(0, j.suppressed + s.suppressed),
    learned = j.learned + 1
FROM (
    SELECT o.id, count(*) FILTER (WHERE written.message_id IS NOT NULL) AS accepted,
        count(*) FILTER (WHERE written.error_code <> 'suppressed')
            - count(*) FILTER (WHERE before.error <> ALL(ARRAY['expired', 'suppressed'])) AS refused,
        count(*) FILTER (WHERE written.error_code = 'suppressed')
            - count(*) FILTER (WHERE before.error = 'suppressed') AS suppressed,
        count(*) FILTER (WHERE before.doubted) AS settled, count(*) FILTER (WHERE before.error = 'expired') AS expired
    FROM written JOIN before USING (id) JOIN campaigns_job o ON o.campaign_id = written.campaign_id
        AND written.id >= o.first_message AND written.id < o.first_message + o.size
    GROUP BY o.id
) s WHERE j.id = s.id
"""
# Runs while the jobs around the messages are locked, so nothing else changes the values read here.
BEFORE = """
WITH answer AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(codes)s::text[], %(notes)s::text[], %(nos)s::int[])
        AS a(id, code, note, no)
),
before AS (
    SELECT m.id, m.in_doubt_at IS NOT NULL AS doubted, m.error_code AS error
    FROM answer JOIN campaigns_message m USING (id)
),
"""
BEFORE_REFUSAL = BEFORE.replace("%(nos)s::int[]", "%(causes)s::text[]").replace("note, no)", "note, cause)")
# Charges by the day of the call. The leaf gives the sponsor and the credential of the call. If no call of ours is
# known, neither are the units: one for each message.
LEAF = """
    SELECT o.* FROM campaigns_job o WHERE o.campaign_id = {message}.campaign_id
        AND {message}.id >= o.first_message AND {message}.id < o.first_message + o.size
    ORDER BY o.parent_id NULLS LAST LIMIT 1
"""
CHARGED = """
INSERT INTO campaigns_costentry (day, sponsor_id, vendor_id, credential_id, messages, units)
SELECT (w.sent_at AT TIME ZONE 'UTC')::date, j.sponsor_id, j.vendor_id, j.credential_id, count(*),
    sum(coalesce(w.units, 1))
FROM {accepted} w CROSS JOIN LATERAL ({leaf}) j {where} GROUP BY 1, 2, 3, 4
""".replace("{leaf}", LEAF.format(message="w"))
# For a message in a call, the claim has the units. Its answer may never come, and is not needed.
CLAIMED_UNITS = f"""CASE WHEN m.dequeued_at IS NOT NULL THEN m.units ELSE (
    SELECT nullif(u.units, 1) FROM ({LEAF.format(message="m")}) j
        JOIN campaigns_claim c ON c.job_id = j.id AND c.fence = j.fence AND c.units IS NOT NULL,
        unnest(c.messages, c.units) AS u(id, units)
    WHERE u.id = m.id LIMIT 1
) END"""
# Likewise the destination of the call.
CALLED_AT = f"""coalesce(CASE WHEN m.dequeued_at IS NULL THEN (
    SELECT c.destination FROM ({LEAF.format(message="m")}) j
        JOIN campaigns_claim c ON c.job_id = j.id AND c.fence = j.fence AND m.id = ANY(c.messages)
    LIMIT 1
) END, m.destination)"""
# If a message was waiting or in a call, the time of its call is unknown: its sent_at equals its delivered_at.
ACCEPT = f"""{BEFORE}written AS (
    UPDATE campaigns_message m SET delivered_at = now(), message_id = a.code, in_doubt_at = NULL,
        settle_at = NULL, error_code = NULL, error_sub_type = NULL, cause = NULL,
        sent_at = coalesce(m.sent_at, now()), dequeued_at = coalesce(m.dequeued_at, clock_timestamp()),
        destination = {CALLED_AT},
        asked_destination = CASE WHEN m.dequeued_at IS NOT NULL THEN m.asked_destination END,
        units = {CLAIMED_UNITS}
    FROM answer a WHERE m.id = a.id AND m.message_id IS NULL
    RETURNING m.id, m.campaign_id, m.message_id, m.error_code, m.uuid, a.no AS resend_no, m.sent_at, m.units,
        m.destination
), charged AS ({CHARGED.format(accepted="written", where="")}), identified AS (
    INSERT INTO campaigns_vendormessageid (vendor_id, name, message, uuid, resend_no, destination)
    SELECT v.id, w.message_id, w.id, w.uuid, w.resend_no, w.destination
    FROM written w JOIN campaigns_campaign c ON c.id = w.campaign_id
        JOIN campaigns_message m ON m.id = w.id JOIN vendors_credential l ON l.id = {whose.CREDENTIAL}
        JOIN vendors_vendor v ON v.id = l.vendor_id AND v.reports_by_id
) {COUNTED}"""
REFUSE = f"""{BEFORE_REFUSAL}written AS (
    UPDATE campaigns_message m SET delivered_at = clock_timestamp(), error_code = a.code, error_sub_type = a.note,
        cause = a.cause, in_doubt_at = NULL, settle_at = NULL
    FROM answer a WHERE m.id = a.id AND m.in_doubt_at IS NOT NULL
    RETURNING m.id, m.campaign_id, m.message_id, m.error_code
) {COUNTED}"""
SUPPRESS = f"""{BEFORE}written AS (
    UPDATE campaigns_message m SET sent_at = NULL, error_code = 'suppressed', error_sub_type = a.note,
        cause = 'recipient', in_doubt_at = NULL, settle_at = NULL
    FROM answer a WHERE m.id = a.id AND m.in_doubt_at IS NOT NULL AND m.disproved = m.sent_at
    RETURNING m.id, m.campaign_id, m.message_id, m.error_code
) {COUNTED}"""


async def accept_messages(connection: AsyncConnection[Any], found: Sequence[tuple[int, str, int]]) -> None:
    """Store acceptances (message, the vendor's id, resend_no). They overrule any stored result (promise P3)."""
    await _store_truth(connection, ACCEPT, [(id, code, None, no) for id, code, no in found])


LATE = f"""
SELECT a.batch, a.message, a.kind, a.code, a.units, {SENDING}
FROM campaigns_answerbatch b JOIN campaigns_job j ON j.id = b.job_id CROSS JOIN LATERAL (
    SELECT b.id AS batch, b.called_at, u.*
    FROM unnest(b.messages, string_to_array(b.kinds, NULL), b.codes, b.units) AS u(message, kind, code, units)
) a JOIN campaigns_message m ON m.id = ANY(ARRAY[a.message])  -- by the primary key, whatever is estimated
WHERE b.job_id = ANY(%(jobs)s) AND j.status = 'LOGGED'
"""
LATE_UNITS = "UPDATE campaigns_message SET units = %s WHERE id = %s AND message_id IS NULL"


def accept_late(job_ids: Sequence[int]) -> None:
    """Store the acceptances among answers that came after their job was LOGGED.

    The other late answers prove nothing any more and are deleted.
    """
    with connection.cursor() as cursor:
        cursor.execute(LATE, {"jobs": list(job_ids)})
        late = cursor.fetchall()
    found = {message: (code, no) for _, message, kind, code, _, no in late if kind == ACCEPTED}
    dear = [(units, message) for _, message, kind, _, units, _ in late if kind == ACCEPTED and units not in (None, 1)]
    with transaction.atomic(), connection.cursor() as cursor:
        hold_around(found)
        if found:
            cursor.executemany(LATE_UNITS, dear)
            codes, nos = zip(*found.values(), strict=True)
            answers = {"ids": list(found), "codes": list(codes), "notes": [None] * len(found), "nos": list(nos)}
            cursor.execute(ACCEPT, answers)
        AnswerBatch.objects.filter(pk__in={batch for batch, *_ in late}, job__status=Status.LOGGED).delete()


async def refuse_doubted(connection: AsyncConnection[Any], refused: Sequence[tuple[int, Refused]]) -> None:
    """Store refusals of messages in doubt after every attempt at them was refused."""
    ids = [message for message, _ in refused]
    codes, notes, causes = zip(*((one.code, one.sub_type, one.cause.value) for _, one in refused), strict=True)
    answers = {"ids": ids, "codes": list(codes), "notes": list(notes), "causes": list(causes)}
    await execute_holding(connection, REFUSE, answers, messages=ids)


REFUSED = """
SELECT a.id, a.code, a.note, a.cause, m.in_doubt_at IS NOT NULL
FROM unnest(%(ids)s::bigint[], %(nos)s::int[], %(codes)s::text[], %(notes)s::text[], %(causes)s::text[])
        AS a(id, no, code, note, cause)
    JOIN campaigns_message m USING (id)
WHERE a.no = m.resend_no AND m.message_id IS NULL AND m.error_code IS NULL
"""


def refuse_reported(reported: Sequence[tuple[int, int, str, str | None, str | None]]) -> int:
    """Store refusals reported by a vendor (message, resend_no, code, note, cause) for messages in doubt.

    Runs in the caller's transaction, which has locked their jobs. Returns how many of the messages are still
    unanswered. For those nothing is stored, because their call may still be accepted.
    """
    if not reported:
        return 0
    ids, nos, codes, notes, causes = (list(column) for column in zip(*reported, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(REFUSED, {"ids": ids, "nos": nos, "codes": codes, "notes": notes, "causes": causes})
        rows = cursor.fetchall()
        if doubted := [row[:4] for row in rows if row[4]]:
            names = ("ids", "codes", "notes", "causes")
            cursor.execute(REFUSE, dict(zip(names, map(list, zip(*doubted, strict=True)), strict=True)))
    return len(rows) - len(doubted)


def refusal_code(said: str) -> str:
    """Return the stored form of a vendor's refusal code, which never equals one of our own."""
    return f"vendor: {said}" if said in OWN_ENDS else said or "refused"


async def suppress_doubted(connection: AsyncConnection[Any], message_id: int, reason: str) -> None:
    """End a message in doubt as suppressed: a look-up proved that the vendor does not have it."""
    await _store_truth(connection, SUPPRESS, [(message_id, None, reason, None)])


async def _store_truth(
    connection: AsyncConnection[Any], statement: str, rows: Sequence[tuple[int, Any, Any, Any]]
) -> None:
    ids, codes, notes, nos = (list(column) for column in zip(*rows, strict=True))
    await execute_holding(connection, statement, {"ids": ids, "codes": codes, "notes": notes, "nos": nos}, messages=ids)


def charge_settled(ids: Sequence[int]) -> None:
    """Add the charge for messages just settled as sent, once for each message."""
    with connection.cursor() as cursor:
        cursor.execute(CHARGED.format(accepted="campaigns_message", where="WHERE w.id = ANY(%s)"), [list(ids)])
