"""Classifies a returned mail. Never raises, and takes bounded time for any input.

Standard reports come first: DSN (RFC 3464) and feedback (ARF, RFC 5965). Reports in prose are recognised by
flufl.bounce and judged by their codes and words.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from email.policy import Compat32
from email.utils import parseaddr
from itertools import islice
from typing import Any, Literal

from flufl.bounce import all_failures

from campaigns.audience.bounces import kinds
from campaigns.models import MessageEvent

MOST = 262_144  # bytes read of a mail; a report precedes the original mail
MOST_PARTS = 50
MOST_MULTIPARTS = 20  # each line is compared with the boundaries of all open multiparts
MOST_BLOCKS = 200  # of a report, one for each recipient
MOST_HEADER = 4_000  # characters of a header: the standard library takes quadratic time
MOST_TEXT = 8_000  # characters of a mail server's text
MOST_LINE = 1_000  # characters of a line in that text
Other = Literal["delayed", "auto_reply", "other_report", "not_a_report"]

ORIGINALS = ("message/rfc822", "text/rfc822-headers", "message/rfc822-headers", "message/global")
STATUS = ("message/delivery-status", "message/global-delivery-status")
MESSAGE_ID = re.compile(rb"^[>\s]{0,8}Message-ID:\s{0,80}<([0-9a-f-]{36}-\d{1,5})@", re.IGNORECASE | re.MULTILINE)
COPY = re.compile(  # start of the original mail, if it is quoted in the text
    r"^-{2,}.{0,60}(copy of|original|returned|message header|forwarded)|^Return-Path: |^Received: |^Message-ID:",
    re.IGNORECASE | re.MULTILINE,
)
DAEMONS = re.compile(r"(mailer-?daemon|postmaster|mail-?daemon|mdaemon|mail\.?system|bounce)", re.IGNORECASE)
RETURNED = re.compile(
    r"undeliver|delivery (status|failure|has failed|failed|problem|incomplete)|failure notice|returned mail"
    r"|mail failure|returning message|delivery notification|mail delivery|nondeliverable|could not be delivered"
    r"|unzustellbar|non remis",
    re.IGNORECASE,
)
WARNING = re.compile(
    r"warning.{0,40}delayed|warning message only|delayed \d|\(delay|has been delayed|still trying"
    r"|will (keep|be) (trying|retried)|verz.{1,2}gert|versucht es (weiter|erneut)|weiter(hin)? versucht"
    r"|remise (est |a été )?(différée|retardée)|livraison.{0,20}retard|nouvelle tentative",
    re.IGNORECASE,
)
FRAUD = "fraud"
# Types of feedback (RFC 5965 and its drafts) that express a recipient's wish.
WISHES = {
    "abuse": MessageEvent.Kind.COMPLAINT,
    FRAUD: MessageEvent.Kind.COMPLAINT,
    "opt-out": MessageEvent.Kind.UNSUBSCRIBED,
    "opt-out-list": MessageEvent.Kind.UNSUBSCRIBED,
}
REPLY = re.compile(r"(re|aw|antw|antwort|sv|tr|rv) ?:", re.IGNORECASE)
AUTO_SUBJECT = re.compile(
    r"^(auto(matic|mated)?[ -]?(reply|response|antwort)|out of( the)? office|abwesen|vacation|r[ée]ponse automatique"
    r"|risposta automatica|respuesta autom)",
    re.IGNORECASE,
)


class _ShortHeaders(Compat32):
    """Keeps only the beginning of each header, also in the parts of a mail."""

    def header_source_parse(self, sourcelines: Sequence[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(list(sourcelines))
        return name, value[:MOST_HEADER]


SHORT = _ShortHeaders()
MULTIPART = re.compile(rb"multipart/", re.IGNORECASE)
BLANK_LINES = re.compile(rb"(?:\r?\n){3,}")


@dataclass(frozen=True, slots=True)
class ParsedMail:
    """The classification of a mail. code, note: of the event.

    reference: from the original's Message-ID, if it is ours.
    """

    what: MessageEvent.Kind | Other
    code: str = ""
    note: str = ""
    reference: str = ""


def parse(raw: bytes) -> ParsedMail:
    """Classify a mail. raw: as received; only the first MOST bytes are read."""
    raw = raw[:MOST]
    try:
        found = _parsed(read_mail(raw))
    except Exception:  # the standard library and flufl.bounce raise many errors for malformed mails
        return ParsedMail("not_a_report")
    if found.what in ("auto_reply", "not_a_report"):
        return found
    named = MESSAGE_ID.search(raw.partition(b"\r\n\r\n")[2] or raw.partition(b"\n\n")[2])
    return ParsedMail(found.what, found.code, found.note, named[1].decode("ascii").lower() if named else "")


def read_mail(raw: bytes) -> Message:
    """Parse a mail's headers and parts in bounded time: up to MOST_MULTIPARTS multiparts, and MOST bytes."""
    raw = raw[:MOST]
    too_many = next(islice(MULTIPART.finditer(raw), MOST_MULTIPARTS, None), None)
    raw = raw[: too_many.start()] if too_many else raw
    return message_from_bytes(BLANK_LINES.sub(b"\r\n\r\n", raw), policy=SHORT)


def _parsed(mail: Message) -> ParsedMail:
    parts = [part for _, part in zip(range(MOST_PARTS), walk_parts(mail), strict=False)]
    types = {part.get_content_type(): part for part in reversed(parts)}
    if status := next((types[name] for name in STATUS if name in types), None):
        return _of_status(status, parts)
    if feedback := types.get("message/feedback-report"):
        return _of_feedback(feedback)
    inside = [one for part in parts if part.get_content_type() == "message/rfc822" for one in _inside(part)]
    if any(_header(part, "X-HmXmrOriginalRecipient") for part in inside):  # Outlook.com's feedback is not ARF
        return ParsedMail(MessageEvent.Kind.COMPLAINT, note="abuse")
    failed = bool(mail.get("X-Failed-Recipients"))
    if not failed and _is_auto_reply(mail):
        return ParsedMail("auto_reply")
    return _of_text(mail, parts, failed)


def walk_parts(mail: Message) -> Iterator[Message]:
    """Yield the mail and its parts, but not those of the original mail."""
    yield mail
    if mail.get_content_type() not in (*ORIGINALS, *STATUS) and mail.is_multipart():
        for part in _inside(mail):
            yield from walk_parts(part)


def _inside(mail: Message) -> list[Message]:
    payload: Any = mail.get_payload()
    return [part for part in payload if isinstance(part, Message)] if isinstance(payload, list) else []


def _of_status(part: Message, parts: list[Message]) -> ParsedMail:
    """Classify a DSN by the first recipient that failed; if none did, report whether one is delayed."""
    blocks = list(islice(_blocks(part), MOST_BLOCKS))
    actions = [_header(block, "Action").strip().lower() for block in blocks]
    failed = [
        block for block, action in zip(blocks, actions, strict=True) if action.startswith(("fail", "error"))
    ]  # OpenSMTPD writes "error"
    delayed = [block for block, action in zip(blocks, actions, strict=True) if action.startswith("delay")]
    if not failed and not delayed:
        return ParsedMail("other_report")
    block = (failed or delayed)[0]
    status, said = _header(block, "Status"), _one_line(_header(block, "Diagnostic-Code"))
    said = re.sub(r"^[\w-]{1,20};\s*", "", said)
    text = said[:MOST_TEXT] if len(said) > 10 else f"{said} {_text(parts)}"  # some give the reason in prose only
    kind, code = kinds.of_bounce(status, text)
    return ParsedMail(kind if failed else "delayed", code, _note(said or text))


def _blocks(part: Message) -> Iterator[Message]:
    payload: Any = part.get_payload()
    if isinstance(payload, list):
        for one in payload:
            if not one.keys() and one.is_multipart():  # a report about a non-ASCII address (RFC 6533)
                yield from one.get_payload()
            yield one
    else:
        for block in re.split(r"\r?\n\r?\n", _decoded(part)):
            yield message_from_bytes(block.encode(), policy=SHORT)


def _of_feedback(part: Message) -> ParsedMail:
    """Classify feedback by its type; types outside WISHES do not express the recipient's wish."""
    for block in islice(_blocks(part), MOST_BLOCKS):
        kind = _header(block, "Feedback-Type").strip().lower()
        if kind:
            return ParsedMail(WISHES[kind], note=kind) if kind in WISHES else ParsedMail("other_report")
    return ParsedMail("other_report")


def _is_auto_reply(mail: Message) -> bool:
    submitted = _header(mail, "Auto-Submitted").strip().lower()
    named = any(mail.get(name) for name in ("X-Autoreply", "X-Autorespond", "X-Auto-Response-Suppress", "X-Vacation"))
    replied = submitted.startswith(("auto-replied", "auto-notified")) or "auto_reply" in _header(mail, "Precedence")
    subject = AUTO_SUBJECT.search(_one_line(_header(mail, "Subject")))
    return replied or bool(subject) or (named and not _from_daemon(mail))


def _from_daemon(mail: Message) -> bool:
    return DAEMONS.match(parseaddr(_header(mail, "From"))[1].partition("@")[0]) is not None


def _of_text(mail: Message, parts: list[Message], failed: bool) -> ParsedMail:
    """Classify a server's prose, if a mail server wrote it or the subject says so."""
    subject = _one_line(_header(mail, "Subject"))
    if not failed and not (_from_daemon(mail) or RETURNED.search(subject)):
        return ParsedMail("not_a_report")
    text = _text(parts)
    copy = COPY.search(text, 1)
    said = text[: copy.start()] if copy else text
    kind, code = kinds.of_bounce("", said)
    if WARNING.search(subject) or WARNING.search(said):
        return ParsedMail("delayed", code, _note(_reason(said)))
    replied = REPLY.match(subject) is not None
    if (replied or not code) and not failed and not _known_form(mail, text):
        return ParsedMail("not_a_report")
    if kind == MessageEvent.Kind.HARD_BOUNCE and "." not in code and not failed and not _from_daemon(mail):
        kind = MessageEvent.Kind.SOFT_BOUNCE  # a person may have written these words
    return ParsedMail(kind, code, _note(_reason(said)))


def _known_form(mail: Message, text: str) -> bool:
    """Return whether flufl.bounce knows the form.

    It gets only the beginning of the text, because it reads all of its input.
    """
    short = Message()
    for name in ("From", "Subject"):
        short[name] = _one_line(_header(mail, name))
    short.set_payload(text.encode("ascii", "replace").decode("ascii"))
    temporary, permanent = all_failures(short)
    return bool(temporary or permanent)


def _text(parts: list[Message]) -> str:
    """Return the beginning of the mail's first text part."""
    for part in parts:
        if part.get_content_type() in ("text/plain", "text/html") and not part.is_multipart():
            text = _decoded(part)[: 4 * MOST_TEXT]
            if part.get_content_type() == "text/html":
                text = re.sub(r"<[^<>]{0,500}>", " ", text)
            return "\n".join(line[:MOST_LINE] for line in text.splitlines())[:MOST_TEXT]
    return ""


def _reason(text: str) -> str:
    """Return the text from the first line with a code on; without a code, all of it."""
    found = kinds.BASIC.search(text) or kinds.ENHANCED.search(text)
    return text[text.rfind("\n", 0, found.start()) + 1 :] if found else text


def _decoded(part: Message) -> str:
    payload: Any = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    return payload.decode("utf-8", "replace")


def _header(mail: Message, name: str) -> str:
    return str(mail.get(name) or "")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _note(text: str) -> str:
    return _one_line("".join(sign if sign.isprintable() or sign.isspace() else "\ufffd" for sign in text))[:255]
