"""Suppresses recipients because of reports about their messages.

A hard bounce, a complaint or an unsubscription suppresses the recipient immediately. Soft bounces do so together: when
an address has bounced on SOFT_BOUNCES days within SOFT_BOUNCE_DAYS, counted since it was last allowed again. Events
that say *blocked* or *failed* are our fault or the vendor's, and suppress nobody.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from django.conf import settings
from django.db import connection

from campaigns.engine.message_events import Kind, NewEvent
from campaigns.models import Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from vendors.causes.consequences import AnswerProof
from vendors.causes.gone import may_suppress
from vendors.models import Vendor
from vendors.said import Said, gettext_noop

REASONS = {
    Kind.HARD_BOUNCE: Suppression.Reason.BOUNCED,
    Kind.COMPLAINT: Suppression.Reason.COMPLAINED,
    Kind.UNSUBSCRIBED: Suppression.Reason.UNSUBSCRIBED,
}
# The days on which an address has bounced softly for a sponsor, since it was last allowed again.
DAYS = """
SELECT e.digest, c.sponsor_id, array_agg(DISTINCT (e.at AT TIME ZONE 'UTC')::date)
FROM campaigns_messageevent e JOIN campaigns_campaign c ON c.id = e.campaign_id
WHERE e.digest = ANY(%(digests)s::bigint[]) AND e.at > clock_timestamp() - %(days)s AND e.at > coalesce((
    SELECT max(s.until) FROM campaigns_suppression s WHERE s.digest = e.digest AND s.reason = 'bounced'
        AND coalesce(s.sponsor_id, c.sponsor_id) = c.sponsor_id AND s.until <= clock_timestamp()), '-infinity')
GROUP BY 1, 2
"""


def suppress_reported(events: Collection[NewEvent]) -> None:
    """Suppress the recipients of these events that must not be written to again, each for its sponsor.

    Call it before `message_events.append_events`, outside of that transaction: a suppression waits for claims, and
    claims wait for jobs. If the process dies in between, the report comes again, finds no event, and suppresses the
    same addresses.
    """
    events = [one for one in events if not one.sandbox and _may_suppress(one)]
    groups: dict[tuple[int, str], list[NewSuppression]] = defaultdict(list)
    for one in events:
        if reason := REASONS.get(one.reported.kind):
            groups[one.sponsor_id, one.channel].append(_suppression_for_event(one, reason))
    for one, days in _hardened_bounces(events):
        form = gettext_noop("campaign %(campaign)s, soft bounces on %(count)s days")
        source = Said(form, campaign=str(one.campaign_id), count=days)
        reason = Suppression.Reason.BOUNCED
        groups[one.sponsor_id, one.channel].append(NewSuppression(one.recipient, reason.value, source))
    for (sponsor_id, channel), some in sorted(groups.items()):
        lists.add_suppressions(sponsor_id, channel, some)


def _may_suppress(one: NewEvent) -> bool:
    """Return True if the cause of a bounce may suppress its recipient; complaints and wishes have none."""
    judged = one.reported.judged
    return judged is None or may_suppress(judged.cause, AnswerProof.REPORTED, one.channel)


def _suppression_for_event(one: NewEvent, reason: Suppression.Reason) -> NewSuppression:
    """Return the suppression for an event. A STOP by SMS covers all topics, a link only the campaign's, if any."""
    if reason != Suppression.Reason.UNSUBSCRIBED:
        return NewSuppression(one.recipient, reason.value, _source_of_event(one))
    if one.channel == Vendor.Channel.SMS:
        return NewSuppression(one.recipient, Suppression.Reason.STOP.value, _source_of_event(one))
    return NewSuppression(one.recipient, reason.value, _source_of_event(one), topic_id=one.topic_id)


SOURCES = {
    Kind.COMPLAINT: gettext_noop("complaint, campaign %(campaign)s"),
    Kind.UNSUBSCRIBED: gettext_noop("unsubscribed, campaign %(campaign)s"),
}


def _source_of_event(one: NewEvent) -> str:
    """Return the source to store. Hard bounces share it with a campaign's refusals, to be lifted together."""
    campaign = str(one.campaign_id)
    if one.reported.kind != Kind.HARD_BOUNCE:
        return Said(SOURCES[one.reported.kind], campaign=campaign)
    with_code = gettext_noop("campaign %(campaign)s, bounced: %(code)s")
    form = with_code if one.reported.code else gettext_noop("campaign %(campaign)s, bounced")
    return Said(form, campaign=campaign, code=one.reported.code)


def _hardened_bounces(events: Collection[NewEvent]) -> Iterable[tuple[NewEvent, int]]:
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
