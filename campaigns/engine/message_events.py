"""Events of messages as rows: bounces, complaints, recipients who unsubscribe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from campaigns.engine import day_counts
from campaigns.engine.routes import whose
from campaigns.engine.routes.whose import ReportingAccount
from campaigns.engine.suppressed.digests import digest_address, made_key
from campaigns.models import MessageEvent
from vendors import receiver_domains
from vendors.causes.returned import ReportJudgement
from vendors.models import Vendor
from vendors.receivers import receiver_of

Kind = MessageEvent.Kind
FIRST_DAY = date(1970, 1, 1)  # for folded daily counts


@dataclass(frozen=True, slots=True)
class ReportedEvent:
    """An event as reported. id, uuid, resend_no: from the message's reference. judged: of a failure or a delay."""

    id: int
    uuid: UUID
    resend_no: int
    kind: MessageEvent.Kind
    at: datetime
    code: str = ""
    note: str = ""
    judged: ReportJudgement | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event not stored yet, of an existing message. sandbox: its vendor delivers to nobody.

    topic_id: of its campaign. digest: of the recipient, for a soft bounce.
    """

    reported: ReportedEvent
    campaign_id: int
    sponsor_id: int
    channel: str
    recipient: str
    sandbox: bool
    topic_id: int | None
    digest: int | None = None


NEW = f"""
SELECT a.number, m.campaign_id, c.sponsor_id, by.channel, m.recipient, by.sandbox, c.topic_id
FROM unnest(%(ids)s::bigint[], %(uuids)s::uuid[], %(nos)s::int[], %(kinds)s::text[]) WITH ORDINALITY
    AS a(id, uuid, no, kind, number)
JOIN campaigns_message m ON m.id = a.id AND m.uuid = a.uuid AND a.no <= m.resend_no
JOIN campaigns_campaign c ON c.id = m.campaign_id JOIN vendors_vendor by ON by.id = %(vendor)s
WHERE {whose.REPORTS} AND NOT EXISTS (
    SELECT FROM campaigns_messageevent e WHERE e.message_id = a.id AND e.resend_no = a.no AND e.kind = a.kind)
ORDER BY a.number
"""
# For engine/pausing/complaints.py. %(receivers)s names the receiver of each complaint that counts.
COMPLAINED = """
INSERT INTO campaigns_uncountedcomplaint (sponsor_id, receiver, sent_at)
SELECT c.sponsor_id, a.receiver, least(coalesce(m.sent_at, s.at), clock_timestamp())
FROM stored s JOIN unnest(%(ids)s::bigint[], %(nos)s::int[], %(kinds)s::text[], %(receivers)s::text[])
        AS a(id, no, kind, receiver) ON (a.id, a.no, a.kind) = (s.message_id, s.resend_no, s.kind)
    JOIN campaigns_message m ON m.id = ANY(ARRAY[s.message_id]) JOIN campaigns_campaign c ON c.id = s.campaign_id
WHERE s.kind = 'complaint' AND a.receiver IS NOT NULL
"""
APPEND = f"""
WITH stored AS (
INSERT INTO campaigns_messageevent (message_id, campaign_id, resend_no, kind, at, source, code, note, digest)
SELECT a.id, a.campaign, a.no, a.kind, a.at, %(source)s, a.code, a.note, a.digest
FROM unnest(%(ids)s::bigint[], %(campaigns)s::bigint[], %(nos)s::int[], %(kinds)s::text[], %(ats)s::timestamptz[],
    %(codes)s::text[], %(notes)s::text[], %(digests)s::bigint[])
    AS a(id, campaign, no, kind, at, code, note, digest)
ON CONFLICT DO NOTHING RETURNING message_id, resend_no, campaign_id, kind, at
), days AS ({day_counts.OF_EVENTS}), complained AS ({COMPLAINED}) SELECT count(*) FROM stored
"""


def new_events(of: ReportingAccount, reported: Sequence[ReportedEvent]) -> list[NewEvent]:
    """Return the events not stored yet that name a message of this account, in one of its sendings."""
    if not reported:
        return []
    params: dict[str, Any] = {
        **of.params,
        "ids": [one.id for one in reported],
        "uuids": [one.uuid for one in reported],
        "nos": [one.resend_no for one in reported],
        "kinds": [one.kind.value for one in reported],
    }
    with connection.cursor() as cursor:
        cursor.execute(NEW, params)
        found = [NewEvent(reported[number - 1], *facts) for number, *facts in cursor.fetchall()]
    return _add_digests(found)


def _add_digests(found: list[NewEvent]) -> list[NewEvent]:
    if not any(one.reported.kind == Kind.SOFT_BOUNCE for one in found):
        return found
    secret = made_key()
    return [
        replace(one, digest=digest_address(secret, one.channel, one.recipient))
        if one.reported.kind == Kind.SOFT_BOUNCE
        else one
        for one in found
    ]


def append_events(events: Sequence[NewEvent], source: str) -> int:
    """Store these events in the caller's transaction. Returns how many nobody else had stored in the meantime."""
    if not events:
        return 0
    if any(one.reported.kind == Kind.COMPLAINT for one in events):
        receiver_domains.refresh_domains()
    params: dict[str, Any] = {
        "source": source,
        "ids": [one.reported.id for one in events],
        "campaigns": [one.campaign_id for one in events],
        "nos": [one.reported.resend_no for one in events],
        "kinds": [one.reported.kind.value for one in events],
        "ats": [one.reported.at for one in events],
        "codes": [one.reported.code for one in events],
        "notes": [one.reported.note for one in events],
        "digests": [one.digest for one in events],
        "receivers": [_receiver_of(one) for one in events],
    }
    with connection.cursor() as cursor:
        cursor.execute(APPEND, params)
        return int(cursor.fetchone()[0])


def _receiver_of(event: NewEvent) -> str | None:
    """Return the receiving domain of a complaint that counts against its sponsor, or None."""
    counts = event.reported.kind == Kind.COMPLAINT and event.channel == Vendor.Channel.EMAIL and not event.sandbox
    return receiver_of(event.recipient) if counts else None


DELETE_RATES = "DELETE FROM campaigns_complaintrate WHERE since < clock_timestamp() - %(kept)s"
# By id, because ids rise with the time of storing.
DELETE = """
DELETE FROM campaigns_messageevent WHERE stored_at < clock_timestamp() - %(kept)s AND id IN (
    SELECT id FROM campaigns_messageevent ORDER BY id LIMIT %(most)s)
"""
# Totals of all time must stay right: older counts become one row of each kind, on the day before the first day.
FOLD = """
WITH old AS (
    DELETE FROM campaigns_inboundcount WHERE day < (clock_timestamp() - %(kept)s)::date AND day > %(first)s
    RETURNING what, mails
)
INSERT INTO campaigns_inboundcount AS was (day, what, mails)
SELECT %(first)s, what, sum(mails) FROM old GROUP BY what
ON CONFLICT (day, what) DO UPDATE SET mails = was.mails + EXCLUDED.mails
"""


def delete_old_events(at_once: int = 10_000) -> int:
    """Delete events stored more than EVENT_DAYS ago, this many in a transaction. Returns their number.

    Folds old daily counts into one row of each kind, and deletes old rates of complaints. Messages keep their last
    report.
    """
    params: dict[str, Any] = {"kept": max(settings.EVENTS_KEPT, settings.SOFT_BOUNCE_WINDOW), "most": at_once}
    number, some = 0, -1
    with connection.cursor() as cursor:
        cursor.execute(FOLD, {**params, "first": FIRST_DAY})
        cursor.execute(DELETE_RATES, params)
        while some:
            cursor.execute(DELETE, params)
            some = cursor.rowcount
            number += some
    return number
