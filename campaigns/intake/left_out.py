"""Rows that are left out of a list instead of refusing all of it, and why.

A row costs 8 bytes of memory; its reasons are in a temporary file until they are asked for.
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

from campaigns.formulas import harmless

Row = TypeVar("Row")
COLUMNS = ["row in the list", "left out because"]  # the last ones of a file that write_left_out has made


class Reasons:
    """What is wrong with rows, told in the order of the rows."""

    def __init__(self) -> None:
        self.rows = array("q")
        self._file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogatepass", newline="\n")  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def add(self, row: int, text: str) -> None:
        if not self.rows or self.rows[-1] != row:
            self.rows.append(row)
        self._file.write(f"{row}\t{' '.join(text.splitlines())}\n")

    def __iter__(self) -> Iterator[tuple[int, str]]:
        self._file.seek(0)
        for line in self._file:
            row, _, text = line.partition("\t")
            yield int(row), text.rstrip("\n")


class LeftOut:
    """Takes problems as RowErrors does, first those of the rows, then those of duplicates; nothing fails by them."""

    def __init__(self) -> None:
        self._passes = [Reasons()]
        self.rows = array("q")  # ascending, of the passes that have ended

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def duplicates(self) -> int:
        """How many of them are not the first of their recipient, and have no other fault; when both passes ended."""
        return len(self._passes[1].rows) if len(self._passes) > 1 else 0

    def add(self, row: int, text: str) -> None:
        self._passes[-1].add(row, text)

    def end_pass(self) -> None:
        """The rows so far are left out: they are nobody's duplicate."""
        self.rows = array("q", merge(self.rows, self._passes[-1].rows))
        self._passes.append(Reasons())

    def without(self, rows: Iterable[Row], number: Callable[[Row], int]) -> Iterator[Row]:
        """These rows, which ascend by their number, without those that are left out."""
        out = iter(self.rows)
        following = next(out, None)
        for row in rows:
            if number(row) == following:
                following = next(out, None)
            else:
                yield row

    def reasons(self) -> Iterator[tuple[int, str]]:
        """Each row that is left out with all that is wrong with it, by row."""
        for row, found in groupby(merge(*self._passes), key=itemgetter(0)):
            yield row, "; ".join(text for _, text in found)


def write_left_out(table: Any, left_out: LeftOut, file: TextIO) -> None:
    """Writes the rows of a csv_reader.Table that are left out as CSV: their cells, their number, and what is wrong.

    Nothing in it is a formula (formulas.harmless); a Table that reads the file again undoes that. Of a list that was
    such a file the new number and what is wrong now stand in place of the old ones.
    """
    reasons = left_out.reasons()
    writer = csv.writer(file, delimiter=table.delimiter)
    header = table.header[:-2] if table.of_left_out else table.header
    writer.writerow([*map(harmless, header), *COLUMNS])
    following, reason = next(reasons, (0, ""))
    for number, cells in table.rows():
        if number == following:
            kept = cells[: len(header)] if table.of_left_out else cells
            blank = [""] * (len(header) - len(cells))
            writer.writerow([*map(harmless, kept), *blank, number, harmless(reason)])
            following, reason = next(reasons, (0, ""))
