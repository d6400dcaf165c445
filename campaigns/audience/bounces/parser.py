"""Classifies a returned mail. Never raises, and takes bounded time for any input.

Standard reports come first: DSN (RFC 3464) and feedback (ARF, RFC 5965). Reports in prose are recognised by
flufl.bounce and judged by their codes and words.
"""

import base64
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
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
SERVERS = r"mailer-?daemon|post[_-]?master|mail-?daemon|mdaemon|mail\.?system"
SERVER, DAEMONS = re.compile(SERVERS, re.IGNORECASE), re.compile(f"{SERVERS}|bounce", re.IGNORECASE)
RETURNED = re.compile(
    r"undeliver|delivery (status|failure|has failed|failed|problem|incomplete)|failure notice|returned mail"
    r"|mail failure|returning message|delivery notification|mail delivery|nondeliverable|could not be delivered"
    r"|unzustellbar|non remis|no se puede entregar|no entregado|onbestelbaar|non recapita|impossibile recapitare"
    r"|n[ãa]o (é possível |foi )?entreg|kan (ikke|inte) lever|nie można dostarczyć|недоставлен|не удалось доставить"
    r"|配信不能|无法送达|未送达",
    re.IGNORECASE,
)
WARNING = re.compile(
    r"warning.{0,40}delayed|warning message only|temporary failure\s{1,9}report|delayed \d|\(delay"
    r"|has been delayed|still trying"
    r"|will (keep|be) (trying|retried)|verz.{1,2}gert|versucht es (weiter|erneut)|weiter(hin)? versucht"
    r"|remise (est |a été )?(différée|retardée)|livraison.{0,20}retard|nouvelle tentative"
    r"|entrega (retrasada|atrasada|demorada|con retraso|em atraso)|(aún|todavía) no se (ha|pudo) entrega"
    r"|seguir[áa] intentando|ainda não (foi|pôde ser) entregue|continuar(á|emos) (a tentar|tentando)"
    r"|consegna ritardata|ritardo nella consegna|non è (stato )?ancora (stato )?(consegnat|recapitat)"
    r"|(altri|ulteriori) tentativi|bezorging (is )?vertraagd|nog niet (bezorgd|afgeleverd)|opnieuw geprobeerd"
    r"|opóźnion|jeszcze nie (została? )?dostarczon"
    r"|leverans(en)? (är )?(försenad|fördröjd)|(ännu|endnu|ennå) (inte|ikke) (levererats|leveret|levert)"
    r"|forsink|viivästy|zpoždě|oneskor|késleltet|întârzi|geciktiril|gecikti"
    r"|задержк|отложен|(пока|ещё|еще) не доставлен|затримк|遅延|遅れて|再試行|延迟|延遲|稍后重试|지연|다시 시도",
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
# Beginnings of the subjects of mails that a person answers or passes on.
REPLY = re.compile(
    r"(re|aw|antw|antwort|sv|tr|rv|fwd?|wg|wtr|vs|vb|enc|pd|odp|ynt|ilt|i|r|res|rif|doorst"
    r"|转发|轉寄|回复|回覆|답장|전달) ?[:：]",
    re.IGNORECASE,
)
# The beginnings that mail programs give to automatic answers, in their languages.
AUTO_SUBJECT = re.compile(
    r"^(auto(matic|mated)?[ -]?(reply|response|answer)|automatische antwort|auto(matisch|matiskt?)? ?(antw|svar)"
    r"|r[ée]ponse automatique|risposta automatica|r[ae]spuesta autom|resposta autom|automaattinen vastaus"
    r"|odpowiedź automatyczna|automatick[áa] odpov|automatikus válasz|răspuns automat|otomatik yanıt"
    r"|автоматический ответ|автоответ|автоматична відповідь|αυτόματη απάντηση"
    r"|自動(応答|返信|回覆)|自动(答复|回复)|자동 (회신|응답)"
    r"|(i.?m |i am |currently |re: ?)?(out of( the| my)? office|ooo\b|away from (the|my) (office|desk))"
    r"|(on )?vacation|abwesen|absence d[ue]|fuera de la oficina|fuori (ufficio|sede)|afwezig|ikke p[åa] kontoret)",
    re.IGNORECASE,
)
# Headers of machines that answer mails.
AUTO_HEADERS = (
    *("X-Autoreply", "X-Autorespond", "X-Auto-Response-Suppress", "X-Vacation", "X-Mail-Autoreply", "X-Autogenerated"),
    *("X-MS-Exchange-Generated-Message-Source",),
)
FIELD = re.compile(  # of a report on deliveries, until the next one
    r"^(Action|Status|Diagnostic-Code)[ \t]{0,3}:(.{0,4000}?)(?=^[A-Z][\w-]{1,40}[ \t]{0,3}: |^\s*$|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(r"\([^()]*\)")  # RFC 5322, 3.2.2


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
    """The classification of a mail. code, note: of the event. cause: as in kinds.JudgedBounce.

    reference: from the original's Message-ID, if it is ours.
    """

    what: MessageEvent.Kind | Other
    code: str = ""
    note: str = ""
    reference: str = ""
    cause: str = ""


def parse_bounce(raw: bytes, recipients: Collection[str] = ()) -> ParsedMail:
    """Classify a mail. raw: as received; only the first MOST bytes are read. recipients: of the envelope."""
    raw = raw[:MOST]
    try:
        found = _parse_parts(read_mail(raw), recipients)
    except Exception:  # the standard library and flufl.bounce raise many errors for malformed mails
        return ParsedMail("not_a_report")
    if found.what in ("auto_reply", "not_a_report"):
        return found
    named = MESSAGE_ID.search(raw.partition(b"\r\n\r\n")[2] or raw.partition(b"\n\n")[2])
    return replace(found, reference=named[1].decode("ascii").lower() if named else "")


def read_mail(raw: bytes) -> Message:
    """Parse a mail's headers and parts in bounded time: up to MOST_MULTIPARTS multiparts, and MOST bytes."""
    raw = raw[:MOST]
    too_many = next(islice(MULTIPART.finditer(raw), MOST_MULTIPARTS, None), None)
    raw = raw[: too_many.start()] if too_many else raw
    return message_from_bytes(BLANK_LINES.sub(b"\r\n\r\n", raw), policy=SHORT)


def _parse_parts(mail: Message, recipients: Collection[str]) -> ParsedMail:
    parts = [part for _, part in zip(range(MOST_PARTS), walk_parts(mail), strict=False)]
    types = {part.get_content_type(): part for part in reversed(parts)}
    if status := next((types[name] for name in STATUS if name in types), None):
        return _classify_status(status, parts, recipients) or _classify_text(mail, parts, False, recipients)
    if feedback := types.get("message/feedback-report"):
        return _classify_feedback(feedback)
    inside = [one for part in parts if part.get_content_type() == "message/rfc822" for one in _inner_mails(part)]
    if any(_header_text(part, "X-HmXmrOriginalRecipient") for part in inside):  # Outlook.com's feedback is not ARF
        return ParsedMail(MessageEvent.Kind.COMPLAINT, note="abuse")
    failed = bool(mail.get("X-Failed-Recipients"))
    if not failed and _is_auto_reply(mail):
        return ParsedMail("auto_reply")
    return _classify_text(mail, parts, failed, recipients)


def walk_parts(mail: Message) -> Iterator[Message]:
    """Yield the mail and its parts, but not those of the original mail."""
    yield mail
    if mail.get_content_type() not in (*ORIGINALS, *STATUS) and mail.is_multipart():
        for part in _inner_mails(mail):
            yield from walk_parts(part)


def _inner_mails(mail: Message) -> list[Message]:
    payload: Any = mail.get_payload()
    return [part for part in payload if isinstance(part, Message)] if isinstance(payload, list) else []


def decode_subject(mail: Message) -> str:
    """Return the subject in one line, with its encoded words (RFC 2047) as they are shown."""
    given = _header_text(mail, "Subject")
    with suppress(HeaderParseError, LookupError, UnicodeError, ValueError):
        given = str(make_header(decode_header(given)))
    return _one_line(given)


def _classify_status(part: Message, parts: list[Message], recipients: Collection[str]) -> ParsedMail | None:
    """Classify a DSN by the first recipient that failed, else by one that is delayed. Returns None if it names none."""
    blocks = list(islice(_status_blocks(part), MOST_BLOCKS))
    if not any(map(_action, blocks)):
        blocks = _damaged_blocks(part)
    if not blocks:
        return None
    actions = [_action(block) for block in blocks]
    failed = [
        block for block, action in zip(blocks, actions, strict=True) if action.startswith(("fail", "error", "expire"))
    ]  # OpenSMTPD writes "error", SendGrid "expired"
    delayed = [block for block, action in zip(blocks, actions, strict=True) if action.startswith("delay")]
    if not failed and not delayed:
        return ParsedMail("other_report")
    block = (failed or delayed)[0]
    status, said = _header_text(block, "Status"), _one_line(_header_text(block, "Diagnostic-Code"))
    said = re.sub(r"^[\w.-]{1,60};\s*", "", said)
    text = (
        said[:MOST_TEXT] if len(said) > 10 else f"{said} {_find_first_text(parts)}"
    )  # some give the reason in prose only
    judged = kinds.classify_bounce(status, text, recipients)
    what: MessageEvent.Kind | Other = judged.kind if failed else "delayed"
    return ParsedMail(what, judged.code, _note_text(said or text), cause=judged.cause)


def _damaged_blocks(part: Message) -> list[Message]:
    """Return the recipient's fields of a report that the standard library cannot read, or nothing.

    Mimecast writes "Action : failed", MessageLabs goes on with a server's answer on lines of their own.
    """
    found = [(one[1], " ".join(one[2].split())) for one in FIELD.finditer(part.as_string()[:MOST_TEXT])]
    block = Message()
    for name, value in found:
        block[name] = value
    return [block] if "Action" in block else []


def _action(block: Message) -> str:
    """Return the action of a recipient's block, by its status where the action is missing."""
    action = _token(block, "Action")
    by_class = {"5": "failed", "4": "delayed"}
    return action or by_class.get(_header_text(block, "Status").strip()[:1], "")


def _token(block: Message, name: str) -> str:
    """Return a field without the comments that may stand around its word."""
    return COMMENT.sub("", _header_text(block, name)).strip().lower()


def _status_blocks(part: Message) -> Iterator[Message]:
    payload: Any = part.get_payload()
    if _header_text(part, "Content-Transfer-Encoding").strip().lower() == "base64":
        payload = _unpacked(payload)
        for block in re.split(r"\r?\n(?:\r?\n)+", payload):
            yield message_from_bytes(block.encode(), policy=SHORT)
    elif isinstance(payload, list):
        for one in payload:
            if not one.keys() and one.is_multipart():  # a report about a non-ASCII address (RFC 6533)
                yield from one.get_payload()
            yield one
    else:
        for block in re.split(r"\r?\n\r?\n", _decode_part(part)):
            yield message_from_bytes(block.encode(), policy=SHORT)


def _unpacked(payload: Any) -> str:
    """Return the text of a report in base64, whose lines the standard library takes for the body of its first block."""
    parts = payload if isinstance(payload, list) else []
    packed = "".join(str(one.get_payload()) for one in parts if not one.is_multipart())
    try:
        return base64.b64decode(packed).decode("utf-8", "replace")
    except ValueError:
        return ""


def _classify_feedback(part: Message) -> ParsedMail:
    """Classify feedback by its type; types outside WISHES do not express the recipient's wish."""
    for block in islice(_status_blocks(part), MOST_BLOCKS):
        kind = _token(block, "Feedback-Type")
        if kind:
            return ParsedMail(WISHES[kind], note=kind) if kind in WISHES else ParsedMail("other_report")
    return ParsedMail("other_report")


def _is_auto_reply(mail: Message) -> bool:
    if mail.get("X-Apple-Unsubscribe"):  # a person's wish, which Apple Mail sends
        return False
    submitted, subject = _token(mail, "Auto-Submitted"), decode_subject(mail)
    if "auto_reply" in _header_text(mail, "Precedence"):
        return True
    if submitted.startswith(("auto-replied", "auto-notified")) and not _is_from(SERVER, mail):  # as Exim's bounces are
        return True
    if AUTO_SUBJECT.search(subject):
        return True
    named = any(mail.get(name) for name in AUTO_HEADERS)
    generated = submitted.startswith("auto-generated") and not RETURNED.search(subject)
    return (named or generated) and not _is_from(DAEMONS, mail)


def _is_from(names: re.Pattern[str], mail: Message) -> bool:
    return names.match(parseaddr(_header_text(mail, "From"))[1].partition("@")[0]) is not None


def _classify_text(mail: Message, parts: list[Message], failed: bool, recipients: Collection[str]) -> ParsedMail:
    """Classify a server's prose, if a mail server wrote it or the subject says so."""
    subject = decode_subject(mail)
    if not failed and not (_is_from(DAEMONS, mail) or RETURNED.search(subject)):
        return ParsedMail("not_a_report")
    text = _find_first_text(parts)
    copy = COPY.search(text, 1)
    said = text[: copy.start()] if copy else text
    judged = kinds.classify_bounce("", said, recipients)
    kind, code = judged.kind, judged.code
    if WARNING.search(subject) or WARNING.search(said):
        return ParsedMail("delayed", code, _note_text(_text_with_code(said)))
    replied = REPLY.match(subject) is not None
    is_said = bool(code) or (judged.is_clear and _is_from(SERVER, mail))
    if (replied or not is_said) and not failed and not _known_form(mail, text):
        return ParsedMail("not_a_report")
    if kind == MessageEvent.Kind.HARD_BOUNCE and "." not in code and not failed and not _is_from(DAEMONS, mail):
        kind = MessageEvent.Kind.SOFT_BOUNCE  # a person may have written these words
    return ParsedMail(kind, code, _note_text(_text_with_code(said)), cause=judged.cause)


def _known_form(mail: Message, text: str) -> bool:
    """Return whether flufl.bounce knows the form.

    It gets only the beginning of the text, because it reads all of its input.
    """
    short = Message()
    for name in ("From", "Subject"):
        short[name] = _one_line(_header_text(mail, name))
    short.set_payload(text.encode("ascii", "replace").decode("ascii"))
    temporary, permanent = all_failures(short)
    return bool(temporary or permanent)


def _find_first_text(parts: list[Message]) -> str:
    """Return the beginning of the mail's first text part."""
    for part in parts:
        if part.get_content_type() in ("text/plain", "text/html") and not part.is_multipart():
            text = decode_text(part)[: 4 * MOST_TEXT]
            if part.get_content_type() == "text/html":
                text = re.sub(r"<[^<>]{0,500}>", " ", text)
            return _cut_text(text)
    # A relay may have changed the boundary: then the parts cannot be told apart.
    raw: Any = parts[0].get_payload() if parts else ""
    return _cut_text(raw[: 4 * MOST_TEXT]) if isinstance(raw, str) else ""


def _cut_text(text: str) -> str:
    return "\n".join(line[:MOST_LINE] for line in text.splitlines())[:MOST_TEXT]


def _text_with_code(text: str) -> str:
    """Return the text from the first line with a code on; without a code, all of it."""
    found = kinds.BASIC.search(text) or kinds.ENHANCED.search(text)
    return text[text.rfind("\n", 0, found.start()) + 1 :] if found else text


def _decode_part(part: Message) -> str:
    payload: Any = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    return payload.decode("utf-8", "replace")


def decode_text(part: Message) -> str:
    """Return a part's text in its charset; if that is unknown or wrong, in UTF-8 or Western European."""
    payload: Any = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        return ""
    charset = part.get_content_charset("utf-8")
    for name in (charset, "utf-8", "cp1252"):
        with suppress(LookupError, UnicodeError):
            return payload.decode(name)
    try:
        return payload.decode(charset, "replace")
    except LookupError:
        return payload.decode("utf-8", "replace")


def _header_text(mail: Message, name: str) -> str:
    return str(mail.get(name) or "")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _note_text(text: str) -> str:
    return _one_line("".join(sign if sign.isprintable() or sign.isspace() else "\ufffd" for sign in text))[:255]
