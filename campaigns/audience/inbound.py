"""Handles messages to our numbers: STOP suppresses, START lifts that, HELP is answered; a person reads the rest.

A message and its effect are one transaction, and the vendor gets its answer afterwards. So a stored STOP has
suppressed, and a lost one comes again. A repeated one has no second effect, even if its sender has written START in
between. Messages of one sender are taken one at a time. Of STOP and START, the one written later is in force, in any
order of arrival; at equal times STOP wins.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from campaigns.audience.answers import inbox
from campaigns.audience.answers.inbox import NewAnswer, Understood
from campaigns.audience.answers.judgement import answer_itself, judge_answer, split_text
from campaigns.engine import day_counts
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.ports import NotEntitled
from campaigns.lists import intake
from campaigns.lists.intake import BadInput
from campaigns.models import Campaign, Entitlement, Identity, InboundMessage, RecipientAnswer, Suppression
from campaigns.senders.entitlements import require_entitlement
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from campaigns.texts.phone_numbers import parse_e164, region_of
from vendors import alarms
from vendors.adapters.reports import InboundText
from vendors.instants import convert_to_utc
from vendors.models import Credential, Vendor
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)
Command = InboundMessage.Command

# Texts that ask for more than STOP, whose words are in campaigns/audience/answers/phrases.toml.
ASKING = {Command.START: ("start", "unstop"), Command.HELP: ("help", "info")}
AGAIN = timedelta(hours=1)  # a number gets one answer to HELP within this time, lest two machines answer each other
LONGEST = 255
ABROAD = re.compile(r"\A\s*00(?=[1-9])")  # ITU-T E.123
AT_HOME = re.compile(r"\s*0[1-9]")
MOST = 500  # messages of one request, each in its own transaction


@dataclass(frozen=True, slots=True)
class TakenTexts:
    """The result of one request. new: number of messages not stored before. calls: webhook calls due now."""

    new: int
    calls: tuple[int, ...]


def store_texts(vendor_id: int, messages: Sequence[InboundText], credentials: Sequence[int] = ()) -> TakenTexts:
    """Store new messages, carry out their commands, keep the others to be read. Raises database errors.

    Call it before the vendor gets its answer. credentials: whose proof came with the request; only sponsors that may
    use one of them are concerned. Empty: all of the vendor's.
    """
    vendor = Vendor.objects.get(pk=vendor_id)
    new, calls = 0, list[int]()
    for one in messages:  # a transaction each, or two requests could deadlock
        with transaction.atomic():
            stored = _store_text(vendor, one, credentials)
            job = None
            if stored:  # webhooks are locked before suppressions, for which claims wait
                calls += inbox.take_answer(_answer_of(vendor, stored, credentials))
                job = _obey_command(vendor, stored, credentials)
        new += stored is not None
        if job:  # if this process dies here, the sweep does it
            dispatcher.dispatch_ready([job])
            dispatcher.notify_vendors([vendor_id])
    return TakenTexts(new, tuple(calls))


def _answer_of(vendor: Vendor, row: InboundMessage, credentials: Sequence[int]) -> NewAnswer:
    """Return a stored message for the inbox of answers and for programs."""
    understood: Understood = "other"
    if row.command:
        understood = cast("Understood", row.command)
    elif judge_answer(row.text, row.identity.stop_texts if row.identity else ()) != "other":
        understood = "near"
    return NewAnswer(
        name=f"sms {row.pk}",
        kind=RecipientAnswer.Kind.SMS,
        channel=Vendor.Channel.SMS.value,
        understood=understood,
        sender=row.sender,
        to=row.to,
        text=row.text,
        sponsor_id=row.sponsor_id,
        concerned=() if row.command else sponsors_concerned(vendor, row, credentials),
        vendor_id=vendor.pk,
        at=row.written_at,
        test=vendor.sandbox,
    )


ONE_SENDER = "SELECT pg_advisory_xact_lock(hashtextextended('campaigns.inbound ' || %s, 0))"
STORE = """
INSERT INTO campaigns_inboundmessage (vendor_id, sponsor_id, identity_id, name, sender, "to", text, command, written_at)
VALUES (%(vendor)s, %(sponsor)s, %(identity)s, %(name)s, %(sender)s, %(to)s, %(text)s, %(command)s,
    least(%(at)s::timestamptz, clock_timestamp()))
ON CONFLICT DO NOTHING RETURNING id
"""


def _store_text(vendor: Vendor, one: InboundText, credentials: Sequence[int]) -> InboundMessage | None:
    to = _number_as_e164(one.to)
    sender = _number_as_e164(one.sender, region_of(to))
    identity = _owner_of_number(to)
    if identity and not _entitlements_of_account(vendor, credentials).filter(sponsor=identity.sponsor_id).exists():
        identity = None  # a sponsor does not read messages from a vendor or account it may not use
    row = {
        "vendor": vendor.pk,
        "sponsor": identity.sponsor_id if identity else None,
        "identity": identity.pk if identity else None,
        "name": _storable_body(one.vendor_id)[:LONGEST],
        "sender": sender,
        "to": to,
        "text": _storable_body(one.text),
        "command": command_of(one.text, identity).value,
        "at": one.at and convert_to_utc(one.at),
    }
    with connection.cursor() as cursor:
        cursor.execute(ONE_SENDER, [sender])
        cursor.execute(STORE, row)
        found = cursor.fetchone()
    return InboundMessage.objects.select_related("identity__sponsor").get(pk=found[0]) if found else None


def _entitlements_of_account(vendor: Vendor, credentials: Sequence[int]) -> QuerySet[Entitlement]:
    rows = Entitlement.objects.filter(vendor=vendor)
    return rows.filter(Q(credential=None) | Q(credential__in=credentials)) if credentials else rows


def _owner_of_number(number: str) -> Identity | None:
    return Identity.objects.filter(channel=Vendor.Channel.SMS, numbers__contains=[number]).first()


def command_of(text: str, identity: Identity | None) -> Command:
    """Return the command in a text. The identity's own words count first, and START and HELP as a whole text only."""
    tokens = split_text(answer_itself(text))
    if tokens and identity:
        for command in (Command.STOP, Command.START, Command.HELP):
            if tokens in map(split_text, getattr(identity, f"{command.value}_texts")):
                is_sure = command != Command.STOP or judge_answer(text, identity.stop_texts) == "stop"
                return command if is_sure else Command.NONE
    if judge_answer(text) == "stop":
        return Command.STOP
    return next((one for one, texts in ASKING.items() if tokens in map(split_text, texts)), Command.NONE)


def _obey_command(vendor: Vendor, row: InboundMessage, credentials: Sequence[int]) -> int | None:
    """Carry out the message's command. Returns the job of an answer, or None."""
    match row.command:
        case Command.STOP:
            new = NewSuppression(
                row.sender, Suppression.Reason.STOP.value, _suppression_source(vendor, row), row.written_at
            )
            for sponsor in sponsors_concerned(vendor, row, credentials):
                restarted = _has_sent_command(row, sponsor, Command.START, Q(written_at__gt=row.written_at))
                if not restarted and lists.add_suppressions(sponsor, Vendor.Channel.SMS, [new]):
                    day_counts.count_unsubscribed(sponsor)
        case Command.START:
            held = [
                id
                for sponsor in sponsors_concerned(vendor, row, credentials)
                for id in _suppressions_to_lift(vendor, row, sponsor)
            ]
            lists.lift_suppressions(held)
        case Command.HELP:
            return _answer_help(vendor, row, credentials)
    return None


def _suppression_source(vendor: Vendor, row: InboundMessage) -> str:
    return Said(gettext_noop("inbound, %(vendor)s: %(number)s"), vendor=vendor.slug, number=row.to)


def sponsors_concerned(vendor: Vendor, row: InboundMessage, credentials: Sequence[int]) -> list[int]:
    """Return the sponsors whose messages the sender may have received.

    Without an identity, the number may be that of any sponsor of the account. A message other than START and HELP also
    concerns the number's sponsor if it has lost the account through which it sent.
    """
    if row.sponsor_id:
        return [row.sponsor_id]
    found = set(_entitlements_of_account(vendor, credentials).values_list("sponsor", flat=True))
    if row.command in (Command.STOP, Command.NONE) and (owner := _owner_of_number(row.to)):
        sent = Campaign.objects.filter(sponsor=owner.sponsor_id, credential__in=credentials)
        if not credentials or sent.exists():
            found.add(owner.sponsor_id)
    return sorted(found)


def _has_sent_command(row: InboundMessage, sponsor_id: int, command: Command, when: Q) -> bool:
    """Return True if the sender has sent this command to the sponsor at such a time."""
    to = Q(sponsor=sponsor_id) | Q(sponsor=None, vendor=row.vendor_id)
    return InboundMessage.objects.filter(to, when, sender=row.sender, command=command).exists()


def _suppressions_to_lift(vendor: Vendor, row: InboundMessage, sponsor_id: int) -> list[int]:
    """Return the suppressions that START lifts: older ones by STOP; without an identity, those by the same number."""
    if _has_sent_command(row, sponsor_id, Command.STOP, Q(written_at__gte=row.written_at)):
        return []
    of = lists.ids_of_addresses(Vendor.Channel.SMS, [row.sender], sponsor_id)
    found = Suppression.objects.filter(pk__in=of, reason=Suppression.Reason.STOP, since__lte=row.written_at)
    if row.sponsor_id is None:
        found = found.filter(source=_suppression_source(vendor, row))
    return list(found.values_list("pk", flat=True))


def _answer_help(vendor: Vendor, row: InboundMessage, credentials: Sequence[int]) -> int | None:
    """Accept the answer to HELP as a campaign of one recipient. Returns its job, or None without an answer."""
    identity = row.identity
    if identity is None or not (identity.help_answer and identity.enabled):
        return None
    before = InboundMessage.objects.filter(sender=row.sender, identity=identity, answer__isnull=False)
    if before.filter(stored_at__gt=timezone.now() - AGAIN).exists():
        return None
    try:
        with transaction.atomic():
            credential = _credential_for_answer(identity, vendor, credentials)
            job = intake.store_campaign(
                sponsor=identity.sponsor,
                credential=credential,
                name=f"HELP {row.pk}",
                subject="",
                body="{% raw %}" + identity.help_answer + "{% endraw %}",
                html=False,
                recipients=[(row.sender, {})],
                at="now",
                identity=identity.name,
                transactional=identity.sponsor.may_be_transactional,
                without_approval=True,
            )
    except (NotEntitled, BadInput) as error:
        alarms.HELP_NOT_ANSWERED.log(log, identity, str(error)[:300])
        return None
    InboundMessage.objects.filter(pk=row.pk).update(answer=job.campaign_id)
    return job.pk


def _credential_for_answer(identity: Identity, vendor: Vendor, credentials: Sequence[int]) -> Credential:
    """Return the credential for the sponsor's answer: the only one of these, or "default". Raises NotEntitled."""
    rows = vendor.credentials.select_related("vendor").order_by("-name")
    found = list(rows.filter(pk__in=credentials) if credentials else rows)
    for credential in found:
        if credential.name == "default" or len(found) == 1:
            require_entitlement(identity.sponsor, credential)
            return credential
    raise NotEntitled(Said("%(vendor)s has no credential called default", vendor=vendor.slug))


def _number_as_e164(text: str, region: str = "") -> str:
    """Normalise to E.164, adding a missing +, also for 00. Anything else, such as a short code, is returned unchanged.

    region: of our number, for a sender that the vendor tells with the 0 of its own country.
    """
    spellings = [(text, ""), (f"+{text}", ""), (ABROAD.sub("+", text), "")]
    if region and AT_HOME.match(text):
        spellings.append((text, region))
    for spelling, there in spellings:
        try:
            return parse_e164(spelling, there)
        except ValueError:
            continue
    return _storable_body(text)[:LONGEST]


def _storable_body(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


# By id, because ids rise with the time of storing.
DELETE = """
DELETE FROM campaigns_inboundmessage WHERE stored_at < clock_timestamp() - %(kept)s AND id IN (
    SELECT id FROM campaigns_inboundmessage ORDER BY id LIMIT %(most)s)
"""


def delete_old_texts(at_once: int = 10_000) -> int:
    """Delete messages stored more than EVENT_DAYS ago, `at_once` in each statement. Return their number."""
    params: dict[str, Any] = {"kept": settings.EVENTS_KEPT, "most": at_once}
    number, some = 0, -1
    with connection.cursor() as cursor:
        while some:
            cursor.execute(DELETE, params)
            some = cursor.rowcount
            number += some
    return number
