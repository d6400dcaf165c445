"""Postal addresses from the columns of a list, and a vendor's rules for them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vendors.said import Said

ALPHABETS = ("any", "latin1", "ascii")
_COLUMN = re.compile(r"\w{1,100}")


@dataclass(frozen=True, slots=True)
class AddressRules:
    """A vendor's rules for addresses. `lines`: the columns in each line; empty: the recipient itself is the address.

    `required`: columns that must not be empty; `one_of`: at least one of these must be filled; `longest`: the
    characters a column may have. `most_lines` and `width`: the number of lines, and of characters in a line; 0:
    unlimited. `country`: a column whose value must be among `countries`; empty: no such rule.
    """

    lines: tuple[tuple[str, ...], ...] = ()
    required: frozenset[str] = frozenset()
    most_lines: int = 0
    width: int = 0
    alphabet: str = "any"
    country: str = ""
    countries: frozenset[str] = frozenset()
    one_of: tuple[str, ...] = ()
    longest: tuple[tuple[str, int], ...] = ()
    by_vendor: bool = False
    """The vendor makes the address of columns itself."""

    @property
    def needed_columns(self) -> frozenset[str]:
        """Columns a list must have."""
        own = {self.country} if self.country else set()
        return frozenset(column for line in self.lines for column in line) | self.required | own

    def address_lines(self, recipient: str, fields: Mapping[str, Any]) -> list[str]:
        """Return the lines of a recipient's address, without empty ones."""
        if not self.lines:
            return lines_of(recipient)
        found = (" ".join(filter(None, (_as_one_line(fields.get(name)) for name in line))) for line in self.lines)
        return [line for line in found if line]

    def find_faults(self, recipient: str, fields: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each rule that the address breaks."""
        for name in sorted(self.required):
            if not _as_one_line(fields.get(name)):
                yield f"{name!r} is empty, and the address needs it"
        if self.one_of and not any(_as_one_line(fields.get(name)) for name in self.one_of):
            yield f"{' and '.join(map(repr, self.one_of))} are empty, and the address needs one of them"
        for name, most in self.longest:
            if (length := len(_as_one_line(fields.get(name)))) > most:
                yield f"{name!r} has {length} characters, and the vendor prints {most}"
        if self.country and _as_one_line(fields.get(self.country)).upper() not in self.countries:
            among = ", ".join(sorted(self.countries))
            country = _shorten(_as_one_line(fields.get(self.country)))
            yield f"{self.country!r} is {country}; the vendor delivers to {among}"
        if not self.by_vendor:
            yield from self._faults_of_lines(self.address_lines(recipient, fields))

    def _faults_of_lines(self, found: Sequence[str]) -> Iterator[str]:
        if not found:
            yield "there is no address"
        if self.most_lines and len(found) > self.most_lines:
            yield f"the address has {len(found)} lines, and the vendor prints {self.most_lines}"
        for line in found:
            if self.width and len(line) > self.width:
                yield f"the address's line {_shorten(line)} has {len(line)} characters, more than {self.width}"
            if strange := self._find_strange_sign(line):
                yield f"the address's line {_shorten(line)} has {strange!r}, which the vendor cannot print"

    def _find_strange_sign(self, line: str) -> str:
        """Return a character that cannot be printed or is not in the vendor's alphabet, or ""."""
        for one in line:
            if not one.isprintable():
                return one
            try:
                one.encode("utf-8" if self.alphabet == "any" else self.alphabet)
            except UnicodeEncodeError:
                return one
        return ""


class PrintsAddresses(ABC):
    """An adapter that prints addresses from the columns of a list."""

    @classmethod
    @abstractmethod
    def address_rules(cls, settings: Mapping[str, Any]) -> AddressRules | None:
        """Return the rules for addresses under these settings; None: no rules. Raises ValueError."""


def lines_of(recipient: str) -> list[str]:
    """Return the lines of an address that is the recipient itself."""
    return [line for line in (_as_one_line(one) for one in recipient.splitlines()) if line]


def parse_lines(value: Any) -> tuple[tuple[str, ...], ...]:
    """Parse an option: columns, separated by blanks within a line and by semicolons between lines."""
    parts = value.split(";") if isinstance(value, str) else value
    found = tuple(tuple(one.split() if isinstance(one, str) else one) for one in parts)
    if not all(found) or not all(_COLUMN.fullmatch(name) for line in found for name in line):
        raise ValueError(Said("must be columns of the list, such as 'name; street; postcode city'"))
    return found


def parse_names(value: Any) -> tuple[str, ...]:
    """Parse an option: words, separated by blanks or commas."""
    found = tuple(value.replace(",", " ").split()) if isinstance(value, str) else tuple(value)
    if not found or not all(_COLUMN.fullmatch(name) for name in found):
        raise ValueError(Said("must be words, separated by blanks"))
    return found


def _as_one_line(value: Any) -> str:
    return "" if value is None else " ".join(str(value).split())


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
