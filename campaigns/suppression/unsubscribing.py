"""Carries out a recipient's decision: unsubscribe from a topic or from all of a sponsor's mail, or subscribe again.

Every function is idempotent. An unsubscribed recipient gets nothing from the next claim on.
"""

import logging
from dataclasses import dataclass
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from campaigns.engine import day_counts
from campaigns.engine.suppressed.digests import digest_address, made_key
from campaigns.models import Message, Sponsor, Suppression, Topic
from campaigns.models.jobs import read_reference
from campaigns.suppression import lists
from campaigns.suppression.links import Subscription
from campaigns.suppression.lists import NewSuppression
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)

REASON = Suppression.Reason.UNSUBSCRIBED.value


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The state shown to recipients. topic: of the link, if it has one. language: of the sponsor's pages, or empty.

    without_topic, without_everything: unsubscribed for good. undone: subscribing again would change something,
    including suppressions with an end.
    """

    sponsor: str
    language: str
    topic: str
    without_topic: bool
    without_everything: bool
    undone: bool


def subscription_state(of: Subscription) -> SubscriptionState | None:
    """Return the state, or None if the sponsor has been deleted."""
    sponsor = Sponsor.objects.filter(pk=of.sponsor_id).first()
    if sponsor is None:
        return None
    topic = _topic_of_link(of)
    held = list(_holding_suppressions(of).values_list("topic", "until"))
    for_good = {about for about, until in held if until is None}
    everything = None in for_good
    without_topic = everything or (topic is not None and topic.pk in for_good)
    title = topic.title if topic else ""
    return SubscriptionState(sponsor.name, sponsor.language, title, without_topic, everything, bool(held))


# Where the doors of campaigns are told of, by the door.
CAMPAIGN = {
    "one-click": gettext_noop("one-click, campaign %(campaign)s"),
    "link": gettext_noop("link, campaign %(campaign)s"),
    "e-mail": gettext_noop("e-mail, campaign %(campaign)s"),
    "reply": gettext_noop("reply, campaign %(campaign)s"),
}


def unsubscribe_link(of: Subscription, source: str, everything: bool = False) -> bool:
    """Unsubscribe from the link's topic, or from all of the sponsor's mail if it has none or `everything`.

    Returns whether this is new. It holds for good, even if an earlier suppression had an end. source: the door, as
    stored in the suppression, together with the campaign if the message still exists.
    """
    about = None if everything else _topic_of_link(of)
    topic = about.pk if about else None
    message = Message.objects.filter(pk=of.message_id).values_list("recipient", "campaign").first()
    address, campaign = message or ("", None)
    if not message or digest_address(made_key(), of.channel, address) != of.digest:  # some restores start the ids anew
        address, campaign = "", None
    if _suppressions_of_link(of).filter(until=None, topic=topic).exists():
        return False
    origin = (
        Said(CAMPAIGN.get(source, f"{source}, campaign %(campaign)s"), campaign=str(campaign)) if campaign else source
    )
    new = NewSuppression(address, REASON, origin, topic_id=topic)
    with transaction.atomic():
        added = lists.add_found(of.sponsor_id, of.channel, of.digest, new)
        if added:
            day_counts.count_unsubscribed(of.sponsor_id)
    log.info("message %s: its recipient unsubscribed from %s", of.message_id, f"topic {topic}" if topic else "all")
    return added


def subscribe_again(of: Subscription) -> int:
    """Lift the suppressions for the link's topic and for everything; return how many held.

    Other topics are unchanged.
    """
    lifted = lists.lift_suppressions(_holding_suppressions(of).values_list("pk", flat=True))
    if lifted:
        log.info("message %s: its recipient subscribed again", of.message_id)
    return lifted


def unsubscribe_message(message_uuid: UUID, source: str, everything: bool = False) -> bool:
    """Unsubscribe the recipient of this message, as its link would, or from everything. False: no such bulk message.

    Also returns True if the recipient was unsubscribed before.
    """
    reference = read_reference(f"{message_uuid}-0")
    found = (
        reference
        and Message.objects.filter(pk=reference.id, uuid=message_uuid)
        .select_related("campaign__credential__vendor")
        .defer("campaign__credential__secret")
        .first()
    )
    if not found or found.campaign.transactional:
        return False
    campaign, channel = found.campaign, found.campaign.credential.vendor.channel
    known = digest_address(made_key(), channel, found.recipient)
    unsubscribe_link(Subscription(found.pk, known, campaign.sponsor_id, campaign.topic_id, channel), source, everything)
    return True


def _topic_of_link(of: Subscription) -> Topic | None:
    """Return the link's topic; None also if it was deleted, because the link then means everything."""
    return Topic.objects.filter(pk=of.topic_id, sponsor=of.sponsor_id).first() if of.topic_id else None


def _holding_suppressions(of: Subscription) -> QuerySet[Suppression]:
    """Return the suppressions that hold now for the link's topic and for everything."""
    holds = Q(until=None) | Q(until__gt=timezone.now())
    return _suppressions_of_link(of).filter(holds, Q(topic=None) | Q(topic=of.topic_id))


def _suppressions_of_link(of: Subscription) -> QuerySet[Suppression]:
    return Suppression.objects.filter(digest=of.digest, sponsor=of.sponsor_id, reason=REASON)
