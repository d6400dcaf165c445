"""Events of messages as rows, and the suppressions that follow from them.

A hard bounce, a complaint or an unsubscription suppresses the recipient immediately. Soft bounces do so together: after
bounces on SOFT_BOUNCES days within SOFT_BOUNCE_DAYS, counted since the address was last allowed again. Blocked and
failed messages are our fault or the vendor's and suppress nobody.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from campaigns import day_counts
from campaigns.models import MessageEvent, Suppression
from campaigns.routes import whose
from campaigns.routes.whose import ReportingAccount
from campaigns.suppression import lists
from campaigns.suppression.digests import digest, made_key
from campaigns.suppression.lists import NewSuppression
from vendors.models import Vendor

Kind = MessageEvent.Kind
FIRST_DAY = date(1970, 1, 1)  # for folded daily counts
REASONS = {
    Kind.HARD_BOUNCE: Suppression.Reason.BOUNCED,
    Kind.COMPLAINT: Suppression.Reason.COMPLAINED,
    Kind.UNSUBSCRIBED: Suppression.Reason.UNSUBSCRIBED,
}


@dataclass(frozen=True, slots=True)
class ReportedEvent:
    """An event as reported. id, uuid, resend_no: from the message's reference."""

    id: int
    uuid: UUID
    resend_no: int
    kind: MessageEvent.Kind
    at: datetime
    code: str = ""
    note: str = ""


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
# The days on which an address has bounced softly for a sponsor, since it was last allowed again.
DAYS = """
SELECT e.digest, c.sponsor_id, array_agg(DISTINCT (e.at AT TIME ZONE 'UTC')::date)
FROM campaigns_messageevent e JOIN campaigns_campaign c ON c.id = e.campaign_id
WHERE e.digest = ANY(%(digests)s::bigint[]) AND e.at > clock_timestamp() - %(days)s AND e.at > coalesce((
    SELECT max(s.until) FROM campaigns_suppression s WHERE s.digest = e.digest AND s.reason = 'bounced'
        AND coalesce(s.sponsor_id, c.sponsor_id) = c.sponsor_id AND s.until <= clock_timestamp()), '-infinity')
GROUP BY 1, 2
"""
APPEND = f"""
WITH stored AS (
INSERT INTO campaigns_messageevent (message_id, campaign_id, resend_no, kind, at, source, code, note, digest)
SELECT a.id, a.campaign, a.no, a.kind, a.at, %(source)s, a.code, a.note, a.digest
FROM unnest(%(ids)s::bigint[], %(campaigns)s::bigint[], %(nos)s::int[], %(kinds)s::text[], %(ats)s::timestamptz[],
    %(codes)s::text[], %(notes)s::text[], %(digests)s::bigint[])
    AS a(id, campaign, no, kind, at, code, note, digest)
ON CONFLICT DO NOTHING RETURNING campaign_id, kind, at
), days AS ({day_counts.OF_EVENTS}) SELECT count(*) FROM stored
"""


def new(of: ReportingAccount, reported: Sequence[ReportedEvent]) -> list[NewEvent]:
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
    return _with_digests(found)


def _with_digests(found: list[NewEvent]) -> list[NewEvent]:
    if not any(one.reported.kind == Kind.SOFT_BOUNCE for one in found):
        return found
    secret = made_key()
    return [
        replace(one, digest=digest(secret, one.channel, one.recipient))
        if one.reported.kind == Kind.SOFT_BOUNCE
        else one
        for one in found
    ]


def suppress(events: Collection[NewEvent]) -> None:
    """Suppress the recipients of these events, where the kind of event requires it, each for its sponsor.

    Call it before `append` and outside its transaction: a suppression waits for claims, which wait for jobs. If the
    process dies in between, the report comes again, finds no event, and suppresses the same addresses.
    """
    events = [one for one in events if not one.sandbox]
    groups: dict[tuple[int, str], list[NewSuppression]] = defaultdict(list)
    for one in events:
        if reason := REASONS.get(one.reported.kind):
            groups[one.sponsor_id, one.channel].append(_suppression(one, reason))
    for one, days in _hardened(events):
        source = f"campaign {one.campaign_id}, soft bounces on {days} days"
        reason = Suppression.Reason.BOUNCED
        groups[one.sponsor_id, one.channel].append(NewSuppression(one.recipient, reason.value, source))
    for (sponsor_id, channel), some in sorted(groups.items()):
        lists.add(sponsor_id, channel, some)


def _suppression(one: NewEvent, reason: Suppression.Reason) -> NewSuppression:
    """Return the suppression for an event. A STOP by SMS covers all topics, unsubscribing only the campaign's, if
    any.
    """
    if reason != Suppression.Reason.UNSUBSCRIBED:
        return NewSuppression(one.recipient, reason.value, _source(one))
    if one.channel == Vendor.Channel.SMS:
        return NewSuppression(one.recipient, Suppression.Reason.STOP.value, _source(one))
    return NewSuppression(one.recipient, reason.value, _source(one), topic_id=one.topic_id)


def _source(one: NewEvent) -> str:
    """Return the source to store. Hard bounces share it with a campaign's refusals, to be lifted together with them."""
    if one.reported.kind != Kind.HARD_BOUNCE:
        return f"{one.reported.kind.value}, campaign {one.campaign_id}"
    return f"campaign {one.campaign_id}, bounced: {one.reported.code}".removesuffix(": ")


def _hardened(events: Collection[NewEvent]) -> Iterable[tuple[NewEvent, int]]:
    """Yield soft bounces of e-mail whose address has now bounced on enough days, with the number of days."""
    soft = [one for one in events if one.digest is not None and one.channel == Vendor.Channel.EMAIL]
    if not soft or not settings.SOFT_BOUNCES:
        return
    with connection.cursor() as cursor:
        params: Any = {"digests": [one.digest for one in soft], "days": settings.SOFT_BOUNCE_WINDOW}
        cursor.execute(DAYS, params)
        days: dict[tuple[int, int], set[Any]] = {
            (found, sponsor): set(dates) for found, sponsor, dates in cursor.fetchall()
        }
    for one in soft:
        assert one.digest is not None
        known = days.setdefault((one.digest, one.sponsor_id), set())
        known.add(one.reported.at.date())
        if len(known) >= settings.SOFT_BOUNCES:
            yield one, len(known)


def append(events: Sequence[NewEvent], source: str) -> int:
    """Store these events in the caller's transaction. Returns how many nobody else had stored in the meantime."""
    if not events:
        return 0
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
    }
    with connection.cursor() as cursor:
        cursor.execute(APPEND, params)
        return int(cursor.fetchone()[0])


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


def delete_old(at_once: int = 10_000) -> int:
    """Delete events stored more than EVENT_DAYS ago, this many in a transaction. Returns their number.

    Folds old daily counts into one row of each kind. Messages keep their last report.
    """
    params: dict[str, Any] = {"kept": max(settings.EVENTS_KEPT, settings.SOFT_BOUNCE_WINDOW), "most": at_once}
    number, some = 0, -1
    with connection.cursor() as cursor:
        cursor.execute(FOLD, {**params, "first": FIRST_DAY})
        while some:
            cursor.execute(DELETE, params)
            some = cursor.rowcount
            number += some
    return number
