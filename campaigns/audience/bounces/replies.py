"""Reads a person's reply to one of our mails: its text, and the message named in it.

Never raises, and takes bounded time for any input, like parser.
"""

import hashlib
import html
import re
import unicodedata
from dataclasses import dataclass
from email.message import Message
from email.utils import parseaddr

from campaigns.audience.bounces.parser import (
    MOST,
    MOST_PARTS,
    REPLY,
    decode_subject,
    decode_text,
    read_mail,
    walk_parts,
)

MOST_TEXT = 40_000  # characters of a part
OURS = re.compile(r"<([0-9a-f-]{36}-\d{1,5})@", re.IGNORECASE)
QUOTED = "> "  # as in plain text
UNSEEN = frozenset(("head", "script", "style", "template", "title"))
RAW = frozenset(("script", "style"))  # no tag but the end's counts inside
LINES = frozenset(
    (
        "blockquote",
        "body",
        "br",
        "dd",
        "div",
        "dt",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "p",
        "pre",
        "td",
        "tr",
    )
)
# Not html.parser, which takes quadratic time for some malformed tags.
_MARK = re.compile(
    r"<!--.*?(?:-->|\Z)|<[!?][^<>]{0,2000}>|<(?P<end>/?)(?P<tag>[a-z][\w:.-]{0,40})(?P<attributes>(?:[\s/][^<>]{0,4000})?)>",
    re.IGNORECASE | re.DOTALL,
)
_PAIRED = re.compile("\"[^\"]*\"|'[^']*'")
_UNREAD = re.compile(r"<[a-z/!?]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MailReply:
    """A person's mail.

    text: of its first part with text; quoted HTML has a ">" before each line. is_reply: its subject says so. sender:
    its From, which anybody may forge. reference: of the message it answers by In-Reply-To or References; not checked.
    digest: the same for the mail each time.
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
        subject, named = decode_subject(mail), _find_own_reference(mail)
        sender, text = parseaddr(str(mail.get("From") or ""))[1], _find_reply_text(mail)
        id = str(mail.get("Message-ID") or "").strip().encode(errors="replace") or raw
    except Exception:  # the standard library raises many errors for malformed mails
        subject, named, sender, text, id = "", "", "", raw.decode("utf-8", "replace")[:MOST_TEXT], raw
    replied = REPLY.match(subject)
    digest = hashlib.sha256(id).hexdigest()[:32]
    return MailReply(
        subject[replied.end() :].strip() if replied else subject, text, bool(replied), sender, named, digest
    )


def _find_own_reference(mail: Message) -> str:
    """Return our reference from In-Reply-To, else the last one in References."""
    answered = OURS.search(str(mail.get("In-Reply-To") or ""))
    found = [answered[1]] if answered else OURS.findall(str(mail.get("References") or ""))
    return found[-1].lower() if found else ""


def _find_reply_text(mail: Message) -> str:
    """Return the text of the first part with some, attachments apart; prefers plain text to HTML."""
    parts = [part for _, part in zip(range(MOST_PARTS), walk_parts(mail), strict=False)]
    for kind in ("text/plain", "text/html"):
        for part in parts:
            if part.get_content_type() == kind and part.get_content_disposition() != "attachment":
                text = decode_text(part)[:MOST_TEXT]
                text = text_of_html(text) if kind == "text/html" else text
                if _is_readable(text):
                    return text
    return ""


def _is_readable(text: str) -> bool:
    return any(not one.isspace() and unicodedata.category(one) not in ("Cc", "Cf", "Mn") for one in text)


def text_of_html(source: str) -> str:
    """Return the text of an HTML part. If its tags or quotes do not match, all of it stands below a quoted line."""
    reader, at = _HtmlReader(), 0
    for mark in _MARK.finditer(source):
        reader.take_text(source[at : mark.start()])
        if mark["tag"]:
            reader.take_tag(mark["tag"].lower(), bool(mark["end"]), mark["attributes"])
        at = mark.end()
    reader.take_text(source[at:])
    text = "\n".join(reader.lines)
    return f"{QUOTED}\n{text}" if reader.is_doubtful else text


class _HtmlReader:
    """Collects the lines of text in an HTML part, those inside blockquotes with QUOTED before them."""

    def __init__(self) -> None:
        self.lines = [""]
        self.is_doubtful = False
        self._depth = self._preformatted = 0
        self._unseen: str = ""

    def take_tag(self, tag: str, is_end: bool, attributes: str) -> None:
        if self._unseen and not (is_end and tag == self._unseen) and (self._unseen in RAW or tag != "body"):
            return
        self._unseen = tag if tag in UNSEEN and not is_end else ""
        self.is_doubtful |= '"' in (bare := _PAIRED.sub("", attributes)) or "'" in bare
        step = -1 if is_end else 1
        if tag == "pre":
            self._preformatted = max(0, self._preformatted + step)
        if tag == "blockquote":
            self.is_doubtful |= is_end and not self._depth
            self._depth = max(0, self._depth + step)
        if tag in LINES:
            self._break_line()

    def take_text(self, text: str) -> None:
        if self._unseen:
            return
        self.is_doubtful |= bool(_UNREAD.search(text))
        first, *others = html.unescape(text).split("\n") if self._preformatted else [html.unescape(text)]
        self.lines[-1] += " ".join(f".{first}.".split())[1:-1]
        for one in others:
            self._break_line()
            self.lines[-1] += one

    def _break_line(self) -> None:
        if self.lines[-1] not in ("", QUOTED):
            self.lines.append("")
        self.lines[-1] = QUOTED if self._depth else ""
