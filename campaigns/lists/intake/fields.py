"""Checks the fields of one recipient closely and reports faults as sentences.

Only rows that fail the quick check come here (checking.field_faults). They are rendered as the sender will render them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from campaigns.texts.templates import LINE_BREAK, UNSUBSCRIBE_URL, Budget, Content, TemplateError
from vendors.said import Said, gettext_noop

MAX_CELL = 100_000  # characters
NEEDS = gettext_noop("the template needs %(names)s")
NEEDS_OURS = gettext_noop("the template needs %(names)s; a bulk campaign is given it where PUBLIC_URL is set")


def looked_closely(
    recipient: str, fields: Mapping[str, Any], content: Content, budget: Budget | None = None
) -> Iterator[str]:
    """Yield the faults. May raise OverBudget if a budget is given."""
    try:
        text = "".join(fields.values())
    except TypeError:
        text = _fields_as_json(fields)
    if len(text) > MAX_CELL or "\0" in text or "\0" in recipient:
        yield from _cell_faults(fields, recipient)
    for name in content.required:
        if fields.get(name) in ("", None):
            yield Said("%(name)s is empty, and the template shows it", name=repr(name))
    missing = content.fields - fields.keys()
    if missing:
        yield Said(NEEDS_OURS if UNSUBSCRIBE_URL in missing else NEEDS, names=_quoted_names(missing))
    else:
        yield from _rendering_faults(recipient, fields, content, budget)


def _fields_as_json(fields: Mapping[str, Any]) -> str:
    """Return fields as JSON if some are not text, with NUL as the character that the database would see."""
    return orjson.dumps(fields).decode().replace("\\u0000", "\0")


def _cell_faults(fields: Mapping[str, Any], recipient: str) -> Iterator[str]:
    for name, value in (("recipient", recipient), *fields.items()):
        text = value if isinstance(value, str) else _fields_as_json({name: value})
        if len(text) > MAX_CELL:
            yield Said("%(name)s is larger than %(most)s characters", name=repr(name), most=MAX_CELL)
        if "\0" in text:
            yield nul_fault(name, text)


def nul_fault(name: str, text: str) -> str:
    """Describe a cell with a NUL character. Readers of spreadsheets put one before a formula's error."""
    if text.startswith("\0#"):
        return Said("%(name)s holds the error %(error)s of a spreadsheet's formula", name=repr(name), error=text[1:40])
    if text == "\0=":
        return Said(
            "%(name)s is a formula that was never calculated: open the list in a spreadsheet program and save it",
            name=repr(name),
        )
    return Said("%(name)s has a NUL character in it", name=repr(name))


def _rendering_faults(
    recipient: str, fields: Mapping[str, Any], content: Content, budget: Budget | None
) -> Iterator[str]:
    try:
        content.render_letter(recipient, fields, budget)
    except TemplateError as error:
        broken = [name for name in content.subject_fields if LINE_BREAK.search(str(fields.get(name)))]
        if broken:
            yield Said("%(names)s has a line break, and the subject shows it", names=_quoted_names(broken))
        else:
            yield str(error)


def _quoted_names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
