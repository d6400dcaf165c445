"""Every recipient is looked at before the first one is stored, in memory that the number of rows hardly moves."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from campaigns.content.cost import Budget
from campaigns.content.templates import LINE_BREAK, Content, TemplateError
from campaigns.intake import duplicates
from campaigns.intake.addresses import Normal
from campaigns.intake.duplicates import Digest, DuplicateFinder
from campaigns.intake.problems import BadInput, RowError, RowErrors

MAX_CELL = 100_000  # characters
STEP = 5_000  # rows between two words of progress

InputRow = tuple[int, str, Mapping[str, Any]]  # number, recipient as written, fields
InputRows = Iterable[InputRow | RowError]
OnProgress = Callable[[], None]


def check(
    rows: InputRows, normal: Normal, content: Content, progress: OnProgress = lambda: None, digest: Digest = hash
) -> int:
    """How many recipients there are, all of them good; else raises BadInput with what is wrong in which row.

    rows is gone through a second time if two recipients look the same.
    """
    problems, seen = RowErrors(), DuplicateFinder(digest)
    count = 0
    try:
        for count, row in enumerate(rows, start=1):
            _look(row, normal, content, seen, problems)
            if count % STEP == 0:
                progress()
    except BadInput as broken:  # the file cannot be read on from here
        problems.extend(broken)
        problems.fail()
    if not count:
        problems.add(0, "there are no recipients")
    suspects = seen.twice()
    if suspects:
        duplicates.report(suspects, _keys(rows, normal), problems, digest)
    problems.check()
    return count


def _look(
    row: InputRow | RowError, normal: Normal, content: Content, seen: DuplicateFinder, problems: RowErrors
) -> None:
    if isinstance(row, RowError):
        problems.add(row.row, row.text)
        return
    number, recipient, fields = row
    try:
        key = normal(recipient)
        seen.add(key)
    except ValueError as error:
        key = ""
        problems.add(number, str(error))
    for text in faults(key, fields, content):
        problems.add(number, text)


def _keys(rows: InputRows, normal: Normal) -> Iterator[tuple[int, str]]:
    for row in rows:
        if not isinstance(row, RowError):
            try:
                yield row[0], normal(row[1])
            except ValueError:
                continue  # reported before


def faults(recipient: str, fields: Mapping[str, Any], content: Content, budget: Budget | None = None) -> Iterator[str]:
    """What is wrong with one recipient's fields, in words. Raises OverBudget if there is a budget."""
    if not _sound(recipient, fields, content):
        yield from _looked_closely(recipient, fields, content, budget)


def _sound(recipient: str, fields: Mapping[str, Any], content: Content) -> bool:
    """A quick look that lets most through: short printable texts for a template that only shows them."""
    try:
        text = "".join(fields.values()) + recipient
    except TypeError:
        return False
    short = len(text) <= content.safe and len(text) <= MAX_CELL
    return short and text.isprintable() and all(map(fields.get, content.required))


def _looked_closely(
    recipient: str, fields: Mapping[str, Any], content: Content, budget: Budget | None = None
) -> Iterator[str]:
    try:
        text = "".join(fields.values())
    except TypeError:
        text = _json(fields)
    if len(text) > MAX_CELL or "\0" in text or "\0" in recipient:
        yield from _cell_faults(fields, recipient)
    for name in content.required:
        if fields.get(name) in ("", None):
            yield f"{name!r} is empty, and the template shows it"
    missing = content.fields - fields.keys()
    if missing:
        yield f"the template needs {_listed(missing)}"
    else:
        yield from _rendering_faults(recipient, fields, content, budget)


def _json(fields: Mapping[str, Any]) -> str:
    """Fields that are not all text, with NUL as it would arrive in the database."""
    return orjson.dumps(fields).decode().replace("\\u0000", "\0")


def _cell_faults(fields: Mapping[str, Any], recipient: str) -> Iterator[str]:
    for name, value in (("recipient", recipient), *fields.items()):
        text = value if isinstance(value, str) else _json({name: value})
        if len(text) > MAX_CELL:
            yield f"{name!r} is larger than {MAX_CELL:,} characters"
        if "\0" in text:
            yield f"{name!r} has a NUL character in it"


def _rendering_faults(
    recipient: str, fields: Mapping[str, Any], content: Content, budget: Budget | None
) -> Iterator[str]:
    try:
        content.render(recipient, fields, budget)
    except TemplateError as error:
        broken = [name for name in content.subject_fields if LINE_BREAK.search(str(fields[name]))]
        yield f"{_listed(broken)} has a line break, and the subject shows it" if broken else str(error)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
