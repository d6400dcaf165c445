"""Compiles what a description sends into slices: constant bytes, and functions of the letter between them.

Settings and secrets are constants by then; for each letter only what is its own is made.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from vendors.adapters.base import Attachment, InvalidSettings, Letter
from vendors.described.placeholders import (
    ALPHABET,
    SENDERS,
    Parts,
    Placeholder,
    Unsendable,
    alphabet,
    as_text,
    getter,
    sender,
    split,
)

Piece = bytes | Callable[[Any], bytes]
Pieces = list[Piece]
Escape = Callable[[str], bytes]
FilledValues = Mapping[str, Mapping[str, Any]]
"""settings, secret and sms, by name."""


def joined(pieces: Sequence[Piece]) -> Callable[[Any], bytes]:
    """What makes the bytes for a letter; neighbouring constants are one."""
    slices: Pieces = []
    for piece in pieces:
        if isinstance(piece, bytes) and slices and isinstance(slices[-1], bytes):
            slices[-1] += piece
        else:
            slices.append(piece)

    def make(letter: Any) -> bytes:
        return b"".join([piece if piece.__class__ is bytes else piece(letter) for piece in slices])  # type: ignore[operator]

    return make


def constant_of(pieces: Sequence[Piece]) -> bytes | None:
    """The bytes, if no letter changes them."""
    return None if any(callable(piece) for piece in pieces) else b"".join(pieces)  # type: ignore[arg-type]


def bound_parts(text: str, values: FilledValues) -> Parts:
    """The parts, with settings and secrets filled in. An optional one that is empty stays a placeholder."""
    parts: list[str | Placeholder] = []
    for part in split(text):
        if isinstance(part, Placeholder) and part.space in values:
            value = as_text(values[part.space].get(part.name, ""))
            parts.append(part if part.optional and not value else value)
        else:
            parts.append(part)
    return tuple(parts)


def bound_getter(placeholder: Placeholder, values: FilledValues) -> Callable[[Any], str]:
    of_sms = values.get("sms", {})
    if placeholder == ALPHABET:
        return alphabet(of_sms["gsm"], of_sms["unicode"])
    if not placeholder.space and placeholder.name in SENDERS:
        return sender(placeholder, filled(of_sms.get("sender") or "", values))
    return getter(placeholder)


def filled(text: str, values: FilledValues) -> str:
    """The text with settings and secrets; empty if one of them that may be missing is."""
    parts = bound_parts(text, values)
    return "".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else ""


def _text_pieces(text: str, values: FilledValues, escape: Escape) -> tuple[Pieces, list[Placeholder]] | None:
    """The escaped pieces of a text, and its placeholders that may be missing. None: a setting of it is missing."""
    pieces: Pieces = []
    optional: list[Placeholder] = []
    for part in bound_parts(text, values):
        if isinstance(part, str):
            pieces.append(escape(part))
        elif part.space in values:
            return None
        else:
            if part.optional:
                optional.append(part)
            pieces.append(_escaped(bound_getter(part, values), escape))
    return pieces, optional


def _escaped(of_letter: Callable[[Any], str], escape: Escape) -> Callable[[Any], bytes]:
    return lambda letter: escape(of_letter(letter))


def _only_if(optional: Sequence[Placeholder], pieces: Sequence[Piece], values: FilledValues) -> Callable[[Any], bytes]:
    """The pieces, or nothing if one of the placeholders is empty."""
    needed = [bound_getter(one, values) for one in optional]
    make = joined(pieces)
    if len(needed) == 1:
        [only] = needed
        return lambda letter: make(letter) if only(letter) else b""
    return lambda letter: make(letter) if all(one(letter) for one in needed) else b""


class Member:
    """One value: its pieces; optional: they may come to nothing, and `pieces` is one function."""

    __slots__ = ("optional", "pieces")

    def __init__(self, pieces: Pieces, optional: bool = False) -> None:
        self.pieces = pieces
        self.optional = optional


def text_member(
    text: str, values: FilledValues, escape: Escape, before: bytes = b"", after: bytes = b""
) -> Member | None:
    """A text between `before` and `after`. None: it is left out for every letter."""
    found = _text_pieces(text, values, escape)
    if found is None:
        return None
    pieces, optional = [before, *found[0], after], found[1]
    return Member([_only_if(optional, pieces, values)], True) if optional else Member(pieces)


# --- forms ------------------------------------------------------------------------------------------------------------


def _in_form(text: str) -> bytes:
    return quote_plus(text).encode()


def form_body(content: Mapping[str, Any], values: FilledValues) -> Pieces:
    """The pieces of application/x-www-form-urlencoded."""
    made = [text_member(_typed(value), values, _in_form, _in_form(name) + b"=") for name, value in content.items()]
    there = [member for member in made if member is not None]
    if any(member.optional for member in there):
        makers = [joined(member.pieces) for member in there]
        return [lambda letter: b"&".join(filter(None, [make(letter) for make in makers]))]
    pieces: Pieces = []
    for index, member in enumerate(there):
        pieces += [b"&", *member.pieces] if index else member.pieces
    return pieces


def _typed(value: Any) -> str:
    return value if isinstance(value, str) else as_text(value)


def multipart_body(
    content: Mapping[str, Any], files: str | None, inline: str | None, values: FilledValues
) -> tuple[str, Pieces]:
    """Content type, and the pieces of multipart/form-data. The boundary cannot be guessed, so no letter holds it."""
    boundary = secrets.token_hex(16)
    begin = b"--" + boundary.encode() + b"\r\n"
    pieces: Pieces = []
    for name, value in content.items():
        head = begin + b'Content-Disposition: form-data; name="' + in_part(name) + b'"\r\n\r\n'
        if (member := text_member(_typed(value), values, str.encode, head, b"\r\n")) is not None:
            pieces += member.pieces
    if files:
        pieces.append(file_parts(begin, files, inline))
    return f"multipart/form-data; boundary={boundary}", [*pieces, b"--" + boundary.encode() + b"--\r\n"]


def in_part(name: str) -> bytes:
    """As browsers write names and file names (WHATWG HTML, multipart/form-data)."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").encode()


def file_parts(begin: bytes, files: str, inline: str | None) -> Callable[[Letter], bytes]:
    """What makes the parts of a letter's files. inline: the field of images within the HTML, each by its cid."""

    def named(one: Attachment) -> tuple[bytes, bytes]:
        return (in_part(inline), in_part(one.cid)) if inline and one.cid else (in_part(files), in_part(one.name))

    def parts(letter: Letter) -> bytes:
        return b"".join(
            begin
            + b'Content-Disposition: form-data; name="%b"; filename="%b"\r\n' % named(one)
            + b"Content-Type: %b\r\n\r\n" % _media_type(one.content_type)
            + one.content
            + b"\r\n"
            for one in letter.attachments
        )

    return parts


def _media_type(value: str) -> bytes:
    if not (value.isascii() and value.isprintable()):
        raise Unsendable("a file has no right media type")
    return value.encode()


# --- addresses and headers --------------------------------------------------------------------------------------------


def in_url(text: str) -> bytes:
    return quote(text, safe="").encode()


def _in_path(text: str) -> bytes:
    """A value of a letter; those are left out on the way, so that the call would be another one."""
    if text in ("", ".", ".."):
        raise Unsendable(f"{text!r} cannot be a part of the address")
    return in_url(text)


def url_pieces(text: str, values: FilledValues) -> Pieces:
    """The pieces of an address: constant parts as they are, values quoted."""
    pieces: Pieces = []
    escape = _in_path
    for part in split(text):
        if isinstance(part, str):
            pieces.append(part.encode("ascii"))
            escape = in_url if "?" in part else escape
        elif part.space in values:
            pieces.append(in_url(as_text(values[part.space].get(part.name, ""))))
        else:
            pieces.append(_escaped(bound_getter(part, values), escape))
    return pieces


def header_pieces(name: str, text: str, values: FilledValues) -> Pieces | None:
    """The pieces of a header's value. None: an optional setting of it is missing. Raises InvalidSettings."""
    try:
        found = _text_pieces(text, values, _latin)
    except Unsendable as error:
        raise InvalidSettings([f"header {name}: {error}"]) from None
    return found[0] if found else None


def _latin(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise Unsendable("the value of a header must be Latin-1") from None


def header_maker(pieces: Pieces, text: str) -> Callable[[Letter], str]:
    """What makes the value of a header; one placeholder alone needs no slices."""
    [first, *more] = split(text)
    if not more and isinstance(first, Placeholder) and first.name not in SENDERS:
        return getter(first)
    make = joined(pieces)
    return lambda letter: make(letter).decode("latin-1")
