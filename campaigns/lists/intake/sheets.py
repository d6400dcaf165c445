"""Rows of a sheet as CSV, with notes on the sheet for a person: the common result of all readers of spreadsheets."""

import csv
import tempfile
import weakref
from array import array
from collections.abc import Sequence
from io import TextIOWrapper
from typing import BinaryIO

from campaigns.lists.intake.fields import MAX_CELL
from campaigns.lists.intake.number_formats import ShownAs
from campaigns.texts.bad_input import BadInput, RowError
from vendors.said import Said

MOST_ROWS, MOST_COLUMNS = 1_048_576, 16_384  # of any spreadsheet
MOST_UNPACKED = 2_000_000_000  # bytes, for who reads a file of their own by a command
MAX_ROW = 10_000_000  # characters: no longer line of CSV is read
ERROR = "\0"  # before an error that a formula came to: what begins so is refused, and said with its row
UNCALCULATED = "\0="  # instead of the value of a formula that no program has calculated


def name_other_file(what: Said) -> Said:
    """Return the sentence for a file that is no list. what: its kind, with its article."""
    return Said("the file is %(what)s, not CSV: save it as XLSX or as 'CSV UTF-8'", what=what)


def iso_day(text: str) -> str:
    """Return an ISO 8601 date, with its time in whole seconds unless at midnight. Spreadsheets know no zones."""
    day, _, time = text.removesuffix("Z").partition("T")
    time = time.partition(".")[0]
    return f"{day}T{time}" if time.strip("0:") else day


class SheetRows:
    """The rows of a sheet as CSV in UTF-8 with commas; rows keep their numbers. most: bytes to write.

    hidden: the numbers of rows that the spreadsheet does not show. examples: values given in another form than shown,
    one for each column (counted from 0) and kind. is_typed: mailhub has written it (own_files), so no cell has an extra
    quote.
    """

    def __init__(self, most: int) -> None:
        self.file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self.file.close)
        self.hidden = array("l")
        self.examples: dict[tuple[int, ShownAs], str] = {}
        self.is_typed = False
        self._most, self._last = most, 0
        self._text = TextIOWrapper(self.file, encoding="utf-8", errors="surrogatepass", newline="")
        self._write = csv.writer(self._text).writerow

    def write_row(self, number: int, cells: Sequence[str], is_hidden: bool = False) -> None:
        """Write a row. number: its row in the sheet, larger than the last one's. Raises BadInput."""
        self._text.write("\r\n" * (number - self._last - 1))
        self._last = number
        if not any(cells):
            self._write([])
            return
        if len(cells) > MAX_ROW // MAX_CELL and sum(map(len, cells)) > MAX_ROW:
            raise BadInput([RowError(number, Said("the row is larger than %(most)s characters", most=MAX_ROW))])
        if is_hidden:
            self.hidden.append(number)
        self._write(cells)
        if self.file.tell() > self._most:
            raise BadInput(Said("the spreadsheet has more than %(most)s bytes of cells", most=self._most))

    def note(self, column: int, kind: ShownAs, value: str) -> None:
        """Keep the first value of a kind in a column."""
        self.examples.setdefault((column, kind), value)

    def note_merged(self, columns: range, first: int, last: int) -> None:
        """Keep that cells of these columns are merged over these rows: only the first row has their value."""
        if last > first:
            for column in columns[:MOST_COLUMNS]:
                self.note(column, "merged", f"{first}\u2013{last}")

    def end_sheet(self) -> None:
        self._text.detach()
