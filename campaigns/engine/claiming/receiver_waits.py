"""Receivers that wait: statements for rows of ReceiverWait.

A receiver that answers about us, or about a rate or quota of ours, is put off on the credential of that call. Each wait
without an acceptance since has twice the length of the last one, up to the maximum of its rule
(vendors/receivers/shaping.toml). After a wait, the receiver is called slowly until it accepts a message; that deletes
the row. The rows spare a receiver and our reputation there; no promise rests on them, so claims do not lock them. Every
change of them raises the stamp of the credential (a trigger), and senders read them again only then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import connection as django_connection

from vendors.outcomes import RETRY_MAX, TEXT_MAX, NotSent
from vendors.receivers import known_groups
from vendors.receivers.shaping import shape_wait

QUIET = 900  # seconds without a further report after which a receiver counts as served again
SEEN_MOST = 5_000  # rows of a credential that its senders read
# In a context, for a credential l: changes with every change of its waits; NULL: none has ever waited.
STAMP = "(SELECT s.stamp FROM vendors_receiverstamp s WHERE s.credential_id = l.id)"
# Groups first: they are few, and each has many recipients. One row more than is used tells that there are more.
SEEN = """
SELECT l.id, w.receiver, extract(epoch FROM w.until)::float8
FROM unnest(%(credentials)s::bigint[]) AS l(id) CROSS JOIN LATERAL (
    SELECT receiver, until FROM vendors_receiverwait WHERE credential_id = l.id
    ORDER BY receiver = ANY(%(groups)s) DESC, until DESC LIMIT %(most)s) w
"""
# Many calls are answered alike at the same time: the first answer begins the wait, the others can only extend it.
_OPEN = "w.until <= clock_timestamp()"
_LONGER = "greatest(excluded.seconds, least(%(most)s, 2 * w.seconds))"
PUT_OFF = f"""
INSERT INTO vendors_receiverwait AS w
    (credential_id, receiver, cause, refused, since, until, seconds, answers, answer)
VALUES (%(credential)s, %(receiver)s, %(cause)s, %(refused)s, clock_timestamp(),
    clock_timestamp() + %(wait)s * interval '1 second', %(wait)s, 1, %(answer)s)
ON CONFLICT (credential_id, receiver) DO UPDATE SET cause = excluded.cause, refused = excluded.refused,
    reported = false,
    answers = w.answers + 1, answer = excluded.answer,
    seconds = CASE WHEN {_OPEN} THEN {_LONGER} ELSE w.seconds END,
    until = CASE WHEN {_OPEN} THEN clock_timestamp() + ({_LONGER}) * interval '1 second'
        ELSE greatest(w.until, excluded.until) END
RETURNING until, answers = 1
"""
# After a report, the acceptance of a relay or service proves little: no further report in the time of the wait does.
SERVED = f"""
DELETE FROM vendors_receiverwait WHERE credential_id = %(credential)s AND receiver = ANY(%(receivers)s)
    AND until <= clock_timestamp() - CASE WHEN reported THEN least(seconds, {QUIET}) ELSE 0 END * interval '1 second'
"""
FORGET = """
DELETE FROM vendors_receiverwait
WHERE until < clock_timestamp() - greatest(900, 2 * seconds) * interval '1 second'
"""


@dataclass(frozen=True, slots=True)
class SeenWaits:
    """Receivers that wait on a credential, with the end of each wait (Unix seconds by the database's clock).

    is_whole: the list is complete. If not, receivers in no group that it lacks may wait, too.
    """

    until: Mapping[str, float]
    is_whole: bool = True


NONE_WAITS = SeenWaits({})


async def read_waits(connection: Any, credential_ids: Iterable[int]) -> dict[int, SeenWaits]:
    """Return the waits of these credentials, of each at most SEEN_MOST."""
    asked = list(credential_ids)
    params = {"credentials": asked, "groups": list(known_groups()), "most": SEEN_MOST + 1}
    found: dict[int, dict[str, float]] = {credential: {} for credential in asked}
    for credential, receiver, until in await (await connection.execute(SEEN, params)).fetchall():
        found[credential][receiver] = until
    return {
        credential: SeenWaits(dict(islice(waits.items(), SEEN_MOST)), len(waits) <= SEEN_MOST)
        for credential, waits in found.items()
    }


async def put_off_receiver(connection: Any, credential_id: int, receiver: str, answer: NotSent) -> bool:
    """Let a receiver wait, as its answer asks or its rule says. Returns True if it did not wait before."""
    shape = shape_wait(receiver, answer.cause, answer.reason)
    asked = min(answer.retry_after or 0.0, RETRY_MAX)
    params = {
        "credential": credential_id, "receiver": receiver, "cause": answer.cause.value, "refused": answer.pause,
        "wait": max(asked, shape.first), "most": max(asked, shape.most), "answer": _storable_text(answer.reason),
    }  # fmt: skip
    row = await (await connection.execute(PUT_OFF, params)).fetchone()
    return bool(row and row[1])


async def end_receiver_waits(connection: Any, credential_id: int, receivers: Iterable[str]) -> None:
    """Record that these receivers have accepted a message called after their wait."""
    await connection.execute(SERVED, {"credential": credential_id, "receivers": list(receivers)})


def forget_ended_waits() -> None:
    """Delete waits that ended long ago, because nothing is sent to their receivers any more."""
    with django_connection.cursor() as cursor:
        cursor.execute(FORGET)


def _storable_text(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:TEXT_MAX]
