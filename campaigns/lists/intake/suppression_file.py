"""Reads CSV files of addresses to suppress, lift or erase; writes suppressions to such files.

The first column is the address; the columns reason, source, since, until and topic are found by name. A file is checked
as a whole before the first address is stored.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, BinaryIO

from django.db.models import QuerySet

from campaigns.lists.intake.checking import AddressReader, RowErrors
from campaigns.lists.intake.csv_reader import CELLS, HiddenRows, Table
from campaigns.models import Suppression
from campaigns.reporting.own_files import SUPPRESSIONS
from campaigns.suppression.lists import NewSuppression
from campaigns.texts.bad_input import BadInput
from campaigns.texts.formulas import make_harmless, undo_harmless
from vendors.instants import convert_to_utc, parse_iso_time
from vendors.said import Said

WRITTEN = SUPPRESSIONS
COLUMNS = WRITTEN[1:]
AT_ONCE = 2_000  # rows fetched from the database at a time


class SuppressionFile:
    """The addresses of a CSV file, read anew at each iteration; len() is their number.

    Raises BadInput with all problems.

    default: values for missing or empty columns, except the address. topics: the sponsor's, by name; empty for
    suppressions of all sponsors. most: addresses; reading stops with BadInput above it. with_topics: False ignores that
    column, if only the addresses are needed. most_unpacked, hidden_rows: as in Table. region: as in AddressReader.
    hidden: the number of rows that the spreadsheet hides.
    """

    def __init__(
        self,
        file: BinaryIO,
        channel: str,
        default: NewSuppression,
        topics: Mapping[str, int],
        most: int | None = None,
        *,
        with_topics: bool = True,
        most_unpacked: int | None = None,
        region: str = "",
        hidden_rows: HiddenRows = "keep",
    ) -> None:
        self._table = Table(file, most_unpacked=most_unpacked, hidden_rows=hidden_rows)
        self._table.require_choice()
        self.hidden = len(self._table.hidden_rows)
        self._default, self._topics, self._with_topics = default, topics, with_topics
        self._normal = AddressReader(channel, region)
        self._columns = {name.lower(): column for column, name in enumerate(self._table.header) if column}
        if unknown := [name for name in self._columns if name not in COLUMNS]:
            raise BadInput(
                Said(
                    "there is no column %(name)s: after the address there may be %(known)s",
                    name=repr(unknown[0]),
                    known=", ".join(COLUMNS),
                )
            )
        if _is_valid_address(self._normal, self._table.header[0]) and channel != "print":
            raise BadInput(
                Said("there is no header: the first row holds the address %(name)s", name=repr(self._table.header[0]))
            )
        problems, self._size = RowErrors(), 0
        for number, cells in self._table.rows():
            self._size += 1
            if most is not None and self._size > most:
                raise BadInput(Said("it has more than %(most)s addresses, which are too many at once", most=most))
            try:
                self._read_cells(cells)
            except ValueError as error:
                problems.add_error(number, str(error))
        if not self._size:
            problems.add_error(0, Said("there are no addresses"))
        problems.raise_if_any()

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[NewSuppression]:
        for _, cells in self._table.rows():
            yield self._read_cells(cells)

    def _read_cells(self, cells: list[str]) -> NewSuppression:
        cells = self._fit_cells(cells)
        found = {name: cells[column] for name, column in self._columns.items()}
        values: dict[str, Any] = {name: text for name, text in found.items() if text}
        if values.get("reason", self._default.reason) not in Suppression.Reason.values:
            known = ", ".join(Suppression.Reason.values)
            raise ValueError(
                Said("there is no reason %(name)s; there are %(known)s", name=repr(values["reason"]), known=known)
            )
        if (topic := values.pop("topic", "")) and self._with_topics:
            values["topic_id"] = topic_of(self._topics, topic, values.get("reason", self._default.reason))
        elif values.get("reason", self._default.reason) != Suppression.Reason.UNSUBSCRIBED:
            values["topic_id"] = None
        if "\0" in values.get("source", ""):
            raise ValueError(Said("the source has a NUL character in it"))
        for name in ("since", "until"):
            if name in values:
                values[name] = read_time(values[name], name)
        return replace(self._default, address=self._normal(cells[0]), **values)

    def _fit_cells(self, cells: list[str]) -> list[str]:
        """Return a cell for each column, without quotes before formulas. Raises ValueError."""
        width = len(self._table.header)
        while len(cells) > width and not cells[-1]:  # trailing commas
            cells = cells[:-1]
        if self._table.encoding is None:  # spreadsheet rows end with their last cell
            cells = cells + [""] * (width - len(cells))
        if len(cells) != width:
            raise ValueError(Said(CELLS[len(cells) != 1], count=str(len(cells)), width=str(width)))
        return cells if self._table.is_quoted else [undo_harmless(cell) for cell in cells]


def topic_of(topics: Mapping[str, int], name: str, reason: str) -> int:
    """Return the topic of that name, for a suppression of this topic alone. Raises ValueError."""
    if reason != Suppression.Reason.UNSUBSCRIBED:
        raise ValueError(Said("a topic goes with the reason unsubscribed, not %(reason)s", reason=reason))
    if name not in topics:
        known = ", ".join(topics) or "none"
        raise ValueError(Said("there is no topic %(name)s; there are %(known)s", name=repr(name), known=known))
    return topics[name]


def _is_valid_address(normal: Callable[[str], str], text: str) -> bool:
    try:
        return bool(normal(text))
    except ValueError:
        return False


def read_time(text: str, what: str) -> datetime:
    """Parse an ISO 8601 time with its zone. Raises BadInput, which names `what`."""
    try:
        moment = parse_iso_time(text)
        if moment.tzinfo:
            return convert_to_utc(moment)
    except ValueError:
        pass
    raise BadInput(
        Said(
            "%(what)s %(text)s is not a time with its zone; write it like 2030-01-31T18:00:00+00:00",
            what=what,
            text=repr(text),
        )
    )


def write_suppressions(rows: "QuerySet[Suppression]", file: Any) -> int:
    """Write suppressions that have an address as CSV that SuppressionFile can read; return their number."""
    number = -1  # the header
    for line in suppression_lines(rows):
        file.write(line)
        number += 1
    return number


class _Returned:
    """A file for csv.writer that returns what is written to it."""

    def write(self, text: str) -> str:
        return text


def suppression_lines(rows: "QuerySet[Suppression]") -> Iterator[str]:
    """Yield suppressions that have an address as lines of CSV, the header first, in constant memory."""
    out: Any = csv.writer(_Returned())
    yield out.writerow(WRITTEN)
    known = rows.filter(address__isnull=False).select_related("topic").order_by("id")
    for row in known.iterator(chunk_size=AT_ONCE):
        times = [row.since.isoformat(), _moment_text(row.until)]
        topic = make_harmless(row.topic.name) if row.topic else ""
        yield out.writerow([make_harmless(row.address or ""), row.reason, make_harmless(row.source), *times, topic])


def _moment_text(moment: datetime | None) -> str:
    return moment.isoformat() if moment else ""
