"""MIME content of a mail: texts, files and multiparts (RFC 2045 to 2047, 2387).

A file is encoded once and shared by all mails that carry it; only texts and boundaries are written for each mail.
"""

from __future__ import annotations

import binascii
import secrets
from email.message import EmailMessage
from email.policy import SMTP

from vendors.adapters.base import Attachment, Letter

LINE_MAX = 990
"""Bytes in a line of a body that is not encoded; RFC 5322 allows 998, including a stuffed dot."""

_PLAIN = bytes([9, 10, 13, *range(32, 127)])
_ENCODED_LINE = 76
_AT_ONCE = 57 * 10_000
"""Bytes that are encoded at once: 10,000 lines."""
_SHARED_FROM = 16_384
"""Bytes from which on a piece is shared; a smaller one costs less copied than written by itself."""


def text_part(plain: str, kind: str) -> bytes:
    """Return a text as a part, with its header and stuffed dots, ending with a line end. `kind`: plain or html."""
    if "\r" in plain:
        plain = plain.replace("\r\n", "\n").replace("\r", "\n")
    if not plain.endswith("\n"):
        plain += "\n"
    content = plain.replace("\n", "\r\n").encode()
    encoding = b"7bit"
    if not plain.isascii() or _is_too_long(plain) or content.translate(None, _PLAIN):
        content, encoding = binascii.b2a_qp(content, istext=True), b"quoted-printable"
    stuffed = content.replace(b"\n.", b"\n..")
    if stuffed.startswith(b"."):
        stuffed = b"." + stuffed
    return b"Content-Type: text/%b; charset=utf-8\r\nContent-Transfer-Encoding: %b\r\n\r\n%b" % (
        kind.encode(),
        encoding,
        stuffed,
    )


def _is_too_long(plain: str) -> bool:
    """Return True if a line of this ASCII text must be encoded."""
    return len(plain) > LINE_MAX and max(map(len, plain.split("\n"))) > LINE_MAX


def letter_parts(letter: Letter) -> list[bytes]:
    """Return the pieces of a letter with text beside HTML, or with files. Large pieces are shared objects."""
    token = secrets.token_hex(12)  # so that people who write fields cannot guess it
    parts = [[text_part(letter.body, "html" if letter.html else "plain")]]
    inline = [[file_part(file)] for file in letter.attachments if file.cid]
    if inline:
        parts = [_join_multipart("related", f"=_r{token}", [*parts, *inline])]
    if letter.text:
        parts = [_join_multipart("alternative", f"=_a{token}", [[text_part(letter.text, "plain")], *parts])]
    files = [[file_part(file)] for file in letter.attachments if not file.cid]
    if files:
        parts = [_join_multipart("mixed", f"=_m{token}", [*parts, *files])]
    return _merge_pieces(parts[0])


def encoded_size(content: int) -> int:
    """Return the bytes of a file of this size as base64, with its line ends."""
    plain = -(-content // 3) * 4
    return plain + 2 * -(-plain // _ENCODED_LINE)


def file_part(file: Attachment) -> bytes:
    """Return the file as a part with its header; encoded once and cached."""
    if not file.part:
        file.part = _part_head(file) + _encode_lines(file.content)
    return file.part


def _part_head(file: Attachment) -> bytes:
    main, _, sub = file.content_type.partition("/")
    if main.lower() in ("message", "multipart"):  # may not be encoded (RFC 2045, 6.4)
        main, sub = "application", "octet-stream"
    made = EmailMessage(policy=SMTP)
    made.set_content(
        b"",
        main,
        sub,
        disposition="inline" if file.cid else "attachment",
        filename=file.name,
        cid=f"<{file.cid}>" if file.cid else None,
    )
    del made["MIME-Version"]
    return made.as_bytes()


def _encode_lines(content: bytes) -> bytes:
    lines = bytearray()
    for start in range(0, len(content), _AT_ONCE):
        plain = binascii.b2a_base64(content[start : start + _AT_ONCE], newline=False)
        lines += b"\r\n".join([plain[at : at + _ENCODED_LINE] for at in range(0, len(plain), _ENCODED_LINE)])
        lines += b"\r\n"
    return bytes(lines)


def _join_multipart(kind: str, boundary: str, parts: list[list[bytes]]) -> list[bytes]:
    """Return a multipart. The line end before a boundary belongs to the boundary."""
    pieces = [f'Content-Type: multipart/{kind};\r\n boundary="{boundary}"\r\n'.encode()]
    for part in parts:
        pieces += [f"\r\n--{boundary}\r\n".encode(), *part]
    return [*pieces, f"\r\n--{boundary}--\r\n".encode()]


def _merge_pieces(pieces: list[bytes]) -> list[bytes]:
    """Return the same bytes in fewer pieces: small ones are joined, large ones stay shared objects."""
    merged: list[bytes] = []
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < _SHARED_FROM:
            small.append(piece)
            continue
        merged += [b"".join(small), piece]
        small = []
    return [*merged, b"".join(small)]
