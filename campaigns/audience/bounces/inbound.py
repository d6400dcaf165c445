"""Finds the message a mail is about, stores the event, and counts every incoming mail.

Events are stored like delivery reports (campaigns/engine/delivery_reports.py): once, even if a mail is repeated. Only a
recipient knows the token or reference, so a forged mail harms the forger's own address only.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from django.db import connection, transaction

from campaigns.audience.answers import inbox
from campaigns.audience.answers.inbox import NewAnswer, Understood
from campaigns.audience.answers.judgement import answer_itself, judge_answer
from campaigns.audience.bounces.parser import FRAUD, MOST, ParsedMail, parse_bounce
from campaigns.audience.bounces.replies import MailReply, read_reply
from campaigns.content import return_paths
from campaigns.engine import delivery_reports
from campaigns.engine.message_events import Kind
from campaigns.engine.routes import whose
from campaigns.lists.intake.checking import normal_email
from campaigns.models import Identity, Message, RecipientAnswer
from campaigns.models.answers import NO_TEXT
from campaigns.models.jobs import Reference, read_reference
from campaigns.suppression import unsubscribing
from vendors.adapters.reports import Bounce, Reported, ReportedKind

DELAYED = "delayed"
BOUNCE: dict[str, Bounce] = {Kind.HARD_BOUNCE: "hard", Kind.SOFT_BOUNCE: "soft", Kind.BLOCKED: "blocked"}
WISHES: dict[str, ReportedKind] = {Kind.COMPLAINT: "complained", Kind.UNSUBSCRIBED: "unsubscribed"}
FRESH = 30.0  # seconds for which the identities' mailboxes are cached

COUNT = """
INSERT INTO campaigns_inboundcount AS was (day, what, mails) VALUES ((now() AT TIME ZONE 'UTC')::date, %s, %s)
ON CONFLICT (day, what) DO UPDATE SET mails = was.mails + EXCLUDED.mails
"""


@dataclass(frozen=True, slots=True)
class InboundMail:
    """An incoming mail. recipients: of its envelope, or those in its headers. at: time of arrival.

    null_sender: it must not be answered, like any bounce.
    """

    content: bytes
    recipients: tuple[str, ...]
    null_sender: bool
    at: datetime


@dataclass(frozen=True, slots=True)
class TakenMail:
    """The result for a mail.

    what: a kind of event, or repeated, unsubscribed, answer, forged, not_ours, refused, or `parser.Other`.

    calls: ids of the webhook calls due now.
    """

    what: str
    calls: tuple[int, ...] = ()


def store_mail(mail: InboundMail, source: str) -> TakenMail:
    """Store the event of a mail and count it. source: receiver or mailbox. Raises the database's errors."""
    taken = _take_parsed(mail, parse_bounce(mail.content, mail.recipients), source)
    count_mails(taken.what)
    return taken


def _take_parsed(mail: InboundMail, parsed: ParsedMail, source: str) -> TakenMail:
    to = " ".join(mail.recipients)
    if not isinstance(parsed.what, Kind) and parsed.what != DELAYED:
        if mail.null_sender or parsed.what != "not_a_report":
            return TakenMail(parsed.what)
        if asked := return_paths.read_return_path(to, "unsubscribe"):
            known = unsubscribing.unsubscribe_message(asked.uuid, "e-mail")
            return TakenMail("unsubscribed" if known else "not_ours")
        return _take_reply(mail, to)
    text = mail.content[:MOST].decode("latin-1")
    message = return_paths.read_return_path(to, "return-path") or return_paths.read_return_path(text, "return-path")
    message = message or read_reference(parsed.reference)
    vendor_id = _vendor_of_message(message) if message else None
    if not message or vendor_id is None:
        forged = not message and return_paths.looks_like_one(to)
        return TakenMail(DELAYED if parsed.what == DELAYED else "forged" if forged else "not_ours")
    stored = delivery_reports.store_reports(vendor_id, [_mail_as_report(message, parsed, mail.at)], source)
    calls = stored.calls
    if parsed.note == FRAUD and (found := _answered_message(message)):
        calls += tuple(inbox.take_answer(_fraud_answer(found, parsed, to, mail.at)))
    return TakenMail(str(parsed.what) if stored.events or parsed.what == DELAYED else "repeated", calls)


def _take_reply(mail: InboundMail, to: str) -> TakenMail:
    """Unsubscribe a recipient who surely asks for it in a reply to one of our mails; keep other replies to be read.

    A mail of another sender, such as somebody it was forwarded to, unsubscribes nobody.
    """
    reply = read_reply(mail.content)
    named = return_paths.read_return_path(to, "return-path") or read_reference(reply.reference)
    message = _answered_message(named) if named else None
    if message is None:
        return _take_letter(mail, reply, to)
    understood = _judge_reply(reply)
    sender = _normal_address(reply.sender)
    is_other = sender.casefold() != _normal_address(message.recipient).casefold()
    if understood == "stop" and (is_other or message.campaign.transactional):
        understood = "near"  # a transactional mail lacks a link to unsubscribe, too; a person decides
    text = _reply_text(reply)
    new = _answer_to(message, "mail", reply.digest, RecipientAnswer.Kind.REPLY, understood, to, text, mail.at)
    new = replace(new, writer=sender or "?") if is_other else new
    with transaction.atomic():
        calls = inbox.take_answer(new)
        if understood == "stop":
            unsubscribing.unsubscribe_message(message.uuid, "reply", everything=True)
    return TakenMail("unsubscribed" if understood == "stop" else "answer", tuple(calls))


def _take_letter(mail: InboundMail, reply: MailReply, to: str) -> TakenMail:
    """Keep a mail to an identity's Reply-To that names no message of ours. Its From may be forged: a person decides."""
    identity = next((row for row in _identities_with_reply_to() if row.reply_address in to.lower().split()), None)
    if identity is None:
        return TakenMail("not_a_report")
    new = NewAnswer(
        name=f"mail {identity.pk} {reply.digest}",
        kind=RecipientAnswer.Kind.REPLY,
        channel=identity.channel,
        understood="other" if _judge_reply(reply) == "other" else "near",
        sender=_normal_address(reply.sender),
        to=identity.reply_address,
        text=_reply_text(reply),
        sponsor_id=identity.sponsor_id,
        at=mail.at,
    )
    with transaction.atomic():
        return TakenMail("answer", tuple(inbox.take_answer(new)))


def _identities_with_reply_to() -> Iterable[Identity]:
    return Identity.objects.filter(verp=True).exclude(reply_to="").order_by("pk")


def _normal_address(text: str) -> str:
    try:
        return normal_email(text)
    except ValueError:
        return text


def _reply_text(reply: MailReply) -> str:
    return reply.text.strip() or reply.subject or NO_TEXT


def _judge_reply(reply: MailReply) -> Understood:
    """Judge the text. The subject counts unless it repeats ours, or if there is no text."""
    said, about, is_empty = judge_answer(reply.text), judge_answer(reply.subject), not answer_itself(reply.text)
    if said == "stop" or (about == "stop" and is_empty and not reply.is_reply):
        return "stop"
    counts = is_empty or not reply.is_reply
    return "near" if said == "near" or (counts and about != "other") else "other"


def _fraud_answer(message: Message, parsed: ParsedMail, to: str, at: datetime) -> NewAnswer:
    kind, name = RecipientAnswer.Kind.FRAUD, f"{message.resend_no}"
    return _answer_to(message, "fraud", name, kind, "fraud", to, f"Feedback-Type: {parsed.note}", at)


def _answer_to(
    message: Message,
    prefix: str,
    name: str,
    kind: RecipientAnswer.Kind,
    understood: Understood,
    to: str,
    text: str,
    at: datetime,
) -> NewAnswer:
    campaign = message.campaign
    return NewAnswer(
        name=f"{prefix} {message.uuid} {name}",
        kind=kind,
        channel=campaign.credential.vendor.channel,
        understood=understood,
        sender=message.recipient,
        to=to,
        text=text,
        sponsor_id=campaign.sponsor_id,
        vendor_id=campaign.credential.vendor_id,
        message_id=message.pk,
        message_uuid=message.uuid,
        campaign_id=campaign.pk,
        at=at,
        test=campaign.credential.vendor.sandbox,
    )


def _answered_message(message: Reference) -> Message | None:
    rows = Message.objects.filter(pk=message.id, uuid=message.uuid).defer("campaign__credential__secret")
    return rows.select_related("campaign__credential__vendor").first()


def _vendor_of_message(message: Reference) -> int | None:
    rows = Message.objects.filter(pk=message.id, uuid=message.uuid, resend_no__gte=message.resend_no)
    return whose.vendors_of_messages([message.id])[message.id][0] if rows.exists() else None


def find_sponsors(addresses: Mapping[str, str]) -> dict[str, int]:
    """Return the sponsors of the messages that these texts with addresses name, by the texts' keys."""
    named = {}
    for name, text in addresses.items():
        if message := return_paths.read_return_path(text, "return-path") or return_paths.read_return_path(
            text, "unsubscribe"
        ):
            named[name] = message.id
    rows = Message.objects.filter(pk__in=set(named.values())).values_list("pk", "campaign__sponsor_id")
    sponsors = dict(rows)
    return {name: sponsors[pk] for name, pk in named.items() if pk in sponsors}


def _mail_as_report(message: Reference, parsed: ParsedMail, at: datetime) -> Reported:
    at, reference = min(at, datetime.now(UTC)), f"{message.uuid}-{message.resend_no}"
    if wish := WISHES.get(parsed.what):
        return Reported(reference, wish, at, note=parsed.note)
    if parsed.what == DELAYED:
        return Reported(reference, "deferred", at, note=parsed.note, code=parsed.code, cause=parsed.cause)
    bounce = BOUNCE[parsed.what]
    return Reported(reference, "bounced", at, note=parsed.note, bounce=bounce, code=parsed.code, cause=parsed.cause)


def count_mails(what: str, mails: int = 1) -> None:
    """Add to today's count of mails, by UTC."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, [what, mails])


class Mailboxes:
    """The addresses without a token that mail may come to: reports of feedback loops, replies to a Reply-To."""

    def __init__(self) -> None:
        self._lock, self._known, self._read_at = Lock(), frozenset[str](), float("-inf")

    def wants_address(self, address: str) -> bool:
        """Return True if a mail to this address is for us. Raises the database's errors."""
        if return_paths.read_return_path(address, "return-path") or return_paths.read_return_path(
            address, "unsubscribe"
        ):
            return True
        with self._lock:
            if time.monotonic() - self._read_at > FRESH:
                self._known = frozenset(_mailbox_addresses())
                self._read_at = time.monotonic()
        return address.lower() in self._known


def _mailbox_addresses() -> Iterable[str]:
    rows: Any = Identity.objects.filter(verp=True)
    return [one for row in rows for one in (row.bounce_mailbox.lower(), row.reply_address) if one]
