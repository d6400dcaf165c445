"""Receivers that wait: statements for rows of ReceiverWait.

A receiver that answers about us, or about a rate or quota of ours, is put off on the credential that it answered. Each
wait without an acceptance since is twice as long as the last one, up to the most of its rule
(vendors/receivers/shaping.toml). When a wait is over, the receiver is called slowly until it accepts a message; that
deletes the row. The rows spare a receiver and our reputation there; no promise rests on them, so claims do not lock
them.
"""

from collections.abc import Iterable
from typing import Any

from django.db import connection as django_connection

from vendors.outcomes import RETRY_MAX, TEXT_MAX, NotSent
from vendors.receivers.shaping import shape_wait

SEEN_MOST = 1_000  # rows of a credential that its senders heed
# In a context, for a credential l: each receiver with the end of its wait (Unix seconds); NULL: none waits.
SEEN = f"""(SELECT json_object_agg(w.receiver, extract(epoch FROM w.until)) FROM (
    SELECT receiver, until FROM vendors_receiverwait
    WHERE credential_id = l.id ORDER BY until DESC LIMIT {SEEN_MOST}) w)"""
# In a context, for a job j of a vendor v: the receivers to which its sponsor's bulk mail is paused
# (engine/pausing/complaints.py).
HELD = """(SELECT array_agg(p.receiver)
    FROM campaigns_complaintpause p JOIN campaigns_campaign k ON k.id = j.campaign_id
    WHERE p.sponsor_id = j.sponsor_id AND p.resumed_at IS NULL AND k.size > 1 AND NOT k.transactional
        AND v.channel = 'email' AND NOT v.sandbox)"""
# Many calls are answered alike at the same time: the first answer begins the wait, the others can only extend it.
_OPEN = "w.until <= clock_timestamp()"
_LONGER = "greatest(excluded.seconds, least(%(most)s, 2 * w.seconds))"
PUT_OFF = f"""
INSERT INTO vendors_receiverwait AS w
    (credential_id, receiver, cause, refused, since, until, seconds, answers, answer)
VALUES (%(credential)s, %(receiver)s, %(cause)s, %(refused)s, clock_timestamp(),
    clock_timestamp() + %(wait)s * interval '1 second', %(wait)s, 1, %(answer)s)
ON CONFLICT (credential_id, receiver) DO UPDATE SET cause = excluded.cause, refused = excluded.refused,
    answers = w.answers + 1, answer = excluded.answer,
    seconds = CASE WHEN {_OPEN} THEN {_LONGER} ELSE w.seconds END,
    until = CASE WHEN {_OPEN} THEN clock_timestamp() + ({_LONGER}) * interval '1 second'
        ELSE greatest(w.until, excluded.until) END
RETURNING until, answers = 1
"""
SERVED = """
DELETE FROM vendors_receiverwait
WHERE credential_id = %(credential)s AND receiver = ANY(%(receivers)s) AND until <= clock_timestamp()
"""
FORGET = """
DELETE FROM vendors_receiverwait
WHERE until < clock_timestamp() - greatest(900, 2 * seconds) * interval '1 second'
"""


async def put_off(connection: Any, credential_id: int, receiver: str, answer: NotSent) -> bool:
    """Let a receiver wait, as its answer asks or its rule says. Returns True if it did not wait before."""
    shape = shape_wait(receiver, answer.cause, answer.reason)
    asked = min(answer.retry_after or 0.0, RETRY_MAX)
    params = {
        "credential": credential_id, "receiver": receiver, "cause": answer.cause.value, "refused": answer.pause,
        "wait": max(asked, shape.first), "most": max(asked, shape.most), "answer": _stored(answer.reason),
    }  # fmt: skip
    row = await (await connection.execute(PUT_OFF, params)).fetchone()
    return bool(row and row[1])


async def served(connection: Any, credential_id: int, receivers: Iterable[str]) -> None:
    """Record that these receivers have accepted a message that was called after their wait."""
    await connection.execute(SERVED, {"credential": credential_id, "receivers": list(receivers)})


def forget() -> None:
    """Delete waits that were over long ago, because nothing is sent to their receivers any more."""
    with django_connection.cursor() as cursor:
        cursor.execute(FORGET)


def _stored(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:TEXT_MAX]
