"""Finds all messages to one recipient in the campaigns of a viewer's sponsors, and their history.

The search text is an address, our reference, a message's number, or the vendor's id of a letter. It must match exactly:
an address is normalised like an import's, for each channel, and found by an index on its hash. A vendor's id is found
only if the vendor's reports name nothing else, for the time they may arrive (`vendor_ids`). An index on all ids would
cost one more write for every accepted message.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext as _

from campaigns.doors import labels, public_ids
from campaigns.engine import progress
from campaigns.engine.progress import STILL
from campaigns.engine.refusal_runs import putting_back
from campaigns.engine.routes import whose
from campaigns.engine.suppressed.digests import digest_address, digest_key
from campaigns.lists.intake import AddressReader
from campaigns.models import Message, MessageEvent, Resolution, Session, Sponsor, Suppression, VendorMessageId
from campaigns.models.jobs import read_reference
from campaigns.texts.given_texts import given_address
from vendors.models import Vendor

MOST = 50  # messages shown, newest first
LONGEST = 2_000  # characters of the search text
NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
WRITTEN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
E = Vendor.Channel.EMAIL.value
ChannelAddress = tuple[str, str]  # channel, stored form

# Uses the index on the hash, then excludes collisions. E-mail addresses match in any case.
BY_ADDRESS = """
SELECT m.id FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
WHERE hashtextextended(lower(m.recipient), 0) = ANY(ARRAY(
        SELECT hashtextextended(lower(a), 0) FROM unnest(%(addresses)s::text[]) a))
    AND (m.recipient = ANY(%(addresses)s::text[]) OR lower(m.recipient) = lower(%(mail)s::text))
    AND (%(sponsors)s::bigint[] IS NULL OR c.sponsor_id = ANY(%(sponsors)s::bigint[]))
ORDER BY m.id DESC LIMIT %(most)s
"""
JOBS = """
SELECT m.id, j.id, j.status FROM unnest(%(messages)s::bigint[]) AS m (id) JOIN campaigns_message r ON r.id = m.id
CROSS JOIN LATERAL (
    SELECT j.id, j.status FROM campaigns_job j WHERE j.campaign_id = r.campaign_id
        AND m.id >= j.first_message AND m.id < j.first_message + j.size
    ORDER BY j.parent_id IS NULL LIMIT 1
) j
"""


@dataclass(frozen=True, slots=True)
class Happening:
    """An event in a message's history. at: by the clock of its source."""

    at: datetime
    what: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message with its state for users, the vendor that has it, and its history in order of time."""

    message: Message
    state: str
    vendor: str
    happenings: tuple[Happening, ...]

    @property
    def name(self) -> str:
        """The message's id for programs."""
        return public_ids.id_of_number("msg", self.message.pk)


@dataclass(frozen=True, slots=True)
class FoundRecipient:
    """The search result. more: older messages exist beyond MOST. suppressed: suppressions of these recipients."""

    messages: tuple[FoundMessage, ...] = ()
    suppressed: tuple[Suppression, ...] = ()
    more: bool = False


def look_for(text: str, sponsors: Sequence[int] | None, test: bool | None = None) -> FoundRecipient:
    """Return the messages that this text names, newest first. sponsors: only theirs; None: of all.

    A phone number without country code is tried in each sponsor's region. test: True: only those requested by test
    keys; False: only others; None: both.
    """
    text = given_address(text)
    if not text or len(text) > LONGEST or "\0" in text:
        return FoundRecipient()
    addresses = _parse_addresses(text, sponsors)
    ids = {*_ids_by_reference(text), *_ids_by_vendors_id(text), *_ids_by_address(addresses, sponsors)}
    found = _load_messages(ids, sponsors, test)
    recipients = {*addresses, *((one.campaign.credential.vendor.channel, one.recipient) for one in found)}
    messages = tuple(_describe_messages(found[:MOST]))
    return FoundRecipient(messages, tuple(_find_suppressions(recipients, sponsors)), len(found) > MOST)


def _ids_by_reference(text: str) -> list[int]:
    """Return the id of the message with this reference, with or without the count of sendings, or this number."""
    lower = text.lower()
    if WRITTEN.fullmatch(lower):
        lower += "-0"
    if reference := read_reference(lower):
        known = Message.objects.filter(pk=reference.id, uuid=UUID(str(reference.uuid)))
        return list(known.values_list("pk", flat=True))
    number = int(text) if NUMBER.fullmatch(text) else public_ids.number_of_id("msg", text)
    return [] if number is None else list(Message.objects.filter(pk=number).values_list("pk", flat=True))


def _ids_by_vendors_id(text: str) -> list[int]:
    rows = VendorMessageId.objects.filter(vendor__in=list(Vendor.objects.values_list("pk", flat=True)), name=text)
    return list(rows.order_by("-message").values_list("message", flat=True)[: MOST + 1])


def _parse_addresses(text: str, sponsors: Sequence[int] | None) -> set[ChannelAddress]:
    """Return the text as an address of each channel for which it is valid."""
    mine = Sponsor.objects.of_sponsors(sponsors).exclude(phone_region="")
    regions = mine.order_by("phone_region").values_list("phone_region", flat=True).distinct()[:MOST]
    readers = [(channel, AddressReader(channel)) for channel in Vendor.Channel.values]
    sms = Vendor.Channel.SMS.value
    found = set()
    for channel, reader in [*readers, *((sms, AddressReader(sms, region)) for region in regions)]:
        with suppress(ValueError):
            found.add((channel, reader(text)))
    return found


def _ids_by_address(addresses: Collection[ChannelAddress], sponsors: Sequence[int] | None) -> list[int]:
    asked: dict[str, Any] = {"addresses": sorted({address for _channel, address in addresses})}
    asked |= {"mail": next((address for channel, address in addresses if channel == E), None), "most": MOST + 1}
    with connection.cursor() as cursor:
        cursor.execute(BY_ADDRESS, {**asked, "sponsors": None if sponsors is None else list(sponsors)})
        return [number for (number,) in cursor.fetchall()]


def _load_messages(ids: Collection[int], sponsors: Sequence[int] | None, test: bool | None) -> list[Message]:
    of = ("campaign__sponsor", "campaign__credential__vendor")
    rows = Message.objects.of_sponsors(sponsors).filter(pk__in=ids).select_related(*of)
    if test is not None:
        asked = Session.objects.filter(job__campaign=OuterRef("campaign"), test=True)
        rows = rows.filter(Exists(asked) if test else ~Exists(asked))
    return list(
        rows.defer("campaign__body", "campaign__text", "campaign__credential__secret").order_by("-pk")[: MOST + 1]
    )


def _describe_messages(rows: Sequence[Message]) -> Iterator[FoundMessage]:
    if not rows:
        return
    ids = [row.pk for row in rows]
    with connection.cursor() as cursor:
        cursor.execute(JOBS, {"messages": ids})
        jobs = {message: (job, status) for message, job, status in cursor.fetchall()}
    called = progress.messages_in_flight({job for job, _status in jobs.values()})
    vendors = whose.vendors_of_messages(ids)
    events: dict[int, list[Happening]] = {pk: [] for pk in ids}
    for event in MessageEvent.objects.filter(message__in=ids):
        said = " ".join(filter(None, (event.code, event.note)))
        events[event.message_id].append(Happening(event.at, event.get_kind_display(), said))
    for one in Resolution.objects.filter(message__in=ids):
        if one.decided_by == putting_back.ITSELF:
            what, said = _("Refused in a row of equal refusals, so it waits again"), one.evidence
        else:
            names = {"name": one.decided_by, "decision": one.get_decision_display()}
            what, said = _("Settled by %(name)s: %(decision)s") % names, one.reason
        events[one.message_id].append(Happening(one.created_at, what, said))
    for row in rows:
        stopped = jobs.get(row.pk, (0, ""))[1] in STILL
        state = labels.label_of_message(row, in_flight=row.pk in called, stopped=stopped)
        order = sorted([*_events_of_columns(row), *events[row.pk]], key=lambda one: one.at)
        yield FoundMessage(row, state, vendors.get(row.pk, (0, ""))[1], tuple(order))


def _events_of_columns(row: Message) -> Iterator[Happening]:
    """Yield the events stored in the message's own columns."""
    yield Happening(row.campaign.created_at, _("Accepted by mailhub"))
    if row.sent_at:
        yield Happening(row.sent_at, _("Called at the vendor"))
    if row.delivered_at and row.message_id is not None:
        yield Happening(row.delivered_at, _("Accepted by the vendor"), row.message_id)
    elif row.delivered_at and row.error_code is not None:
        yield Happening(
            row.delivered_at, _("Refused by the vendor"), f"{row.error_code} {row.error_sub_type or ''}".strip()
        )
    elif row.dequeued_at and row.error_code is not None:
        ends = {"expired": _("Expired before it was sent"), "suppressed": _("Not sent: the recipient is suppressed")}
        yield Happening(row.dequeued_at, ends.get(row.error_code, _("Failed")), row.error_sub_type or "")
    if row.in_doubt_at:
        yield Happening(row.in_doubt_at, _("Needs attention: the vendor may have it"), row.error_sub_type or "")
    if row.report_at and row.report:
        yield Happening(
            row.report_at, _("Reported by the vendor: %s") % row.get_report_display(), row.report_note or ""
        )


def _find_suppressions(recipients: Collection[ChannelAddress], sponsors: Sequence[int] | None) -> list[Suppression]:
    """Return suppressions for these sponsors and those for all, including ended ones."""
    secret = digest_key()
    if secret is None or not recipients:
        return []
    mine = Q() if sponsors is None else Q(sponsor=None) | Q(sponsor__in=list(sponsors))
    hashes = {digest_address(secret, channel, address) for channel, address in recipients}
    rows = Suppression.objects.filter(mine, digest__in=hashes).select_related("sponsor", "topic")
    return list(rows.order_by("-since")[:MOST])


def found_facts(one: FoundMessage) -> dict[str, Any]:
    """Return a message for programs."""
    row = one.message
    return {
        "reference": row.reference,
        "campaign": row.campaign.name,
        "status": one.state.lower().replace(" ", "_"),
        "cause": row.cause,
        "vendor": one.vendor,
        "vendor_message_id": row.message_id,
        "events": [
            {"at": happening.at.isoformat(), "event": happening.what, "note": happening.note or None}
            for happening in one.happenings
        ],
    }


def suppression_facts(row: Suppression) -> dict[str, Any]:
    """Return a suppression for programs. sponsor: None if it is for all."""
    return {
        "sponsor": row.sponsor.name if row.sponsor else None,
        "reason": row.reason,
        "topic": row.topic.name if row.topic else None,
        "since": row.since.isoformat(timespec="seconds"),
        "until": row.until.isoformat(timespec="seconds") if row.until else None,
    }
