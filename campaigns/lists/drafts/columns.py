"""Finds a list's recipient column and the names of its other columns in templates, guessed or as chosen."""

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from campaigns.lists.intake.checking import AddressReader
from campaigns.lists.intake.csv_reader import ColumnNames, Table, field_name

HIDDEN_ROWS = "hidden_rows"  # key of Draft.columns: the decision about them, as in intake.Table
LOOKED_AT = 20  # rows read for a guess
SHOWN = 3  # rows shown as examples
LONGEST = 60  # characters of an example
HEADERS = {
    "email": re.compile(r"e-?mail|mail|courriel|correo", re.IGNORECASE),
    "sms": re.compile(r"phone|mobile|cell|number|sms|handy|telefon|téléphone|móvil|gsm", re.IGNORECASE),
    "print": re.compile(r"recipient|address|anschrift|key|id\b", re.IGNORECASE),
}


class Arrangement:
    """The meaning of a table's columns.

    chosen: the user's choices, as in Draft.columns; {}: none yet. needed: the fields that the message shows. known,
    after the call: what pages show of it: header, examples, choices.
    """

    def __init__(self, chosen: Mapping[str, Any], channel: str, region: str) -> None:
        self._chosen, self._channel, self._region = chosen, channel, region
        self.needed: Collection[str] = ()
        self.known: dict[str, Any] = {}

    def __call__(self, table: Table) -> ColumnNames:
        header = [name for name in table.header if name]
        first = [cells for _, cells in islice(table.rows(), LOOKED_AT)]
        recipient = self._chosen.get("recipient")
        if recipient not in header:
            recipient = self._guess_column(table.header, first)
        chosen = self._chosen.get("names", {})
        names = {name: chosen.get(name) or self._field_of_column(name) for name in header}
        examples = {
            name: [cells[n][:LONGEST] for cells in first[:SHOWN] if n < len(cells) and cells[n]]
            for n, name in enumerate(table.header)
            if name
        }
        shown = [{"header": name, "field": names[name], "examples": examples[name]} for name in header]
        self.known = {"recipient": recipient, "columns": shown}
        return ColumnNames(recipient, names)

    def _guess_column(self, header: list[str], first: list[list[str]]) -> str:
        """Return the column with the most addresses; among equals one whose header fits, else the first."""
        normal, sounds = AddressReader(self._channel, self._region), HEADERS[self._channel]

        def column_rank(number: int) -> tuple[int, bool]:
            cells = [one[number] for one in first if number < len(one)]
            good = sum(_is_address(cell, normal) for cell in cells) if self._channel != "print" else 0
            return good, sounds.search(header[number]) is not None and bool(header[number])

        best = max((number for number, name in enumerate(header) if name), key=column_rank, default=0)
        return header[best] if header[best] and any(column_rank(best)) else next(filter(None, header), "")

    def _field_of_column(self, name: str) -> str:
        """Return the message's field with a similar name, else the column's own name."""
        own = field_name(name)
        alike = [one for one in self.needed if _bare_letters(one) == _bare_letters(name)]
        return own if own in self.needed or len(alike) != 1 else alike[0]


def _bare_letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _is_address(text: str, normal: AddressReader) -> bool:
    try:
        return bool(normal(text))
    except ValueError:
        return False
