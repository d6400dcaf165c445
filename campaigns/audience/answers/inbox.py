"""The inbox of unread answers: keeps them, each once by its name, tells programs, counts and deletes them."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Count, Min
from django.utils import timezone

from campaigns.doors import labels, public_ids
from campaigns.integrations.webhooks import events
from campaigns.models import RecipientAnswer
from vendors import alarms
from vendors.models import Vendor

log = logging.getLogger(__name__)

MOST_TEXT = 2_000  # characters kept of an answer
LONGEST = 320  # characters of an address
MOST_COUNTED = 1_000
LATE = timedelta(days=1)
Understood = Literal["stop", "start", "help", "near", "other", "fraud"]


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """A recipient's answer.

    name: identifies a repeat. sponsor_id: its sponsor; None: an SMS to a number without an identity, with its sponsors
    in `concerned`. understood: the action taken, or near, other and fraud, which a person reads. writer: address of a
    mail's author if it differs from `sender`, the recipient; stands above the text. at: UTC; None: now.
    """

    name: str
    kind: RecipientAnswer.Kind
    channel: str
    understood: Understood
    sender: str
    to: str
    text: str
    sponsor_id: int | None
    concerned: Collection[int] = ()
    vendor_id: int | None = None
    message_id: int | None = None
    message_uuid: UUID | None = None
    campaign_id: int | None = None
    at: datetime | None = None
    test: bool = field(default=False, kw_only=True)
    writer: str = field(default="", kw_only=True)


KEEP = """
INSERT INTO campaigns_recipientanswer (name, kind, channel, near, sender, "to", text, sponsor_id, concerned, vendor_id,
    message, message_uuid, campaign, written_at)
VALUES (%(name)s, %(kind)s, %(channel)s, %(near)s, %(sender)s, %(to)s, %(text)s, %(sponsor)s, %(concerned)s::bigint[],
    %(vendor)s, %(message)s, %(uuid)s, %(campaign)s, least(%(at)s::timestamptz, clock_timestamp()))
ON CONFLICT (name) DO NOTHING RETURNING id
"""


def take_answer(new: NewAnswer) -> list[int]:
    """Keep an answer that a person has to read, and tell the sponsor's programs of any answer.

    Call it in the transaction that carries out the answer's request. Returns the ids of the webhook calls due now.
    """
    unread = new.understood in ("near", "other", "fraud") and new.text.strip()
    kept = _keep_unread(new) if unread else None
    if new.sponsor_id is None:
        return []
    return events.store_answer_calls(new.sponsor_id, new.name, lambda: _event_data(new, kept), new.test)


def _event_data(new: NewAnswer, kept: int | None) -> dict[str, Any]:
    return {
        "id": public_ids.id_of_number("ans", kept) if kept else None,
        "channel": new.channel,
        "kind": new.kind.value,
        "understood": new.understood,
        "sender": labels.format_recipient(new.sender, seen=False),
        "to": text_to_store(new.to, LONGEST),
        "text": text_to_store(new.text, MOST_TEXT),
        "message_id": public_ids.id_of_number("msg", new.message_id) if new.message_id else None,
        "at": (new.at or timezone.now()).isoformat(),
    }


def _keep_unread(new: NewAnswer) -> int | None:
    """Return the id of a new row; None for a repeat."""
    row: dict[str, Any] = {
        "name": new.name,
        "kind": new.kind.value,
        "channel": new.channel,
        "near": new.understood != "other",
        "sender": text_to_store(new.sender, LONGEST),
        "to": text_to_store(new.to, LONGEST),
        "text": text_to_store(f"From: {new.writer}\n\n{new.text}" if new.writer else new.text, MOST_TEXT),
        "sponsor": new.sponsor_id,
        "concerned": sorted(new.concerned),
        "vendor": new.vendor_id,
        "message": new.message_id,
        "uuid": new.message_uuid,
        "campaign": new.campaign_id,
        "at": new.at,
    }
    with connection.cursor() as cursor:
        cursor.execute(KEEP, row)
        found = cursor.fetchone()
    return found[0] if found else None


def text_to_store(text: str, most: int) -> str:
    """Return a text that can be stored, cut to this number of characters."""
    bare = text[:most].encode(errors="replace").decode().replace("\0", "\ufffd")
    return bare if len(text) <= most else f"{bare[: most - 1]}…"


def count_unread(sponsors: Collection[int] | None) -> int:
    """Count the unread answers of these sponsors; None: of all. At most MOST_COUNTED."""
    rows = RecipientAnswer.objects.of_sponsors(sponsors).filter(outcome="")
    return len(rows.order_by().values_list("pk", flat=True)[:MOST_COUNTED])


@dataclass(frozen=True, slots=True)
class UnreadAnswers:
    """The unread answers of a channel. number: at most MOST_COUNTED. oldest: the time of storing the oldest."""

    channel: str
    number: int
    oldest: datetime


def unread_by_channel() -> list[UnreadAnswers]:
    """Return the unread answers of all sponsors, by channel."""
    found = []
    for channel in (Vendor.Channel.EMAIL.value, Vendor.Channel.SMS.value):
        some = RecipientAnswer.objects.filter(outcome="", channel=channel).order_by("pk")[:MOST_COUNTED]
        counted = some.aggregate(number=Count("pk"), oldest=Min("stored_at"))
        if counted["number"]:
            found.append(UnreadAnswers(channel, counted["number"], counted["oldest"]))
    return found


def tell_unread() -> None:
    """Log an alarm if answers have been unread for a day."""
    late = [one for one in unread_by_channel() if one.oldest < timezone.now() - LATE]
    if late:
        hours = (timezone.now() - min(one.oldest for one in late)).total_seconds() / 3600
        alarms.ANSWERS_UNREAD.log(log, sum(one.number for one in late), hours)


# By id, because ids rise with the time of storing.
DELETE = """
DELETE FROM campaigns_recipientanswer WHERE stored_at < clock_timestamp() - %(kept)s AND id IN (
    SELECT id FROM campaigns_recipientanswer ORDER BY id LIMIT %(most)s)
"""
DELETE_EVENTS = """
DELETE FROM campaigns_webhookcall WHERE id IN (
    SELECT id FROM campaigns_webhookcall WHERE session_id IS NULL AND created_at < clock_timestamp() - %(kept)s
    ORDER BY created_at LIMIT %(most)s)
"""


def delete_old_answers(at_once: int = 10_000) -> int:
    """Delete answers, and webhooks' events about them, after EVENT_DAYS, read or not. Returns their number."""
    params: dict[str, Any] = {"kept": settings.EVENTS_KEPT, "most": at_once}
    number = 0
    with connection.cursor() as cursor:
        for statement in (DELETE, DELETE_EVENTS):
            some = -1
            while some:
                cursor.execute(statement, params)
                some = cursor.rowcount
                number += some
    return number
