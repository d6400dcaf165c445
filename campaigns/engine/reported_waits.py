"""Receivers that wait because of reports on letters that a relay or service had accepted.

A receiver's answer about us, or about a rate or quota of ours, comes with a call (claiming/receiver_waits.py), or later
in a bounce or delivery report. Both let the receiver wait on the credential that sent the letter. The reports of a
request need one statement, however many they are. A message has one event of a kind, so a repeated report changes
nothing, and nobody can prolong a wait by one message.
"""

from collections.abc import Sequence
from typing import Any

from django.db import connection

from campaigns.engine.message_events import NewEvent
from campaigns.engine.routes import whose
from vendors import receiver_domains
from vendors.models import Vendor
from vendors.outcomes import TEXT_MAX
from vendors.receivers import domain_of, waiting_part
from vendors.receivers.shaping import shape_wait

# A wait counts from the reported moment, so old reports begin none. Only a report of a letter called after the wait's
# end doubles it. Letters called earlier prolong it to twice its length since the first answer at most; then the
# receiver is called again, however many such reports still come. If the time of a call is unknown, as that of an
# earlier sending, it counts as early. `reported`: an acceptance by the relay or service does not end the wait at once.
_AGAIN = """excluded.since > w.until AND (SELECT s.called FROM said s
    WHERE s.credential = excluded.credential_id AND s.receiver = excluded.receiver) > w.until"""
_LONGER = """greatest(excluded.seconds, least(2 * w.seconds, (
    SELECT s.most FROM said s WHERE s.credential = excluded.credential_id AND s.receiver = excluded.receiver)))"""
PUT_OFF = f"""
WITH said AS (
    SELECT one.credential, one.receiver, bool_or(one.refused) AS refused, max(one.at) AS at, max(one.first) AS first,
        max(one.most) AS most, count(*) AS answers, (array_agg(one.cause ORDER BY one.at DESC))[1] AS cause,
        (array_agg(one.answer ORDER BY one.at DESC))[1] AS answer, max(one.called) AS called
    FROM (
        SELECT {whose.CREDENTIAL} AS credential, a.*, CASE WHEN m.resend_no = a.no THEN m.sent_at END AS called
        FROM unnest(%(ids)s::bigint[], %(nos)s::int[], %(receivers)s::text[], %(causes)s::text[], %(refused)s::bool[],
            %(ats)s::timestamptz[], %(firsts)s::float8[], %(mosts)s::float8[], %(answers)s::text[])
            AS a(id, no, receiver, cause, refused, at, first, most, answer)
        JOIN campaigns_message m ON m.id = a.id JOIN campaigns_campaign c ON c.id = m.campaign_id
    ) one WHERE one.credential IS NOT NULL GROUP BY 1, 2
)
INSERT INTO vendors_receiverwait AS w
    (credential_id, receiver, cause, refused, since, until, seconds, answers, answer, reported)
SELECT credential, receiver, cause, refused, at, at + first * interval '1 second', first, answers, answer, true
FROM said WHERE at + first * interval '1 second' > clock_timestamp()
ORDER BY 1, 2  -- two at once lock the rows in the same order
ON CONFLICT (credential_id, receiver) DO UPDATE SET cause = excluded.cause, refused = w.refused OR excluded.refused,
    answers = w.answers + excluded.answers, answer = excluded.answer,
    seconds = CASE WHEN {_AGAIN} THEN {_LONGER} ELSE w.seconds END,
    until = greatest(w.until, CASE WHEN {_AGAIN} THEN excluded.since + interval '1 second' * {_LONGER}
        ELSE least(excluded.since + excluded.seconds * interval '1 second',
            w.since + 2 * w.seconds * interval '1 second') END)
RETURNING receiver, answer, xmax = 0
"""


def put_off_reported(events: Sequence[NewEvent]) -> list[tuple[str, str]]:
    """Let receivers wait that refuse or delay our mail because of us, according to these new events.

    Runs in the caller's transaction. Returns (receiver, answer) of those without a wait before.
    """
    found = [one for one in events if one.channel == Vendor.Channel.EMAIL and _slows_receiver(one)]
    if not found:
        return []
    receiver_domains.refresh_domains()
    with connection.cursor() as cursor:
        cursor.execute(PUT_OFF, _wait_columns(found))
        return [(receiver, answer) for receiver, answer, is_new in cursor.fetchall() if is_new]


def _slows_receiver(event: NewEvent) -> bool:
    judged = event.reported.judged
    return judged is not None and judged.slows and "@" in event.recipient


def _wait_columns(events: Sequence[NewEvent]) -> dict[str, Any]:
    rows = []
    for one in events:
        judged, said = one.reported.judged, f"{one.reported.code} {one.reported.note}".strip()
        assert judged is not None
        receiver = waiting_part(domain_of(one.recipient))
        shape = shape_wait(receiver, judged.cause, said)
        answer = said.replace(one.recipient, "…")[:TEXT_MAX]
        cause, refused, no = judged.cause.value, judged.refused, one.reported.resend_no
        rows.append((one.reported.id, no, receiver, cause, refused, one.reported.at, shape.first, shape.most, answer))
    names = ("ids", "nos", "receivers", "causes", "refused", "ats", "firsts", "mosts", "answers")
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
