"""What a recipient decides: to unsubscribe from a topic or from everything of a sponsor, and to subscribe again.

All of it is idempotent. Who unsubscribes is suppressed for that reason, and gets nothing from the next claim on.
"""

import logging
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from campaigns.models import Message, Sponsor, Suppression, Topic
from campaigns.models.jobs import read_reference
from campaigns.suppression import lists
from campaigns.suppression.digests import digest, made_key
from campaigns.suppression.links import Subscription
from campaigns.suppression.lists import NewSuppression

log = logging.getLogger(__name__)

REASON = Suppression.Reason.UNSUBSCRIBED.value


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """What recipients are shown. topic: of the link, if it has one; language: of the sponsor's pages, or empty."""

    sponsor: str
    language: str
    topic: str
    without_topic: bool
    without_everything: bool


def state(of: Subscription) -> SubscriptionState | None:
    """None: the sponsor is not there any more."""
    sponsor = Sponsor.objects.filter(pk=of.sponsor_id).first()
    if sponsor is None:
        return None
    topic = Topic.objects.filter(pk=of.topic_id, sponsor=sponsor).first() if of.topic_id else None
    from_topics = set(_held(of).values_list("topic", flat=True))
    everything = None in from_topics
    without_topic = everything or (topic is not None and topic.pk in from_topics)
    return SubscriptionState(sponsor.name, sponsor.language, topic.title if topic else "", without_topic, everything)


def unsubscribe(of: Subscription, source: str, everything: bool = False) -> bool:
    """From the link's topic, if it has one; else, or if asked to, from everything of the sponsor; whether it is new.

    source: by which way, as the suppression tells it. Its campaign is added if the message is still there.
    """
    topic = None if everything else of.topic_id
    message = Message.objects.filter(pk=of.message_id).values_list("recipient", "campaign").first()
    address, campaign = message or ("", None)
    if not message or digest(made_key(), of.channel, address) != of.digest:  # ids begin anew after some restores
        address, campaign = "", None
    if Suppression.objects.filter(
        _holds(), digest=of.digest, reason=REASON, sponsor=of.sponsor_id, topic=topic
    ).exists():
        return False
    new = NewSuppression(address, REASON, f"{source}, campaign {campaign}" if campaign else source, topic_id=topic)
    added = lists.add_found(of.sponsor_id, of.channel, of.digest, new)
    log.info("message %s: its recipient unsubscribed from %s", of.message_id, f"topic {topic}" if topic else "all")
    return added


def subscribe_again(of: Subscription) -> int:
    """Lifts what the recipient has unsubscribed from: the link's topic, and everything; returns how many held."""
    topics = Q(topic=None) | Q(topic=of.topic_id) if of.topic_id else Q()
    lifted = lists.lift(_held(of).filter(topics).values_list("pk", flat=True))
    if lifted:
        log.info("message %s: its recipient subscribed again", of.message_id)
    return lifted


def by_message(message_uuid: UUID, source: str) -> bool:
    """Unsubscribes the recipient of this message, as its link does; False: there is no such bulk message.

    True also if it was so already.
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
    known = digest(made_key(), channel, found.recipient)
    unsubscribe(Subscription(found.pk, known, campaign.sponsor_id, campaign.topic_id, channel), source)
    return True


def _holds() -> Q:
    return Q(until=None) | Q(until__gt=timezone.now())


def _held(of: Subscription) -> QuerySet[Suppression]:
    return Suppression.objects.filter(_holds(), digest=of.digest, sponsor=of.sponsor_id, reason=REASON)
