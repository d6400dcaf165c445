"""Texts as a person or a program gives them: cells, headers, fields, addresses, file names, templates, options.

Every door passes them through one of these functions before it checks or stores anything. All of them compose letters
(NFC: a Mac writes ö as two signs), and remove signs that nobody sees or that a letter cannot show. NUL stays, because
readers of spreadsheets mark errors with it and the checks refuse it.
"""

import unicodedata
from collections.abc import Mapping
from typing import Any

from vendors.control_signs import LINE_BREAKS, MEANINGLESS

# Blanks at the ends; str.strip knows some of these only.
_BLANKS = "\u00ad\u034f\u061c\u115f\u1160\u180e\u200c\u200e\u200f\u2800\u3164\uffa0"
_JOINERS = "\u200c\u200d"


def compose_text(text: str) -> str:
    """Return a template, with composed letters and without meaningless signs; blanks and line breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    return unicodedata.normalize("NFC", MEANINGLESS.sub("", text))


def given_value(text: str) -> str:
    """Return a cell, a field or an option, also without the blanks around it. Blanks alone are empty."""
    if text.isascii() and text.isprintable():
        return text.strip()
    if text.startswith("\0"):
        return text
    return _strip_blanks(compose_text(LINE_BREAKS.sub("\n", text)))


def given_name(text: str) -> str:
    """Return the name of a column, a field or a file, without any sign that nobody sees."""
    if text.isascii() and text.isprintable():
        return text.strip()
    if text.startswith("\0"):
        return text
    seen = (one for one in LINE_BREAKS.sub(" ", text) if one in _JOINERS or unicodedata.category(one) != "Cf")
    return _strip_blanks(compose_text("".join(seen)))


def given_address(text: str) -> str:
    """Return an address without any sign that nobody sees, as those around a number copied from a contact."""
    if text.isascii() and text.isprintable():
        return text.strip()
    return given_value("".join(one for one in text if unicodedata.category(one) != "Cf"))


def given_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipient's fields, with each text in them as given_value returns it."""
    return {given_name(name): _given_in_list(value) for name, value in fields.items()}


def _given_in_list(value: Any) -> Any:
    if isinstance(value, str):
        return given_value(value)
    if isinstance(value, list):
        return [_given_in_list(one) for one in value]
    if isinstance(value, Mapping):
        return given_fields(value)
    return value


def _strip_blanks(text: str) -> str:
    """Strip blanks of both kinds, in any order."""
    while text != (text := text.strip().strip(_BLANKS)):
        pass
    return text
