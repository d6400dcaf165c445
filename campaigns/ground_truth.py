"""What is learned of a message after its job was finalised goes straight into the ground truth: doubts are settled."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from campaigns.lifecycle import holding

GIVE_UP = 86_400.0  # seconds after its call from which only a person is asked about a doubt

# The counters of the leaf and of its parent follow (a parent that is not finished yet sums up anew).
COUNTED = """
UPDATE campaigns_job j SET accepted = j.accepted + s.accepted, refused = greatest(0, j.refused + s.refused),
    in_doubt = greatest(0, j.in_doubt - s.settled), expired = greatest(0, j.expired - s.expired)
FROM (
    SELECT o.id, count(*) FILTER (WHERE told.message_id IS NOT NULL) AS accepted,
        count(told.error_code) - count(*) FILTER (WHERE before.error <> 'expired') AS refused,
        count(*) FILTER (WHERE before.doubted) AS settled, count(*) FILTER (WHERE before.error = 'expired') AS expired
    FROM told JOIN before USING (id) JOIN campaigns_job o ON o.campaign_id = told.campaign_id
        AND told.id >= o.first_message AND told.id < o.first_message + o.size
    GROUP BY o.id
) s WHERE j.id = s.id
"""
# Told while the jobs around the messages are held: nobody else changes then what is read of them.
BEFORE = """
WITH answer AS (SELECT * FROM unnest(%(ids)s::bigint[], %(codes)s::text[], %(notes)s::text[]) AS a(id, code, note)),
before AS (
    SELECT m.id, coalesce(m.in_doubt_at, o.in_doubt_at) IS NOT NULL AS doubted,
        coalesce(o.error_code, m.error_code) AS error
    FROM answer JOIN campaigns_message m USING (id) LEFT JOIN campaigns_opsmessage o USING (id)
),
"""
# When a message that waits again was called, nobody knows any more: its sent_at is its delivered_at then, exactly.
ACCEPT = f"""{BEFORE}told AS (
    UPDATE campaigns_message m SET delivered_at = now(), message_id = a.code, in_doubt_at = NULL,
        settle_at = NULL, error_code = NULL, error_sub_type = NULL,
        sent_at = coalesce(m.sent_at, (SELECT o.sent_at FROM campaigns_opsmessage o WHERE o.id = m.id), now()),
        dequeued_at = coalesce(m.dequeued_at, clock_timestamp())
    FROM answer a WHERE m.id = a.id AND m.message_id IS NULL
        AND NOT EXISTS (SELECT FROM campaigns_opsmessage o WHERE o.id = m.id AND o.message_id IS NOT NULL)
    RETURNING m.id, m.campaign_id, m.message_id, m.error_code
), hot AS (  -- it was to be sent again: not any more
    UPDATE campaigns_opsmessage o SET delivered_at = now(), message_id = told.message_id,
        sent_at = coalesce(o.sent_at, now()), in_doubt_at = NULL, error_code = NULL, error_sub_type = NULL
    FROM told WHERE o.id = told.id AND o.message_id IS NULL
) {COUNTED}"""
REFUSE = f"""{BEFORE}told AS (
    UPDATE campaigns_message m SET delivered_at = clock_timestamp(), error_code = a.code, error_sub_type = a.note,
        in_doubt_at = NULL, settle_at = NULL
    FROM answer a WHERE m.id = a.id AND m.in_doubt_at IS NOT NULL
    RETURNING m.id, m.campaign_id, m.message_id, m.error_code
) {COUNTED}"""


async def accept(connection: AsyncConnection[Any], found: Sequence[tuple[int, str]]) -> None:
    """(message, the vendor's id): accepted, whatever was thought of it before (promise P3)."""
    await _tell(connection, ACCEPT, [(id, code, None) for id, code in found])


async def refuse(connection: AsyncConnection[Any], answers: Sequence[tuple[int, str, str]]) -> None:
    """(message, code, sub type) for messages in doubt of which every attempt is now known to be refused."""
    await _tell(connection, REFUSE, answers)


async def _tell(connection: AsyncConnection[Any], statement: str, rows: Sequence[tuple[int, Any, Any]]) -> None:
    ids, codes, notes = (list(column) for column in zip(*rows, strict=True))
    await holding(connection, statement, {"ids": ids, "codes": codes, "notes": notes}, messages=ids)
