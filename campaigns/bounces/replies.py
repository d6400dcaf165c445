"""Reads a mail that a person wrote in answer to one of ours: what it says, and which message it names.

Never raises, and takes bounded time for any input, like parser.
"""

import hashlib
import html
import re
from contextlib import suppress
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parseaddr

from campaigns.bounces.parser import MOST, MOST_PARTS, REPLY, read_mail, walk_parts

MOST_TEXT = 40_000  # characters of a part
OURS = re.compile(r"<([0-9a-f-]{36}-\d{1,5})@", re.IGNORECASE)
_QUOTED = re.compile(r"<(blockquote|style|script|head)\b.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
_BREAKS = re.compile(r"<(?:br|/p|/div|/li|/tr|/h\d)\b[^<>]{0,500}>", re.IGNORECASE)
_TAGS = re.compile(r"<[^<>]{0,500}>")


@dataclass(frozen=True, slots=True)
class MailReply:
    """A person's mail.

    text: of its first text part. is_reply: its subject says so. sender: its From, which anybody may forge. reference:
    of the message it answers by In-Reply-To or References; not checked. digest: the same for the mail each time.
    """

    subject: str
    text: str
    is_reply: bool
    sender: str
    reference: str
    digest: str


def read_reply(raw: bytes) -> MailReply:
    """Read a mail as received; only its first MOST bytes count."""
    raw = raw[:MOST]
    try:
        mail = read_mail(raw)
        subject, named = _subject(mail), _first_reference(mail)
        sender, text = parseaddr(str(mail.get("From") or ""))[1], _text(mail)
        id = str(mail.get("Message-ID") or "").strip().encode(errors="replace") or raw
    except Exception:  # the standard library raises many errors for malformed mails
        subject, named, sender, text, id = "", "", "", raw.decode("utf-8", "replace")[:MOST_TEXT], raw
    replied = REPLY.match(subject)
    digest = hashlib.sha256(id).hexdigest()[:32]
    return MailReply(
        subject[replied.end() :].strip() if replied else subject, text, bool(replied), sender, named, digest
    )


def _subject(mail: Message) -> str:
    given = str(mail.get("Subject") or "")
    with suppress(HeaderParseError, LookupError, UnicodeError, ValueError):
        given = str(make_header(decode_header(given)))
    return " ".join(given.split())


def _first_reference(mail: Message) -> str:
    """Return our reference from In-Reply-To, else the last one in References."""
    answered = OURS.search(str(mail.get("In-Reply-To") or ""))
    found = [answered[1]] if answered else OURS.findall(str(mail.get("References") or ""))
    return found[-1].lower() if found else ""


def _text(mail: Message) -> str:
    """Return the text of the first part that is text and no attachment; of HTML without what it quotes."""
    parts = [part for _, part in zip(range(MOST_PARTS), walk_parts(mail), strict=False)]
    for kind in ("text/plain", "text/html"):
        for part in parts:
            if part.get_content_type() == kind and part.get_content_disposition() != "attachment":
                text = _decoded(part)[:MOST_TEXT]
                return _without_tags(text) if kind == "text/html" else text
    return ""


def _decoded(part: Message) -> str:
    payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    try:
        return payload.decode(part.get_content_charset("utf-8"), "replace")
    except LookupError:
        return payload.decode("utf-8", "replace")


def _without_tags(text: str) -> str:
    return html.unescape(_TAGS.sub(" ", _BREAKS.sub("\n", _QUOTED.sub("\n", text))))
