"""Decisions about unread answers, from a command, a page, the admin or the API; each one is recorded.

The first decision about an answer stands. An answer already read may still be treated as a stop.
"""

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from campaigns.engine import day_counts
from campaigns.models import InboundMessage, RecipientAnswer, Sponsor, Suppression
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from vendors import history
from vendors.history import Actor
from vendors.models import Vendor
from vendors.said import Said, gettext_noop

REASONS = {
    Vendor.Channel.SMS.value: Suppression.Reason.STOP,
    Vendor.Channel.EMAIL.value: Suppression.Reason.UNSUBSCRIBED,
}
SOURCE = gettext_noop("answer %(answer)s, by %(person)s")
STARTED = gettext_noop("The sender has written START since, so the answer is no stop any more.")


class StartedSince(ValueError):
    """The sender has asked for messages again, after this answer."""


def filter_by_state(rows: "QuerySet[RecipientAnswer]", state: str) -> "QuerySet[RecipientAnswer]":
    """Select the rows in a state: unread, stop, read, or all. Unread ones begin with the oldest."""
    if state == "all":
        return rows.order_by("-pk")
    if state == "unread":
        return rows.filter(outcome=RecipientAnswer.Outcome.UNREAD).order_by("pk")
    return rows.filter(outcome=state).order_by("-pk")


@transaction.atomic
def treat_as_stop(answer_id: int, by: Actor) -> bool:
    """Suppress the sender on the answer's channel, for all sponsors it concerns that still exist. False: done already.

    Raises StartedSince, and RecipientAnswer.DoesNotExist.
    """
    row = RecipientAnswer.objects.select_for_update(no_key=True, of=("self",)).get(pk=answer_id)
    if row.outcome == RecipientAnswer.Outcome.STOP:
        return False
    concerned = Q(pk=row.sponsor_id) if row.sponsor_id else Q(pk__in=row.concerned)
    sponsors = list(Sponsor.objects.filter(concerned).order_by("pk").values_list("pk", flat=True))
    if any(_has_started(row, sponsor) for sponsor in sponsors):
        raise StartedSince(Said(STARTED))
    source = Said(SOURCE, answer=str(row.pk), person=by.name)
    new = NewSuppression(row.sender, REASONS[row.channel].value, source, row.written_at)
    for sponsor in sponsors:
        if lists.add_suppressions(sponsor, row.channel, [new]):
            day_counts.count_unsubscribed(sponsor)
    _store_decision(row, RecipientAnswer.Outcome.STOP, by, Said(gettext_noop("treated as stop")))
    return True


@transaction.atomic
def mark_read(answer_id: int, by: Actor) -> bool:
    """Take an answer out of the unread ones. False: decided already. Raises RecipientAnswer.DoesNotExist."""
    row = RecipientAnswer.objects.select_for_update(no_key=True, of=("self",)).get(pk=answer_id)
    if row.outcome != RecipientAnswer.Outcome.UNREAD:
        return False
    _store_decision(row, RecipientAnswer.Outcome.READ, by, Said(gettext_noop("marked as read")))
    return True


def _store_decision(row: RecipientAnswer, outcome: RecipientAnswer.Outcome, by: Actor, what: Said) -> None:
    row.outcome, row.decided_by, row.decided_at = outcome, by.name[:150], timezone.now()
    row.save(update_fields=["outcome", "decided_by", "decided_at"])
    history.record_changes(by, RecipientAnswer, [(row.pk, what)])


def _has_started(row: RecipientAnswer, sponsor_id: int) -> bool:
    """Return True if the sender has written START to this sponsor after the answer."""
    if row.channel != Vendor.Channel.SMS:
        return False
    to = Q(sponsor=sponsor_id) | Q(sponsor=None, vendor=row.vendor_id)
    later = InboundMessage.objects.filter(to, sender=row.sender, written_at__gt=row.written_at)
    return later.filter(command=InboundMessage.Command.START).exists()
