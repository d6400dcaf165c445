"""A CSV file of recipients, read row by row: a header, first column the recipient, the rest fields."""

import codecs
import csv
import re
from collections.abc import Iterator
from io import TextIOWrapper
from typing import BinaryIO, NoReturn

from campaigns.content.templates import RECIPIENT
from campaigns.intake.problems import BadInput, RowError

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
    """file: seekable. Raises BadInput for what is wrong with the file as a whole or with its header."""

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
        """Row number as a spreadsheet shows it, and cells; blank rows are counted and left out. Raises BadInput."""
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
            raise BadInput([RowError(number + 1, _in_words(error))]) from error
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


def _in_words(error: csv.Error) -> str:
    text = str(error)
    if "field larger" in text:
        return "a cell is larger than 100,000 characters, or its quote is never closed"
    if "unexpected end of data" in text:
        return "a quote is opened here and never closed"
    return f"it cannot be read as CSV: {text}"


def _first_bad_byte(file: BinaryIO) -> tuple[int, int]:
    """Position from the start of the file, and the byte. Call it only for a file that has one."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(0)
    while True:
        start = file.tell() - len(decoder.getstate()[0])
        block = file.read(1 << 16)
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            return start + error.start, error.object[error.start]
