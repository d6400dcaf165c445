"""Reads a CSV file of recipients row by row: a header, then in the first column the recipient, in the others fields.

Table reads the file, TableRows makes rows to check of it, CheckedTable recipients to store.
"""

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from typing import Any, BinaryIO, NoReturn

from campaigns.content.templates import RECIPIENT, Content
from campaigns.intake.checking import BadInput, Normal, RowError, address_reader, check

MAX_LINE = 10_000_000  # characters
DELIMITERS = ",;\t"
UNDECODED = re.compile("[\udc80-\udcff]")
NOT_CSV = {
    b"PK\x03\x04": "a zip or spreadsheet file, not CSV",
    b"\x1f\x8b": "a gzip file, not CSV",
    b"\xff\xfe": "UTF-16, not UTF-8",
    b"\xfe\xff": "UTF-16, not UTF-8",
}
ADVICE = "save it as 'CSV UTF-8'"


class Table:
    """A CSV file with its header. file: seekable, binary. Raises BadInput if it is no CSV or the header is bad."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.delimiter = ","
        self._look_at_the_start()
        number, header = next(self._records(), (0, []))
        if not number:
            raise BadInput("the file is empty")
        self.header = [name.strip() for name in header]
        problems = [RowError(1, text) for text in _header_problems(self.header)]
        if problems:
            raise BadInput(problems)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """(row number as a spreadsheet counts, cells); blank rows are counted and left out. Raises BadInput."""
        records = self._records()
        next(records, None)
        for number, cells in records:
            if any(cells):
                yield number, cells

    def _look_at_the_start(self) -> None:
        self.file.seek(0)
        line = self.file.readline(MAX_LINE)
        for magic, what in NOT_CSV.items():
            if line.startswith(magic):
                raise BadInput(f"the file is {what}: {ADVICE}")
        unquoted = re.sub(rb'"[^"]*"?', b"", line)
        self.delimiter = max(DELIMITERS, key=lambda sign: unquoted.count(sign.encode()))

    def _records(self, errors: str = "strict") -> Iterator[tuple[int, list[str]]]:
        self.file.seek(0)
        text = TextIOWrapper(self.file, encoding="utf-8-sig", errors=errors, newline="")
        number = 0
        try:
            for number, cells in enumerate(csv.reader(_lines(text), delimiter=self.delimiter, strict=True), start=1):
                yield number, cells
        except UnicodeDecodeError:
            self._not_utf8()
        except csv.Error as error:
            raise BadInput([RowError(number + 1, _reason(error))]) from error
        finally:
            if not self.file.closed:
                text.detach()

    def _not_utf8(self) -> NoReturn:
        position, byte = _first_bad_byte(self.file)
        for number, cells in self._records(errors="surrogateescape"):
            for column, cell in enumerate(cells, start=1):
                if UNDECODED.search(cell):
                    where = f"column {column}: byte 0x{byte:02x} at position {position:,} of the file is not UTF-8"
                    raise BadInput([RowError(number, f"{where}; {ADVICE}")])
        raise BadInput(f"byte 0x{byte:02x} at position {position:,} of the file is not UTF-8; {ADVICE}")


def _header_problems(header: list[str]) -> Iterator[str]:
    if not any(header):
        yield "there is no header: the first row must name the columns"
        return
    for column, name in enumerate(header, start=1):
        if not name:
            yield f"column {column} has no name in the header"
        elif name in header[: column - 1]:
            yield f"column {column} has the same name as column {header.index(name) + 1}: {name!r}"
        elif name == RECIPIENT and column > 1:
            yield f"column {column} is called {RECIPIENT!r}: that is the name of the first column in every template"


def _lines(text: TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise csv.Error(f"a line is longer than {MAX_LINE:,} characters")
        yield line


def _reason(error: csv.Error) -> str:
    text = str(error)
    if "field larger" in text:
        return "a cell is larger than 100,000 characters, or its quote is never closed"
    if "unexpected end of data" in text:
        return "a quote is opened here and never closed"
    return f"it cannot be read as CSV: {text}"


def _first_bad_byte(file: BinaryIO) -> tuple[int, int]:
    """(position from the start of the file, byte) of the first one that is not UTF-8; there must be one."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(0)
    while True:
        start = file.tell() - len(decoder.getstate()[0])
        block = file.read(1 << 16)
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            return start + error.start, error.object[error.start]


class CheckedTable:
    """Checked recipients with their fields, read from the file again at each iteration; len() is their number."""

    def __init__(self, rows: "TableRows", size: int) -> None:
        self._rows = rows
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        normal = self._rows.normal
        for row in self._rows:
            if isinstance(row, RowError):
                raise BadInput([row])  # somebody wrote to the file since the check
            yield normal(row[1]), row[2]


class TableRows:
    """The rows of a table to check. The first column is also a field if the template uses its name in the header."""

    def __init__(self, table: Table, content: Content, normal: Normal) -> None:
        self.table = table
        self.normal = normal
        called = table.header[0] in content.fields and table.header[0] != RECIPIENT
        self.columns = list(enumerate(table.header))[0 if called else 1 :]

    def __iter__(self) -> Iterator[tuple[int, str, dict[str, Any]] | RowError]:
        columns, width = self.columns, len(self.table.header)
        for number, cells in self.table.rows():
            if len(cells) == width:
                yield number, cells[0], {name: cells[column] for column, name in columns}
            else:
                yield RowError(number, f"{_cells(len(cells))}, but the header has {width}")


def check_table(
    table: Table, channel: str, content: Content, progress: Callable[[], None] = lambda: None
) -> CheckedTable:
    """Checks header and rows; raises BadInput with all that is wrong. channel: of vendors.models.Vendor.Channel."""
    rows = TableRows(table, content, address_reader(channel))
    _check_header(table, channel, content, rows)
    return CheckedTable(rows, check(rows, rows.normal, content, progress))


def _check_header(table: Table, channel: str, content: Content, rows: TableRows) -> None:
    first = table.header[0]
    if channel != "print" and _is_recipient(first, rows.normal):
        raise BadInput([RowError(1, f"there is no header: the first row holds the recipient {first!r}")])
    missing = sorted(content.fields - {name for _, name in rows.columns})
    if missing:
        columns = ", ".join(map(repr, missing))
        raise BadInput([RowError(1, f"the template needs {columns}; the columns are {', '.join(table.header)}")])


def _is_recipient(text: str, normal: Normal) -> bool:
    try:
        return bool(normal(text))
    except ValueError:
        return False


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
