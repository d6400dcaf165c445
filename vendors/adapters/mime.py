"""Composes an e-mail as the bytes that SMTP transmits: header lines, canonical line ends, stuffed dots.

The standard library's composer would take about a millisecond a mail.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from email.utils import formatdate, parseaddr

import idna

from vendors.adapters.base import Letter

END = b"\r\n.\r\n"
"""The end of every mail; only with these bytes the relay is responsible for it."""

WORD_MAX = 39
"""Bytes in an encoded word: with "Subject: " before it, its line keeps to 76 characters."""

HEAD_MAX = 76
"""Characters in a header line, if it has a blank to fold at."""

LINE_MAX = 990
"""Bytes in a line of a body that is not encoded; RFC 5322 allows 998, including a stuffed dot."""

_LOCAL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]{1,64}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DOMAIN = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
_REFERENCE = re.compile(r"[A-Za-z0-9._-]{1,200}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BARE = re.compile(r"[\x20-\x7e]*")
_PIECE = re.compile(r" *[^ ]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_PLAIN = bytes([9, 10, 13, *range(32, 127)])


@dataclass(frozen=True, slots=True)
class FromAddress:
    """The sender's address. header: the encoded value of From."""

    header: str
    address: str

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]


def sender(value: str) -> FromAddress:
    """Parse "address" or "Name <address>". Raises ValueError."""
    if _CONTROL.search(value):
        raise ValueError("not one line")
    name, plain = parseaddr(value)
    known = address(plain)
    if not known.isascii():
        raise ValueError("not an address that every relay takes: other letters than ASCII before the @")
    if not name:
        return FromAddress(known, known)
    if len(name) > 200:
        raise ValueError("the name is too long")
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    shown = quoted if name.isascii() else _encoded(name)
    fold = "\r\n" if len(shown) + len(known) > 66 else ""
    return FromAddress(f"{shown}{fold} <{known}>", known)


def address(value: str) -> str:
    """The address for SMTP, with the domain in ASCII. Raises ValueError.

    The part before the @ may have other letters; then the relay must offer SMTPUTF8 (RFC 6531).
    """
    local, _, domain = value.rpartition("@")
    if not domain.isascii():
        domain = idna.encode(domain, uts46=True).decode("ascii")
    fits = _LOCAL.fullmatch(local) and local.isprintable() and len(local.encode("utf-8", "replace")) <= 64
    if not fits or not _DOMAIN.fullmatch(domain):
        raise ValueError("not an address that SMTP can take")
    return f"{local}@{domain}"


def compose(origin: FromAddress, recipient: str, letter: Letter) -> bytes:
    """The whole mail including END. recipient: from `address`. Raises ValueError for what cannot be a header."""
    if not _REFERENCE.fullmatch(letter.reference):
        raise ValueError("the reference cannot be a Message-ID")
    body, encoding = _body(letter.body)
    head = (
        f"Date: {formatdate()}\r\n"
        f"From: {origin.header}\r\n"
        f"To: {recipient}\r\n"
        f"Subject: {_subject(letter.subject)}\r\n"
        f"Message-ID: <{letter.reference}@{origin.domain}>\r\n"
        "MIME-Version: 1.0\r\n"
        f"Content-Type: text/{'html' if letter.html else 'plain'}; charset=utf-8\r\n"
        f"Content-Transfer-Encoding: {encoding}\r\n"
        "\r\n"
    )
    return head.encode() + body  # ASCII, except for an address that needs SMTPUTF8 (RFC 6532)


def _subject(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("the subject must be one line")
    pieces = _PIECE.findall(text)
    plain = _BARE.fullmatch(text) and text == text.strip() and "=?" not in text
    return _folded(pieces) if plain and max(map(len, pieces), default=0) <= LINE_MAX // 2 else _encoded(text)


def _folded(pieces: list[str]) -> str:
    """Folded into lines, each beginning with the blanks before a word (RFC 5322, 2.2.3)."""
    lines, width = [""], HEAD_MAX - len("Subject: ")
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
            width = HEAD_MAX
        lines[-1] += piece
    return "\r\n".join(lines)


def _encoded(text: str) -> str:
    """Encoded words of whole characters, one a line (RFC 2047). Raises ValueError for a lone surrogate."""
    pieces, current = [], b""
    for sign in text:
        more = sign.encode()
        if len(current) + len(more) > WORD_MAX:
            pieces.append(current)
            current = b""
        current += more
    pieces.append(current)
    return "\r\n ".join(f"=?utf-8?b?{base64.b64encode(word).decode('ascii')}?=" for word in pieces)


def _body(text: str) -> tuple[bytes, str]:
    """The body with stuffed dots and END, and its Content-Transfer-Encoding."""
    content = _LINE_END.sub("\r\n", text).encode()
    if not content.endswith(b"\r\n"):
        content += b"\r\n"
    encoding = "7bit"
    if content.translate(None, _PLAIN) or max(map(len, content.split(b"\r\n"))) > LINE_MAX:
        content, encoding = binascii.b2a_qp(content, istext=True), "quoted-printable"
    stuffed = content.replace(b"\r\n.", b"\r\n..")
    if stuffed.startswith(b"."):
        stuffed = b"." + stuffed
    return stuffed[:-2] + END, encoding
