"""Placeholders in the texts of a description: `{recipient}`, `{params.street}`, `{settings.account}`, `{secret.token}`.

A `?` at the end marks a value that may be missing; then the whole member around it is left out. There are no conditions
and no loops. `{{` and `}}` are braces.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import orjson

from vendors.adapters.base import Attachment, Letter
from vendors.adapters.letter_faults import LetterFault, LetterPart
from vendors.adapters.segments import fits_gsm
from vendors.said import Said

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class Unsendable(LetterFault):
    """The letter lacks a value that the description needs; the message names it."""

    def __init__(self, why: str, part: LetterPart = LetterPart.FIELD) -> None:
        super().__init__(part, why)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`{name}` or `{space.name}`. `optional`: written with `?`."""

    space: str
    name: str
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.space}.{self.name}" if self.space else self.name


ALPHABET = Placeholder("", "alphabet")
"""Of an SMS, in the vendor's own words."""

SENDERS = frozenset({"sender", "sender.digits"})
"""Of an SMS; without a sender identity what the description's `[sms]` says."""

Parts = tuple[str | Placeholder, ...]


def _format_sender(letter: Letter) -> str:
    """Format the sender like `Velma <post@example.com>`, with the name quoted."""
    origin = letter.origin
    if origin is None or not origin.name:
        return origin.address if origin else ""
    quoted = origin.name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}" <{origin.address}>'


ATTRIBUTES = ("reference", "recipient", "subject", "body")
"""What a letter has by the same name."""
OF_LETTER: Mapping[str, Callable[[Letter], str]] = {
    **{name: attrgetter(name) for name in ATTRIBUTES},
    "recipient.digits": lambda letter: letter.recipient.removeprefix("+"),
    "text": lambda letter: letter.text if letter.html else letter.body,
    "html": lambda letter: letter.body if letter.html else "",
    "from": _format_sender,
    "from.address": lambda letter: letter.origin.address if letter.origin else "",
    "from.name": lambda letter: letter.origin.name if letter.origin else "",
    "reply_to": lambda letter: letter.origin.reply_to if letter.origin else "",
    "sender": lambda letter: letter.origin.address if letter.origin else "",
    "sender.digits": lambda letter: letter.origin.address.removeprefix("+") if letter.origin else "",
}
"""What every letter has."""
NEEDED = {
    "html": ("its body is not HTML", LetterPart.TEXT),
    "from": ("it has no sender identity", LetterPart.SENDER),
    "from.address": ("it has no sender identity", LetterPart.SENDER),
    "sender": ("it has no sender identity", LetterPart.SENDER),
    "sender.digits": ("it has no sender identity", LetterPart.SENDER),
}
"""What a letter may have not, and what is said of one that needs it, with the part at fault."""
LISTS = frozenset({"files", "headers"})
"""What `each` can stand for."""


def _encode_file(one: Attachment) -> str:
    if not one.part:
        one.part = base64.b64encode(one.content)
    return one.part.decode()


OF_FILE: Mapping[str, Callable[[Any], str]] = {
    "file.name": lambda one: one.name,
    "file.type": lambda one: one.content_type,
    "file.cid": lambda one: one.cid,
    "file.base64": _encode_file,
}
OF_HEADER: Mapping[str, Callable[[Any], str]] = {"header.name": lambda one: one[0], "header.value": lambda one: one[1]}
"""Of one file, and of one header, within `each`."""


def split_text(text: str) -> Parts:
    """Split a text into constants and placeholders. Raises ValueError with a sentence that follows its key."""
    parts: list[str | Placeholder] = []
    constant, begin = "", 0
    for found in _PART.finditer(text):
        constant += text[begin : found.start()]
        begin = found.end()
        if found[0] in ("{{", "}}"):
            constant += found[0][0]
            continue
        if found[1] is None:
            raise ValueError(
                Said("has a %(brace)s alone; write %(twice)s for a brace", brace=found[0], twice=found[0] * 2)
            )
        if constant:
            parts.append(constant)
        constant = ""
        parts.append(_parse_placeholder(found[1]))
    constant += text[begin:]
    return tuple([*parts, constant] if constant or not parts else parts)


def _parse_placeholder(text: str) -> Placeholder:
    name = text.strip()
    optional = name.endswith("?")
    name = name.removesuffix("?").strip()
    space, dot, rest = name.partition(".")
    if dot and space in ("params", "settings", "secret") and rest:
        return Placeholder(space, rest, optional)
    return Placeholder("", name, optional)


def list_placeholders(parts: Parts) -> Iterator[Placeholder]:
    return (part for part in parts if isinstance(part, Placeholder))


def value_as_text(value: Any) -> str:
    """Return a list's field, or a setting, as text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return orjson.dumps(value, default=dict).decode()


def alphabet_getter(gsm: str, unicode: str) -> Callable[[Letter], str]:
    """Return a function that gives the vendor's name of the alphabet an SMS needs (3GPP TS 23.038)."""

    def name_alphabet(letter: Letter) -> str:
        return gsm if fits_gsm(OF_LETTER["text"](letter)) else unicode

    return name_alphabet


def sender_getter(placeholder: Placeholder, default: str) -> Callable[[Letter], str]:
    """Return a function that gives the sender of an SMS; `default` serves letters without an origin."""
    if not default:
        return value_getter(placeholder)
    of_letter = OF_LETTER[placeholder.name]
    default = default.removeprefix("+") if placeholder.name == "sender.digits" else default
    return lambda letter: of_letter(letter) or default


def value_getter(placeholder: Placeholder) -> Callable[[Any], str]:
    """Return a function that gives the placeholder's text for a letter, file or header.

    It raises Unsendable if the value is missing and not optional.
    """
    if placeholder.space == "params":
        return _param_getter(placeholder.name, placeholder.optional)
    of_every = {**OF_LETTER, **OF_FILE, **OF_HEADER}[placeholder.name]
    if placeholder.name in NEEDED and not placeholder.optional:
        return _required_getter(of_every, *NEEDED[placeholder.name])
    return of_every


def _param_getter(name: str, optional: bool) -> Callable[[Letter], str]:
    def read_param(letter: Letter) -> str:
        if name in letter.params:
            return value_as_text(letter.params[name])
        if optional:
            return ""
        raise Unsendable(Said("the field %(name)s is missing", name=name))

    return read_param


def _required_getter(of_letter: Callable[[Any], str], missing: str, part: LetterPart) -> Callable[[Any], str]:
    def read_required(letter: Any) -> str:
        found = of_letter(letter)
        if not found:
            raise Unsendable(missing, part)
        return found

    return read_required
