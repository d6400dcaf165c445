"""Checks that the fonts of print have each sign that a letter shows, before anything is stored.

The template's own text is checked once. A row is checked closely only if one of its fields has a sign without a glyph:
its letter is then rendered exactly as in sending. The pages are checked again during production.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from campaigns.texts.addresses import address_rules
from campaigns.texts.templates import Budget, Content, TemplateError, Values
from vendors import adapters
from vendors.adapters.addresses import AddressRules
from vendors.adapters.glyphs import DrawsSigns
from vendors.said import Said, gettext_noop

_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_HIDDEN = re.compile(r"<!--.*?(?:-->|\Z)|<(style|script|head)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"<[^<>]*>")
_OWN_FONTS = re.compile(r"@font-face", re.IGNORECASE)
IN_LETTER = gettext_noop("the letter shows %(signs)s, which no installed font has")
IN_FIELD = gettext_noop("%(name)s has %(signs)s, which no installed font has")


@dataclass(frozen=True, slots=True)
class SignCheck:
    """The check of one vendor. missing: names the signs of a text without a glyph. address: the drawn part of one."""

    missing: Callable[[str], str]
    address: AddressRules | None


def sign_check(adapter: str, settings: Any) -> SignCheck | None:
    """Return the check for a vendor with this adapter and these settings; None if it draws nothing here."""
    if (kind := drawing_adapter(adapter)) is None:
        return None
    try:
        drawn = address_rules(adapter, settings) if kind.draws_address(settings) else None
    except ValueError:
        return None  # other faults of the settings are reported where the adapter is used
    return SignCheck(kind.missing_glyphs, drawn)


def knows_fonts(adapter: str) -> bool:
    """Return True if letters of this adapter are drawn here, with known fonts: so each sign was checked."""
    kind = drawing_adapter(adapter)
    return kind is not None and bool(kind.scripts()[0])


def drawing_adapter(adapter: str) -> type[DrawsSigns] | None:
    """Return an adapter by its name, if it draws letters with this machine's fonts."""
    try:
        kind = adapters.load(adapter)
    except (LookupError, ImportError):
        return None
    return kind if issubclass(kind, DrawsSigns) else None


def check_signs(content: Content, body: str, html: bool, checks: Iterable[SignCheck | None]) -> Content:
    """Return the content with each recipient's signs checked. Raises TemplateError for a sign of the template itself.

    checks: of every vendor the campaign may go by. A letter that brings fonts is checked when its pages are made.
    """
    known = [one for one in checks if one]
    if not known:
        return content
    brings_fonts = html and _OWN_FONTS.search(body) is not None
    if not brings_fonts and (missing := known[0].missing(text_a_letter_shows(_TEMPLATE.sub("", body), html))):
        raise TemplateError(Said(IN_LETTER, signs=missing))
    # Such as a default: only some rows show it.
    perhaps = not brings_fonts and known[0].missing("".join(_TEMPLATE.findall(body))) != ""
    before = content.further

    def find_sign_faults(recipient: str, fields: Values, budget: Budget | None) -> Iterator[str]:
        if perhaps or known[0].missing(_all_text(recipient, fields)):
            shown = "" if brings_fonts else _render_or_empty(content, html, recipient, fields, budget)
            for one in known:
                shown += "\n".join(one.address.address_lines(recipient, fields)) if one.address else ""
            yield from _sign_faults(known[0].missing, shown, recipient, fields)
        yield from before(recipient, fields, budget) if before else ()

    return replace(content, further=find_sign_faults)


def text_a_letter_shows(text: str, html: bool) -> str:
    """Return the text that a letter may show: of HTML without tags, styles, scripts and comments."""
    return _TAGS.sub("", _HIDDEN.sub("", text)) if html else text


def _all_text(recipient: str, fields: Values) -> str:
    return recipient + "".join(one if isinstance(one, str) else str(one) for one in fields.values())


def _render_or_empty(content: Content, html: bool, recipient: str, fields: Values, budget: Budget | None) -> str:
    try:
        return text_a_letter_shows(content.render_letter(recipient, fields, budget)[1], html)
    except (TemplateError, LookupError):
        return ""  # reported by the check of the fields


def _sign_faults(missing: Callable[[str], str], shown: str, recipient: str, fields: Values) -> Iterator[str]:
    """Yield a sentence for each field with such a sign, if the letter shows one; else for the letter."""
    if not (signs := missing(shown)):
        return
    given = {"recipient": recipient, **{name: _all_text("", {name: value}) for name, value in fields.items()}}
    named = {name: missing("".join(set(text) & set(shown))) for name, text in given.items()}
    found = {name: one for name, one in named.items() if one}
    for name, one in found.items():
        yield Said(IN_FIELD, name=repr(name), signs=one)
    if not found:
        yield Said(IN_LETTER, signs=signs)
