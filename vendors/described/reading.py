"""Reads a description and explains all its mistakes, each with its key and line."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vendors.adapters.options import InvalidSettings
from vendors.described import checks, secrets
from vendors.described.placeholders import Placeholder
from vendors.described.positions import DEEPEST, KeyFault, KeyPath, deep_line, line_at, lines_of
from vendors.described.schema import DescriptionKeys
from vendors.said import Said, gettext_noop

SHIPPED = Path(__file__).parent / "shipped"
LONGEST = 65_536  # characters in a file
ROUNDS = 6  # validation passes that look for more mistakes
STAND_INS: dict[Any, Any] = {
    "vendor": {},
    "request": {},
    "answer": {"id": "id"},
    "id": "id",
    "name": "x",
    "about": "x",
    "documents": "x",
    "channel": "sms",
    "url": "https://vendor.example",
    "status": 599,
    "is": "in doubt",
    "scheme": "header",
    "contract": "nothing yet",
    "reference": "reference",
    "to": "to",
    "variables": "variables",
    "variable": "NAME",
    "own": [],
}


# Pydantic's sentences, by the type of its error
SHAPES = {
    "string_type": (gettext_noop("input should be a valid string"),),
    "bool_type": (gettext_noop("input should be a valid boolean"),),
    "int_type": (gettext_noop("input should be a valid integer"),),
    "float_type": (gettext_noop("input should be a valid number"),),
    "float_parsing": (gettext_noop("input should be a valid number, unable to parse string as a number"),),
    "list_type": (gettext_noop("input should be a valid list"),),
    "greater_than": (gettext_noop("input should be greater than %(least)s"),),
    "greater_than_equal": (gettext_noop("input should be greater than or equal to %(least)s"),),
    "less_than_equal": (gettext_noop("input should be less than or equal to %(most)s"),),
    "string_too_short": (
        gettext_noop("string should have at least %(least)s character"),
        gettext_noop("string should have at least %(least)s characters"),
    ),
    "string_too_long": (gettext_noop("string should have at most %(most)s characters"),),
    "too_short": (
        gettext_noop("value should have at least %(least)s item after validation, not %(there)s"),
        gettext_noop("dictionary should have at least %(least)s item after validation, not %(there)s"),
    ),
    "too_long": (
        gettext_noop("value should have at most %(most)s items after validation, not %(there)s"),
        gettext_noop("list should have at most %(most)s items after validation, not %(there)s"),
        gettext_noop("dictionary should have at most %(most)s items after validation, not %(there)s"),
    ),
}
NAMES = {  # of values in them, by pydantic's
    "gt": "least",
    "ge": "least",
    "min_length": "least",
    "le": "most",
    "max_length": "most",
    "actual_length": "there",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake. `path` looks like answer.rules.0.status."""

    line: int
    path: str
    sentence: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.path}: {self.sentence}" if self.path else f"line {self.line}: {self.sentence}"

    @property
    def setting_fault(self) -> Said:
        """The mistake as one of a vendor's settings."""
        line = str(self.line)
        if not self.path:
            return Said("description, line %(line)s: %(fault)s", line=line, fault=self.sentence)
        return Said("description, line %(line)s: %(path)s: %(fault)s", line=line, path=self.path, fault=self.sentence)


class InvalidDescription(InvalidSettings):
    """The file cannot be used; `faults` lists its mistakes by line."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.line)
        super().__init__([fault.setting_fault for fault in self.faults])


@dataclass(frozen=True, slots=True)
class Description:
    """A checked file. `used`: every placeholder in the sent texts."""

    source: str
    keys: DescriptionKeys
    used: frozenset[Placeholder]


@lru_cache(maxsize=256)
def read_description(source: str) -> Description:
    """Read a stored text, or one about to be stored. Raises InvalidDescription with every unusable part.

    A release with stricter checks must not stop vendors that already send, so only unusable parts are refused.
    """
    return _read_source(source, entered=False)


@lru_cache(maxsize=256)
def read_entered(source: str) -> Description:
    """Read a text that a user has just entered. Raises InvalidDescription with every mistake."""
    if len(source) > LONGEST:
        raise InvalidDescription([Fault(1, "", Said("it is longer than %(most)s characters", most=LONGEST))])
    return _read_source(source, entered=True)


def _read_source(source: str, entered: bool) -> Description:
    if entered and (line := deep_line(source)):
        raise InvalidDescription([Fault(line, "", Said("a name has more than %(most)s parts", most=str(DEEPEST)))])
    try:
        raw = tomllib.loads(source)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidDescription([_syntax_fault(str(error), source)]) from None
    lines = lines_of(source)
    keys, found = _validate_keys(raw)
    shapeless = {path for path, _ in found}
    check = checks.DescriptionCheck(keys) if keys else None
    if entered:
        found = [*secrets.find_suspects(raw), *found]
    if check:
        wrong = check.find_faults() if entered else check.find_unusable()
        found += [fault for fault in wrong if not _is_within(fault[0], shapeless)]
    if found or keys is None or check is None:
        raise InvalidDescription([_make_fault(lines, path, sentence) for path, sentence in dict.fromkeys(found)])
    return Description(source, keys, frozenset(check.used))


def list_shipped() -> list[str]:
    """Return the names of the descriptions that come with mailhub."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def source_of(name: str) -> str:
    """Return the text of a shipped description. Raises ValueError."""
    if name not in list_shipped():
        raise ValueError(
            Said(
                "is not the text of a description, nor the name of a shipped one: %(known)s",
                known=", ".join(list_shipped()),
            )
        )
    return (SHIPPED / f"{name}.toml").read_text()


def _validate_keys(raw: dict[str, Any]) -> tuple[DescriptionKeys | None, list[KeyFault]]:
    """Validate the keys. Returns them, or None if too much is wrong, and the mistakes in their shape.

    Invalid values are removed or replaced by stand-ins, so that the same run can find further mistakes.
    """
    found: list[KeyFault] = []
    for _ in range(ROUNDS):
        try:
            return DescriptionKeys.model_validate(raw), found
        except ValidationError as error:
            errors = error.errors(include_url=False)
        known = {path for path, _ in found}
        found += [_shape_fault(one) for one in errors if not _is_within(_error_path(one), known)]
        raw = copy.deepcopy(raw)
        for one in errors:
            _mend_node(raw, _error_path(one), missing=one["type"] == "missing")
    return None, found


def _is_within(path: KeyPath, known: Collection[KeyPath]) -> bool:
    """Return True if the path, or one that contains it, is known to be wrong."""
    return any(path[:depth] in known for depth in range(1, len(path) + 1))


def _mend_node(node: Any, path: KeyPath, missing: bool) -> None:
    *above, last = path
    try:
        for step in above:
            node = node[step]
        if last in STAND_INS:
            node[last] = copy.deepcopy(STAND_INS[last])
        elif not missing:
            del node[last]
    except (KeyError, IndexError, TypeError):  # its parent was removed already
        return


def _error_path(error: Any) -> KeyPath:
    return tuple(part for part in error["loc"] if part != "[key]" and not str(part).startswith("function-"))


def _make_fault(lines: dict[KeyPath, int], path: KeyPath, sentence: str) -> Fault:
    return Fault(line_at(lines, path), ".".join(map(str, path)), sentence)


def _syntax_fault(message: str, source: str) -> Fault:
    place = re.search(r"\(at (?:line (\d+), column (\d+)|end of document)\)", message)
    line = int(place[1]) if place and place[1] else source.count("\n") + 1
    return Fault(line, "", Said("this is not TOML: %(error)s", error=message.partition(" (at")[0]))


def _shape_fault(error: Any) -> KeyFault:
    """Return pydantic's error as a sentence that follows the key."""
    path = _error_path(error)
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "missing":
        return path, Said("is missing")
    if kind == "extra_forbidden":
        return path, Said("is not a key of a description")
    if kind == "string_pattern_mismatch":
        return path, Said("has not the right form (%(pattern)s)", pattern=context["pattern"])
    if kind == "literal_error":
        return path, Said("must be one of %(either)s", either=Said.join_either(context["expected"].split(" or ")))
    if kind in ("dict_type", "model_type"):
        return path, Said("must be a table")
    if kind == "value_error":
        return path, str(context["error"])
    text = str(error["msg"])[:1].lower() + str(error["msg"])[1:]
    values = {name: _show_number(context[key]) for key, name in NAMES.items() if key in context}
    forms = (Said(form, **values) for form in SHAPES.get(kind, ()))
    return path, next((said for said in forms if said == text), text)


def _show_number(value: Any) -> str:
    """Return a number as pydantic writes it."""
    return "more" if value is None else f"{value:g}"
