"""Compiles the texts of a description into slices: constant bytes, and functions of the letter between them.

Settings and secrets become constants, so only the letter's own values are rendered for each letter.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

from vendors.adapters.base import Attachment, Letter
from vendors.adapters.letter_faults import LetterPart
from vendors.adapters.options import InvalidSettings
from vendors.described.placeholders import (
    ALPHABET,
    SENDERS,
    Parts,
    Placeholder,
    Unsendable,
    alphabet_getter,
    sender_getter,
    split_text,
    value_as_text,
    value_getter,
)
from vendors.said import Said

Piece = bytes | Callable[[Any], bytes]
Pieces = list[Piece]
Escape = Callable[[str], bytes]
FilledValues = Mapping[str, Mapping[str, Any]]
"""settings, secret and sms, by name."""


def join_pieces(pieces: Sequence[Piece]) -> Callable[[Any], bytes]:
    """Return a function that renders the bytes for a letter; adjacent constants are merged."""
    slices: Pieces = []
    for piece in pieces:
        if isinstance(piece, bytes) and slices and isinstance(slices[-1], bytes):
            slices[-1] += piece
        else:
            slices.append(piece)

    def make_bytes(letter: Any) -> bytes:
        return b"".join([piece if piece.__class__ is bytes else piece(letter) for piece in slices])  # type: ignore[operator]

    return make_bytes


def constant_of(pieces: Sequence[Piece]) -> bytes | None:
    """Return the bytes if they are the same for every letter, else None."""
    return None if any(callable(piece) for piece in pieces) else b"".join(pieces)  # type: ignore[arg-type]


def bound_parts(text: str, values: FilledValues) -> Parts:
    """Fill in settings and secrets. An optional placeholder whose value is empty stays a placeholder."""
    parts: list[str | Placeholder] = []
    for part in split_text(text):
        if isinstance(part, Placeholder) and part.space in values:
            value = value_as_text(values[part.space].get(part.name, ""))
            parts.append(part if part.optional and not value else value)
        else:
            parts.append(part)
    return tuple(parts)


def bound_getter(placeholder: Placeholder, values: FilledValues) -> Callable[[Any], str]:
    of_sms = values.get("sms", {})
    if placeholder == ALPHABET:
        return alphabet_getter(of_sms["gsm"], of_sms["unicode"])
    if not placeholder.space and placeholder.name in SENDERS:
        return sender_getter(placeholder, fill_text(of_sms.get("sender") or "", values))
    return value_getter(placeholder)


def fill_text(text: str, values: FilledValues) -> str:
    """Return the text with settings and secrets filled in; empty if an optional one is missing."""
    parts = bound_parts(text, values)
    return "".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else ""


def _text_pieces(text: str, values: FilledValues, escape: Escape) -> tuple[Pieces, list[Placeholder]] | None:
    """Return a text's escaped pieces and its optional placeholders; None if an optional setting is missing."""
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
            pieces.append(_escape_value(bound_getter(part, values), escape))
    return pieces, optional


def _escape_value(of_letter: Callable[[Any], str], escape: Escape) -> Callable[[Any], bytes]:
    return lambda letter: escape(of_letter(letter))


def _optional_pieces(
    optional: Sequence[Placeholder], pieces: Sequence[Piece], values: FilledValues
) -> Callable[[Any], bytes]:
    """Return a function that renders the pieces, or nothing if one of the placeholders is empty."""
    needed = [bound_getter(one, values) for one in optional]
    make = join_pieces(pieces)
    if len(needed) == 1:
        [only] = needed
        return lambda letter: make(letter) if only(letter) else b""
    return lambda letter: make(letter) if all(one(letter) for one in needed) else b""


class Member:
    """A rendered value. If `optional`, it may be left out, and `pieces` is one function."""

    __slots__ = ("optional", "pieces")

    def __init__(self, pieces: Pieces, optional: bool = False) -> None:
        self.pieces = pieces
        self.optional = optional


def text_member(
    text: str, values: FilledValues, escape: Escape, before: bytes = b"", after: bytes = b""
) -> Member | None:
    """Build a member from a text, between `before` and `after`. None: it is left out of every letter."""
    found = _text_pieces(text, values, escape)
    if found is None:
        return None
    pieces, optional = [before, *found[0], after], found[1]
    return Member([_optional_pieces(optional, pieces, values)], True) if optional else Member(pieces)


# --- forms ------------------------------------------------------------------------------------------------------------


def _quote_form(text: str) -> bytes:
    return quote_plus(text).encode()


def form_body(content: Mapping[str, Any], values: FilledValues) -> Pieces:
    """Return the pieces of an application/x-www-form-urlencoded body."""
    made = [
        text_member(_typed_text(value), values, _quote_form, _quote_form(name) + b"=")
        for name, value in content.items()
    ]
    there = [member for member in made if member is not None]
    if any(member.optional for member in there):
        makers = [join_pieces(member.pieces) for member in there]
        return [lambda letter: b"&".join(filter(None, [make(letter) for make in makers]))]
    pieces: Pieces = []
    for index, member in enumerate(there):
        pieces += [b"&", *member.pieces] if index else member.pieces
    return pieces


def _typed_text(value: Any) -> str:
    return value if isinstance(value, str) else value_as_text(value)


def multipart_body(
    content: Mapping[str, Any], files: str | None, inline: str | None, values: FilledValues
) -> tuple[str, Pieces]:
    """Return content type and pieces of a multipart/form-data body. The random boundary is in no letter."""
    boundary = secrets.token_hex(16)
    begin = b"--" + boundary.encode() + b"\r\n"
    pieces: Pieces = []
    for name, value in content.items():
        head = begin + b'Content-Disposition: form-data; name="' + escape_part(name) + b'"\r\n\r\n'
        if (member := text_member(_typed_text(value), values, str.encode, head, b"\r\n")) is not None:
            pieces += member.pieces
    if files:
        pieces.append(file_parts(begin, files, inline))
    return f"multipart/form-data; boundary={boundary}", [*pieces, b"--" + boundary.encode() + b"--\r\n"]


def escape_part(name: str) -> bytes:
    """Escape a name or file name as browsers do (WHATWG HTML, multipart/form-data)."""
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").encode()


def file_parts(begin: bytes, files: str, inline: str | None) -> Callable[[Letter], bytes]:
    """Return a function that renders a letter's files. `inline`: the field for images in the HTML, by cid."""

    def names_of(one: Attachment) -> tuple[bytes, bytes]:
        return (
            (escape_part(inline), escape_part(one.cid))
            if inline and one.cid
            else (escape_part(files), escape_part(one.name))
        )

    def make_parts(letter: Letter) -> bytes:
        return b"".join(
            begin
            + b'Content-Disposition: form-data; name="%b"; filename="%b"\r\n' % names_of(one)
            + b"Content-Type: %b\r\n\r\n" % _media_type(one.content_type)
            + one.content
            + b"\r\n"
            for one in letter.attachments
        )

    return make_parts


def _media_type(value: str) -> bytes:
    if not (value.isascii() and value.isprintable()):
        raise Unsendable("a file has no right media type", LetterPart.FILE)
    return value.encode()


# --- addresses and headers --------------------------------------------------------------------------------------------


def quote_url(text: str) -> bytes:
    return quote(text, safe="").encode()


def _quote_path(text: str) -> bytes:
    """Quote a letter's value in a path. Raises Unsendable for "", "." and "..", which would change the path."""
    if text in ("", ".", ".."):
        raise Unsendable(f"{text!r} cannot be a part of the address")
    return quote_url(text)


def url_pieces(text: str, values: FilledValues) -> Pieces:
    """Return the pieces of a URL: constant parts unchanged, values quoted."""
    pieces: Pieces = []
    escape = _quote_path
    for part in split_text(text):
        if isinstance(part, str):
            pieces.append(part.encode("ascii"))
            escape = quote_url if "?" in part else escape
        elif part.space in values:
            pieces.append(quote_url(value_as_text(values[part.space].get(part.name, ""))))
        else:
            pieces.append(_escape_value(bound_getter(part, values), escape))
    return pieces


def header_pieces(name: str, text: str, values: FilledValues) -> Pieces | None:
    """Return the pieces of a header's value; None if an optional setting is missing. Raises InvalidSettings."""
    try:
        found = _text_pieces(text, values, _encode_latin)
    except Unsendable as error:
        raise InvalidSettings([Said("header %(name)s: %(why)s", name=name, why=error)]) from None
    return found[0] if found else None


def _encode_latin(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise Unsendable(Said("the value of a header must be Latin-1"), LetterPart.HEADER) from None


def header_maker(pieces: Pieces, text: str) -> Callable[[Letter], str]:
    """Return a function that renders a header's value; a single placeholder is read directly."""
    [first, *more] = split_text(text)
    if not more and isinstance(first, Placeholder) and first.name not in SENDERS:
        return value_getter(first)
    make = join_pieces(pieces)
    return lambda letter: make(letter).decode("latin-1")
