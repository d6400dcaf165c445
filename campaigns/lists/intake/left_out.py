"""Rows left out of a list, with their reasons, so that the rest of the list can be sent.

A row takes 8 bytes of memory; the reasons are kept in a temporary file.
"""

import csv
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, TextIO, TypeVar

from campaigns.reporting.own_files import LEFT_OUT as COLUMNS
from campaigns.texts.formulas import make_harmless
from vendors.said import Said

Row = TypeVar("Row")
SHOWN = 50  # rows with reasons that a page shows


class Reasons:
    """Faults of rows, added in the order of the rows."""

    def __init__(self) -> None:
        self.rows = array("q")
        self._first: list[str] = []  # those of the first rows, as pages show them in the reader's language
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="\n")  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def add_reason(self, row: int, text: str) -> None:
        if not self.rows or self.rows[-1] != row:
            self.rows.append(row)
        if len(lines := text.splitlines()) > 1:
            text = " ".join(lines)
        if len(self.rows) <= SHOWN:
            self._first.append(text)
        self._file.write(f"{row}\t{text}\n")

    def __iter__(self) -> Iterator[tuple[int, str]]:
        self._file.seek(0)
        for number, line in enumerate(self._file):
            row, _, text = line.partition("\t")
            yield int(row), self._first[number] if number < len(self._first) else text.rstrip("\n")


class LeftOut:
    """Collects problems like RowErrors, in two passes, rows then duplicates; they leave rows out but refuse nothing."""

    def __init__(self) -> None:
        self._passes = [Reasons()]
        self.rows = array("q")  # ascending, from all ended passes

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def duplicates(self) -> int:
        """The number of rows that only repeat an earlier recipient; 0 before both passes have ended."""
        return len(self._passes[1].rows) if len(self._passes) > 1 else 0

    def add_error(self, row: int, text: str) -> None:
        self._passes[-1].add_reason(row, text)

    def end_pass(self) -> None:
        """Leave out the rows so far, so that no row is a duplicate of them."""
        self.rows = array("q", merge(self.rows, self._passes[-1].rows))
        self._passes.append(Reasons())

    def skip_left_out(self, rows: Iterable[Row], number: Callable[[Row], int]) -> Iterator[Row]:
        """Yield the rows without those left out. rows: ascending by `number`."""
        out = iter(self.rows)
        following = next(out, None)
        for row in rows:
            if number(row) == following:
                following = next(out, None)
            else:
                yield row

    def reasons_by_row(self) -> Iterator[tuple[int, str]]:
        """Yield each left-out row, in order, with all its reasons."""
        for row, found in groupby(merge(*self._passes), key=itemgetter(0)):
            yield row, Said.join_parts("; ", (text for _, text in found))


def write_left_out(table: Any, left_out: LeftOut, file: TextIO) -> None:
    """Write the left-out rows of a csv_reader.Table as CSV: cells, row number, reasons.

    No cell is a formula (formulas.make_harmless); a Table that reads the file undoes the escaping. If the list was
    itself such a file, the new numbers and reasons replace the old.
    """
    reasons = left_out.reasons_by_row()
    writer = csv.writer(file, delimiter=table.delimiter)
    header = table.header[:-2] if table.of_left_out else table.header
    writer.writerow([*map(make_harmless, header), *COLUMNS])
    following, reason = next(reasons, (0, ""))
    for number, cells in table.rows():
        if number == following:
            kept = cells[: len(header)] if table.of_left_out else cells
            blank = [""] * (len(header) - len(cells))
            writer.writerow([*map(make_harmless, kept), *blank, number, make_harmless(reason)])
            following, reason = next(reasons, (0, ""))
