"""Composes an e-mail as the bytes that SMTP transmits: header lines, canonical line ends, stuffed dots.

The standard library's composer is much slower.
"""

from __future__ import annotations

import base64
import re
import time
from dataclasses import dataclass
from email.utils import formatdate, parseaddr
from functools import lru_cache

import idna

from vendors.adapters import dkim, mime_parts
from vendors.adapters.base import Letter, Origin
from vendors.adapters.dkim import DkimKey
from vendors.adapters.letter_faults import LetterFault, LetterPart
from vendors.control_signs import IN_HEADERS
from vendors.said import Said

END = b"\r\n.\r\n"
"""The end of every mail; only with these bytes the relay is responsible for it."""

WORD_MAX = 39
"""Bytes in an encoded word: with "Subject: " before it, its line keeps to 76 characters."""

HEAD_MAX = 76
"""Characters in a header line, if it has a blank to fold at."""

Mail = tuple[bytes, ...]
"""A mail in pieces, the last with END. Files are pieces of their own: the same objects in all mails that carry them."""

UNSUBSCRIBE = "List-Unsubscribe"  # addresses in <>, as mailhub writes them
FOLD = "\r\n "

OURS = frozenset({"date", "from", "reply-to", "to", "subject", "message-id", "mime-version", "dkim-signature"})
"""Headers that `compose` writes by itself; so are all that begin with Content-."""

_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]{1,64}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
DOMAIN = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_REFERENCE = re.compile(r"[A-Za-z0-9._-]{1,200}")
_BARE = re.compile(r"[\x20-\x7e]*")
_PIECE = re.compile(r" *[^ ]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,76}")


@dataclass(frozen=True, slots=True)
class FromAddress:
    """The sender's address. `header` and `reply_to`: encoded values of From and Reply-To. `return_path`: for SMTP."""

    header: str
    address: str
    return_path: str
    reply_to: str = ""
    dkim: DkimKey | None = None

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]


def parse_sender(value: str) -> FromAddress:
    """Parse "address" or "Name <address>". Raises ValueError."""
    if IN_HEADERS.search(value):
        raise LetterFault(LetterPart.SENDER, Said("not one line"))
    return _from_header(*parseaddr(value))


@lru_cache(maxsize=1000)
def parse_origin(origin: Origin) -> FromAddress:
    """Return the origin as its mails carry it. Raises ValueError."""
    if IN_HEADERS.search(origin.name):
        raise LetterFault(LetterPart.SENDER, Said("the name is not one line"))
    shown = _from_header(origin.name, origin.address)
    return_path = parse_sender(origin.return_path).address if origin.return_path else shown.address
    reply_to = parse_sender(origin.reply_to).header if origin.reply_to else ""
    return FromAddress(shown.header, shown.address, return_path, reply_to, origin.dkim)


def _from_header(name: str, plain: str) -> FromAddress:
    known = parse_address(plain)
    if not known.isascii():
        raise LetterFault(
            LetterPart.SENDER, Said("not an address that every relay takes: other letters than ASCII before the @")
        )
    if not name:
        return FromAddress(known, known, known)
    if len(name) > 200:
        raise LetterFault(LetterPart.SENDER, Said("the name is too long"))
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    shown = quoted if name.isascii() else _encode_pieces(name)
    fold = "\r\n" if len(shown) + len(known) > 66 else ""
    return FromAddress(f"{shown}{fold} <{known}>", known, known)


def parse_address(value: str) -> str:
    """Return the address for SMTP, with the domain in ASCII. Raises ValueError.

    The part before the @ may have non-ASCII letters; then the relay must offer SMTPUTF8 (RFC 6531).
    """
    local, _, domain = value.rpartition("@")
    if not domain.isascii():
        try:
            domain = idna.encode(domain, uts46=True).decode("ascii")
        except UnicodeError as why:
            raise LetterFault(LetterPart.ADDRESS, str(why)) from None
    fits = _LOCAL.fullmatch(local) and local.isprintable() and len(local.encode("utf-8", "replace")) <= 64
    if not fits or not DOMAIN.fullmatch(domain):
        raise LetterFault(LetterPart.ADDRESS, Said("not an address that SMTP can take"))
    return f"{local}@{domain}"


def compose_mail(origin: FromAddress, recipient: str, letter: Letter) -> Mail:
    """Compose the whole mail including END. `recipient`: from `address`. Raises ValueError for an invalid header."""
    if not _REFERENCE.fullmatch(letter.reference):
        raise ValueError("the reference cannot be a Message-ID")
    reply_to = f"Reply-To: {origin.reply_to}\r\n" if origin.reply_to else ""
    head = (
        f"Date: {_date_value(int(time.time()))}\r\n"
        f"From: {origin.header}\r\n"
        f"{reply_to}"
        f"To: {recipient}\r\n"
        f"Subject: {_encode_subject(letter.subject)}\r\n"
        f"Message-ID: <{letter.reference}@{origin.domain}>\r\n"
        f"{''.join([_letter_header(*one) for one in letter.headers]) if letter.headers else ''}"
        "MIME-Version: 1.0\r\n"
    ).encode()  # ASCII, except for an address that needs SMTPUTF8 (RFC 6532)
    if not (letter.text or letter.attachments):
        pieces = [head + mime_parts.text_part(letter.body, "html" if letter.html else "plain")]
    else:
        pieces = mime_parts.letter_parts(letter)
        pieces[0] = head + pieces[0]
    if origin.dkim:
        pieces[0] = dkim.sign_mail(origin.dkim, pieces) + pieces[0]
    pieces[-1] += b".\r\n"
    return tuple(pieces)


@lru_cache(maxsize=1)
def _date_value(second: int) -> str:
    """Return the value of Date; mails of the same second share it."""
    return formatdate(second)


def _letter_header(name: str, value: str) -> str:
    """Return a header line. Unsubscribe links differ in each letter, so they are folded here and not cached."""
    return f"{name}: {value.replace(', <', f',{FOLD}<')}\r\n" if name == UNSUBSCRIBE else header_line(name, value)


@lru_cache(maxsize=2000)
def header_line(name: str, value: str) -> str:
    """Return a custom header, folded at its blanks. Raises ValueError."""
    if not _HEADER_NAME.fullmatch(name):
        raise LetterFault(LetterPart.HEADER, Said("%(name)s cannot be the name of a header", name=repr(name)))
    if name.lower() in OURS or name.lower().startswith("content-"):
        raise LetterFault(LetterPart.HEADER, Said("the header %(name)s is mailhub's own", name=name))
    if not value.strip() or IN_HEADERS.search(value):
        raise LetterFault(LetterPart.HEADER, Said("the header %(name)s must be one line of text", name=name))
    pieces = _PIECE.findall(value.strip())
    if not value.isascii():
        return f"{name}: {_encode_pieces(value.strip(), most=min(WORD_MAX, max(6, 45 - len(name))))}\r\n"
    if max(map(len, pieces)) > mime_parts.LINE_MAX - len(name):
        raise LetterFault(
            LetterPart.HEADER, Said("the header %(name)s has a word that is too long for a line", name=name)
        )
    return f"{name}: {_fold_pieces(pieces, len(name) + 2)}\r\n"


@lru_cache(maxsize=500)
def _encode_subject(text: str) -> str:
    """Return the encoded or folded subject; most mails of a campaign share it. Raises LetterFault."""
    if IN_HEADERS.search(text):
        raise LetterFault(LetterPart.HEADER, "the subject must be one line")
    pieces = _PIECE.findall(text)
    plain = _BARE.fullmatch(text) and text == text.strip() and "=?" not in text
    return (
        _fold_pieces(pieces)
        if plain and max(map(len, pieces), default=0) <= mime_parts.LINE_MAX // 2
        else _encode_pieces(text)
    )


def _fold_pieces(pieces: list[str], before: int = len("Subject: ")) -> str:
    """Fold into lines that begin with the blanks before a word (RFC 5322, 2.2.3). `before`: characters already used."""
    lines, width = [""], HEAD_MAX - before
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
            width = HEAD_MAX
        lines[-1] += piece
    return "\r\n".join(lines)


def _encode_pieces(text: str, most: int = WORD_MAX) -> str:
    """Return encoded words of whole characters, one per line (RFC 2047). Raises ValueError for a lone surrogate."""
    pieces, current = [], b""
    for sign in text:
        more = sign.encode()
        if len(current) + len(more) > most:
            pieces.append(current)
            current = b""
        current += more
    pieces.append(current)
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(word).decode('ascii')}?=" for word in pieces)
