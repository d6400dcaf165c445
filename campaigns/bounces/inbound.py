"""Finds the message a mail is about, stores the event, and counts every incoming mail.

Events are stored like delivery reports (campaigns/engine/delivery_reports.py): once, even if a mail is repeated. Only a
recipient knows the token or reference, so a forged mail harms the forger's own address only.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from django.db import connection

from campaigns import return_paths
from campaigns.bounces.parser import MOST, ParsedMail, parse
from campaigns.engine import delivery_reports
from campaigns.engine.message_events import Kind
from campaigns.engine.routes import whose
from campaigns.models import Identity, Message
from campaigns.models.jobs import Reference, read_reference
from campaigns.suppression import unsubscribing
from vendors.adapters.reports import Bounce, Reported

BOUNCE: dict[str, Bounce] = {Kind.HARD_BOUNCE: "hard", Kind.SOFT_BOUNCE: "soft", Kind.BLOCKED: "blocked"}
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

    what: a kind of event, or repeated, unsubscribed, forged, not_ours, refused, or `parser.Other`.

    calls: ids of webhook calls that are due now.
    """

    what: str
    calls: tuple[int, ...] = ()


def take(mail: InboundMail, source: str) -> TakenMail:
    """Store the event of a mail and count it. source: receiver or mailbox. Raises the database's errors."""
    taken = _take(mail, parse(mail.content), source)
    count(taken.what)
    return taken


def _take(mail: InboundMail, parsed: ParsedMail, source: str) -> TakenMail:
    to = " ".join(mail.recipients)
    if not isinstance(parsed.what, Kind):
        asked = None if mail.null_sender else return_paths.read(to, "unsubscribe")
        if asked and parsed.what == "not_a_report":
            known = unsubscribing.by_message(asked.uuid, "e-mail")
            return TakenMail("unsubscribed" if known else "not_ours")
        return TakenMail(parsed.what)
    text = mail.content[:MOST].decode("latin-1")
    message = return_paths.read(to, "return-path") or return_paths.read(text, "return-path")
    message = message or read_reference(parsed.reference)
    vendor_id = _vendor(message) if message else None
    if not message or vendor_id is None:
        return TakenMail("forged" if not message and return_paths.looks_like_one(to) else "not_ours")
    stored = delivery_reports.take(vendor_id, [_reported(message, parsed, mail.at)], source)
    return TakenMail(parsed.what.value if stored.events else "repeated", stored.calls)


def _vendor(message: Reference) -> int | None:
    rows = Message.objects.filter(pk=message.id, uuid=message.uuid, resend_no__gte=message.resend_no)
    return whose.vendors([message.id])[message.id][0] if rows.exists() else None


def _reported(message: Reference, parsed: ParsedMail, at: datetime) -> Reported:
    at, reference = min(at, datetime.now(UTC)), f"{message.uuid}-{message.resend_no}"
    if parsed.what == Kind.COMPLAINT:
        return Reported(reference, "complained", at, note=parsed.note)
    bounce = BOUNCE[parsed.what]
    return Reported(reference, "bounced", at, note=parsed.note, bounce=bounce, code=parsed.code)


def count(what: str, mails: int = 1) -> None:
    """Add to today's count of mails, by UTC."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT, [what, mails])


class Mailboxes:
    """The addresses without a token that mail may come to, such as reports of feedback loops."""

    def __init__(self) -> None:
        self._lock, self._known, self._read_at = Lock(), frozenset[str](), float("-inf")

    def wants(self, address: str) -> bool:
        """Return whether a mail to this address is for us. Raises the database's errors."""
        if return_paths.read(address, "return-path") or return_paths.read(address, "unsubscribe"):
            return True
        with self._lock:
            if time.monotonic() - self._read_at > FRESH:
                self._known = frozenset(_mailboxes())
                self._read_at = time.monotonic()
        return address.lower() in self._known


def _mailboxes() -> Iterable[str]:
    rows: Any = Identity.objects.filter(verp=True)
    return [row.bounce_mailbox.lower() for row in rows]
