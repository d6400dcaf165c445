"""Sentences of the program kept as data: a form and its values, so that pages show them in the reader's language.

A `Said` is its English sentence, and so a plain text for commands, the API, logs and text columns. `show` translates it
from its form and values. Any other text is somebody's own words, and is shown as it is.

A table keeps a Said in two columns: the English sentence, and its form and values as JSON (`columns`). `read` puts the
two together again. The sentence decides: where the JSON does not say the same, an earlier version or a person has
written the text since, and the JSON is ignored.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import reduce
from typing import Any, Self

FORM, VALUES, DECIMAL = "form", "values", "decimal"
SHORTEST = 200  # characters of the shortest column that cuts a sentence off


def gettext_noop(form: str) -> str:
    """Mark a form for the catalogue where it is made."""
    return form


_rewordings: ContextVar[Mapping[str, str] | None] = ContextVar("rewordings", default=None)


@contextmanager
def reword_forms(forms: Mapping[str, str]) -> Iterator[None]:
    """Show sentences of these forms by other ones within the block: the same values in the words of its readers."""
    before = _rewordings.set(forms)
    try:
        yield
    finally:
        _rewordings.reset(before)


_EARLIER_PERCENT = re.compile(r"(?<=\)s) %%(?!\})")  # in forms stored before the sign lost its blank
EITHER = gettext_noop("%(first)s or %(last)s")


class Said(str):
    """A sentence in English, made of a form (a msgid of the catalogue) and its values.

    Values are texts, shown as they are; counts and measures, written as in the reader's language, a Decimal with all
    its places; and further Saids.
    """

    __slots__ = ("form", "values")
    form: str
    values: Mapping[str, Any]

    def __new__(cls, form: str, **values: Any) -> Self:
        """Mark `form` for translation where it is written. Without values it is a plain text, not a format string."""
        kept = {name: one if isinstance(one, (int, float, str, Decimal)) else str(one) for name, one in values.items()}
        english = form % {name: _english_value(one) for name, one in kept.items()} if kept else form
        made = super().__new__(cls, english)
        made.form, made.values = form, kept
        return made

    @classmethod
    def join_parts(cls, between: str, parts: Iterable[str]) -> Self:
        """Return the parts with `between` between them. Each stays a Said or somebody's words."""
        values = {f"part{number}": part for number, part in enumerate(parts)}
        return cls(between.replace("%", "%%").join(f"%({name})s" for name in values), **values)

    @classmethod
    def join_either(cls, parts: Iterable[str]) -> str:
        """Return the parts with "or" between them."""
        return reduce(lambda first, last: cls(EITHER, first=first, last=last), parts)

    def __str__(self) -> str:
        """Return the Said itself, so that str() of an exception with a sentence keeps form and values."""
        return self

    def __reduce__(self) -> Any:
        return _decode_said, (self.data,)

    @classmethod
    def count_form(cls, one: str, many: str, **values: Any) -> Self:
        """Return the sentence of one thing or of many, as the value `count` says."""
        return cls(one if values["count"] == 1 else many, **values)

    @property
    def data(self) -> dict[str, Any]:
        """Form and values for a JSON column."""
        values = {name: _encode_value(one) for name, one in self.values.items()}
        return {FORM: self.form, VALUES: values}


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return "1 message" or "2,000 messages", for the English of commands. plural: default is the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _encode_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return {DECIMAL: f"{value:f}"}
    return value.data if isinstance(value, Said) else value


def _decode_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return Decimal(value[DECIMAL]) if DECIMAL in value else _decode_said(value)


def _english_value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def show(text: str) -> str:
    """Return the sentence in the active language; somebody's own words as they are."""
    if not isinstance(text, Said):
        return text
    from django.utils.translation import gettext  # here, as processes that only make sentences load no Django

    form = (_rewordings.get() or {}).get(text.form, text.form)
    form = _EARLIER_PERCENT.sub("%%", form)
    form = gettext(form) if form else ""  # gettext("") is the head of the catalogue
    return form % {name: _show_value(one) for name, one in text.values.items()} if text.values else form


def _show_value(value: Any) -> str:
    from django.utils import formats

    if isinstance(value, str):
        return show(value)
    if isinstance(value, Decimal):
        return formats.number_format(value)
    if isinstance(value, int):
        return formats.number_format(value, force_grouping=True)
    return formats.number_format(f"{value:g}")


def columns(name: str, text: str, most: int | None = 255) -> dict[str, Any]:
    """Return the values of both columns of a text: `<name>` with its first characters, and `<name>_said`.

    most: characters of `<name>`; None: all.
    """
    return {name: text[:most], f"{name}_said": to_data(text)}


def to_data(text: str) -> dict[str, Any] | None:
    """Return a text's data for the JSON column; None for somebody's own words."""
    return text.data if isinstance(text, Said) else None


def read(text: str, data: Any) -> str:
    """Return a stored text, as a Said if its JSON says the same."""
    if not data or not text:
        return text
    try:
        found = _decode_said(data)
    except (KeyError, TypeError, ValueError, ArithmeticError):  # of a version that keeps it otherwise
        return text
    whole = found == text or (len(text) >= SHORTEST and found.startswith(text))
    return found if whole else text


def _decode_said(data: Any) -> Said:
    values = {name: _decode_value(one) for name, one in data[VALUES].items()}
    return Said(data[FORM], **values)
