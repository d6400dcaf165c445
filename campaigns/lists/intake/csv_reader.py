"""Reads a list of recipients row by row: a header, then the recipient in the first column and fields in the others.

Table reads the file, TableRows yields its rows for the check, and CheckedTable the recipients to store. A spreadsheet
is converted to CSV first (xlsx_reader), so everything after is the same for both.
"""

import codecs
import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any, BinaryIO, Literal, NoReturn

from campaigns.lists.intake import delimiters, spreadsheets, text_encoding
from campaigns.lists.intake.checking import AddressReader, RowErrors, check_rows, number_of
from campaigns.lists.intake.left_out import LeftOut
from campaigns.lists.intake.number_formats import ShownAs
from campaigns.lists.intake.sheets import ERROR, SheetRows, name_other_file
from campaigns.reporting.own_files import LEFT_OUT, SUPPRESSIONS, find_report_columns
from campaigns.texts.bad_input import BadInput, RowError
from campaigns.texts.formulas import text_of_formula, undo_harmless
from campaigns.texts.given_texts import given_name, given_value
from campaigns.texts.templates import RECIPIENT, Content
from vendors.said import Said, gettext_noop

MAX_LINE = 10_000_000  # characters
BLOCK = 1 << 20  # bytes
# A first line of Excel's own. Other programs take it for a row, and fill it up to the width of the others.
SEPARATOR = re.compile(r'"?sep=([^"\s]|\t)"?(?P<filled>[,;\t|]*)\s*', re.IGNORECASE)
UNDECODED = re.compile("[\udc80-\udcff]")
NOT_A_LIST = {
    b"\x1f\x8b": Said("a gzip file"),
    b"%pdf": Said("a PDF"),
    b"<!": Said("a web page"),
    b"<html": Said("a web page"),
    b"<table": Said("a web page"),
    b"<?xml": Said("XML"),
    b"{\\rtf": Said("a text document"),
    b"[{": Said("JSON"),
    b'{"': Said("JSON"),
    b"begin:": Said("an address book or calendar"),
    b"\x89png": Said("a picture"),
    b"\xff\xd8\xff": Said("a picture"),
    b"7z\xbc\xaf": Said("a packed archive"),
    b"rar!": Said("a packed archive"),
    b"pk\x05\x06": Said("a packed archive"),
}
LONGEST_MAGIC = max(map(len, NOT_A_LIST))
NOT_IN_NAMES = "\u200c\u200d"  # joiners, which no name in a template may have
NAMED = 20  # columns that an error message lists
CELLS = (
    gettext_noop("%(count)s cell, but the header has %(width)s"),
    gettext_noop("%(count)s cells, but the header has %(width)s"),
)
SHOWN_HIDDEN = 5  # rows that an error message lists
HiddenRows = Literal["keep", "leave_out", ""]


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """recipient: the header of the address column. names: field names, by the header of their column."""

    recipient: str
    names: Mapping[str, str]


class HiddenRowsUndecided(BadInput):
    """A spreadsheet hides rows, and nobody has decided about them."""


class Table:
    """A file with its header. file: seekable, binary. Raises BadInput if the file is not a list or the header is bad.

    encoding: of a CSV file, None to detect it; afterwards the encoding used, None for a spreadsheet. fields: the names
    of the columns in templates. Rows that a spreadsheet shows as blank are left out.

    most_unpacked: bytes of a spreadsheet, as in spreadsheets.convert_to_csv. columns: returns the recipient's column
    and the names of the others in templates; by default the first column, and the headers as names. hidden_rows: the
    decision about rows that a spreadsheet hides; "": none yet, they are read. is_quoted: mailhub has written the file
    with quotes before formulas (own_files), and rows() takes them off.
    """

    def __init__(
        self,
        file: BinaryIO,
        encoding: str | None = None,
        most_unpacked: int | None = None,
        columns: Callable[["Table"], "ColumnNames"] | None = None,
        hidden_rows: HiddenRows = "",
    ) -> None:
        self.file, self.encoding, self.delimiter = file, encoding, ","
        self._preamble, self._first, self._hidden_rows = False, 0, hidden_rows
        self._sheet: SheetRows | None = None
        file.seek(0)
        if spreadsheets.is_spreadsheet(file.read(spreadsheets.MAGIC)):
            self._sheet = spreadsheets.convert_to_csv(file, most_unpacked)
            self.file, self.encoding = self._sheet.file, None
            self._codec = text_encoding.UTF8
        else:
            self._look_at_the_start()
        self._header_row, header = next(self._filled_records(), (0, []))
        if not self._header_row:
            raise BadInput(Said("the first visible sheet is empty") if self._sheet else Said("the file is empty"))
        self.header = [given_name(self._cell_as_shown(given_name(name))) for name in header]
        while self.header and not self.header[-1]:
            self.header.pop()  # from a comma at the end of each row
        self.of_left_out = self.header[-2:] == LEFT_OUT
        self._added = None if self.of_left_out else find_report_columns(self.header)
        is_own = self.of_left_out or self._added is not None or tuple(self.header) == SUPPRESSIONS
        self.is_quoted = is_own and not (self._sheet and self._sheet.is_typed)
        if self.is_quoted:
            self.header = [undo_harmless(name) for name in self.header]
        if self._added is not None:
            del self.header[self._added]
        self._columns = list(self.header)  # as they stand in the file
        self.fields = [field_name(name) for name in self.header]
        if columns and self.header:
            self._arrange_columns(columns(self))
        problems = RowErrors()
        for text in _header_problems(self.header, self.fields):
            problems.add_error(self._header_row, text)
        problems.raise_if_any()

    def header_fault(self, text: str) -> BadInput:
        """Return an error about the header's row."""
        return BadInput([RowError(self._header_row, text)])

    @property
    def hidden_rows(self) -> Sequence[int]:
        """The numbers of the rows that the spreadsheet hides; the header is none."""
        found = self._sheet.hidden if self._sheet else ()
        return found[1:] if found and found[0] == self._header_row else found

    @property
    def examples(self) -> dict[ShownAs, dict[str, str]]:
        """Values that the spreadsheet shows in another form: by kind, then one for each header."""
        found: dict[ShownAs, dict[str, str]] = {}
        for (column, kind), value in self._sheet.examples.items() if self._sheet else ():
            if column < len(self._columns) and self._columns[column]:
                found.setdefault(kind, {})[self._columns[column]] = value
        return found

    def require_choice(self) -> None:
        """Raise HiddenRowsUndecided if rows are hidden and nobody has decided about them."""
        if self._hidden_rows or not self.hidden_rows:
            return
        rows = ", ".join(f"{row}" for row in self.hidden_rows[:SHOWN_HIDDEN])
        more = ", ..." if len(self.hidden_rows) > SHOWN_HIDDEN else ""
        raise HiddenRowsUndecided(
            Said(
                "rows of the spreadsheet are hidden, as by a filter: %(count)s (%(rows)s);"
                " say whether they are kept or left out",
                count=len(self.hidden_rows),
                rows=rows + more,
            )
        )

    @property
    def size(self) -> int:
        """The size of the file in bytes, for a spreadsheet of its CSV."""
        return self.file.seek(0, 2)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of each row, as a spreadsheet counts, and its cells. Raises BadInput.

        Blank rows are counted but not yielded.
        """
        records, first = self._filled_records(), self._first
        hidden = iter(self.hidden_rows if self._hidden_rows == "leave_out" else ())
        left_out = next(hidden, None)
        next(records, None)
        for number, cells in records:
            if number == left_out:
                left_out = next(hidden, None)
            elif any(cells := [given_value(self._cell_as_shown(given_value(cell))) for cell in cells]):
                if self.is_quoted:
                    cells = [undo_harmless(cell) for cell in cells]
                if self._added is not None:
                    del cells[self._added]
                if first and self.encoding is None:  # spreadsheet rows end with their last cell
                    cells.extend([""] * (first + 1 - len(cells)))
                if first and first < len(cells):  # a shorter row is reported as bad later
                    cells.insert(0, cells.pop(first))
                yield number, cells

    def _cell_as_shown(self, cell: str) -> str:
        return cell if self._sheet else text_of_formula(cell)

    def _arrange_columns(self, columns: "ColumnNames") -> None:
        """Make the recipient's column the first one. Raises BadInput."""
        if columns.recipient not in self.header:
            raise self.header_fault(Said("there is no column %(name)s", name=repr(columns.recipient)))
        self._first = self.header.index(columns.recipient)
        self.header.insert(0, self.header.pop(self._first))
        self.fields = [columns.names.get(name, field_name(name)) for name in self.header]

    def _look_at_the_start(self) -> None:
        self.file.seek(0)
        start = self.file.read(100).removeprefix(codecs.BOM_UTF8).lstrip()[:LONGEST_MAGIC].lower()
        for magic, what in NOT_A_LIST.items():
            if start.startswith(magic):
                raise BadInput(name_other_file(what))
        try:
            if self.encoding:
                self._codec = text_encoding.known_codec(self.encoding)
            else:
                self._codec = text_encoding.UTF8 if _is_utf8(self.file) else text_encoding.find_encoding(self.file)
        except ValueError as error:
            raise BadInput(str(error)) from None
        self.encoding = self._codec
        self.file.seek(0)
        text = TextIOWrapper(self.file, encoding=self._codec, errors="replace", newline="")
        try:
            line = text.readline(MAX_LINE)
            said = SEPARATOR.fullmatch(line)
            self._preamble = said is not None
            if said and not said["filled"]:
                self.delimiter = said[1]
            else:
                self.delimiter = delimiters.find_delimiter(("" if said else line) + text.read(delimiters.SAMPLE))
        except UnicodeError as error:  # as of UTF-16 without its mark, which no replacement mends
            self._raise_undecodable(error)
        finally:
            text.detach()

    def _filled_records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the header and what follows it; rows of blanks above it count only for the numbers."""
        records = self._read_records()
        for number, cells in records:
            if any(map(given_value, cells)):
                yield number, cells
                break
        yield from records

    def _read_records(self, errors: str = "strict") -> Iterator[tuple[int, list[str]]]:
        self.file.seek(0)
        text = TextIOWrapper(self.file, encoding=self._codec, errors=errors, newline="")
        number = 0
        try:
            if self._preamble:
                text.readline(MAX_LINE)
            reader = csv.reader(_bounded_lines(text), delimiter=self.delimiter, strict=True, skipinitialspace=True)
            for number, cells in enumerate(reader, start=1):
                yield number, cells
        except UnicodeError as error:
            self._raise_undecodable(error)
        except csv.Error as error:
            raise BadInput([RowError(number + 1, _explain_csv_error(error))]) from error
        finally:
            if not self.file.closed:
                text.detach()

    def _raise_undecodable(self, error: UnicodeError) -> NoReturn:
        advice = Said("save it as XLSX or as 'CSV UTF-8', or name its encoding, like cp1252 or cp1250")
        if self._codec != text_encoding.UTF8:
            raise BadInput(
                Said("the file is not in the encoding %(name)s; %(advice)s", name=self._codec, advice=advice)
            ) from error
        position, byte = text_encoding.find_bad_byte(self.file)
        where = {"byte": f"0x{byte:02x}", "position": position, "advice": advice}
        for number, cells in self._read_records(errors="surrogateescape"):
            for column, cell in enumerate(cells, start=1):
                if UNDECODED.search(cell):
                    why = Said(
                        "column %(column)s: byte %(byte)s at position %(position)s of the file is not UTF-8;"
                        " %(advice)s",
                        **where,
                        column=str(column),
                    )
                    raise BadInput([RowError(number, why)])
        raise BadInput(Said("byte %(byte)s at position %(position)s of the file is not UTF-8; %(advice)s", **where))


def _is_utf8(file: BinaryIO) -> bool:
    """Return True if the file is UTF-8; its last character may be cut off."""
    if text_encoding.find_wide(file):
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(0)
    try:
        while block := file.read(BLOCK):
            decoder.decode(block)
    except UnicodeDecodeError:
        return False
    return True


def field_name(column: str) -> str:
    """Return a column's name in templates: `First name` becomes First_name, as names contain only letters, digits and
    underscores.
    """
    column = given_name(column)
    if column.isidentifier():
        return column
    # \W would take the vowel signs of Hindi or Thai out of a word
    letters = (one if f"a{one}".isidentifier() else "_" for one in column if one not in NOT_IN_NAMES)
    name = re.sub("_+", "_", "".join(letters)).strip("_")
    return name if name.isidentifier() else column


def _header_problems(header: list[str], fields: list[str]) -> Iterator[str]:
    if not header:
        yield Said("there is no header: the first row must name the columns")
        return
    if not header[0]:
        yield Said("column 1 has no name in the header")
    first: dict[str, int] = {}
    for column, (name, field) in enumerate(zip(header, fields, strict=True), start=1):
        if name.startswith(ERROR):
            yield Said(
                "the name of column %(column)s is an error, or a formula that was never calculated", column=str(column)
            )
            continue
        before = first.setdefault(field, column)
        if name and before < column:
            other = header[before - 1]
            alike = Said("%(one)s and %(other)s are both %(field)s", one=repr(other), other=repr(name), field=field)
            yield Said(
                "column %(column)s has the same name as column %(before)s: %(name)s",
                column=str(column),
                before=str(before),
                name=repr(name) if other == name else alike,
            )
        elif field == RECIPIENT and column > 1:
            yield Said(
                "column %(column)s is called %(name)s: that is the name of the first column in every template",
                column=str(column),
                name=repr(RECIPIENT),
            )


def _bounded_lines(text: TextIOWrapper) -> Iterator[str]:
    while line := text.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise csv.Error(f"a line is longer than {MAX_LINE:,} characters")
        yield line


def _explain_csv_error(error: csv.Error) -> str:
    text = str(error)
    if "field larger" in text:
        return Said("a cell is larger than 100,000 characters, or its quote is never closed")
    if "unexpected end of data" in text:
        return Said("a quote is opened here and never closed")
    if "expected after" in text:
        return Said("something follows a closing quote; a quote within a cell is written twice")
    return Said("it cannot be read as CSV: %(why)s", why=text)


class CheckedTable:
    """Checked recipients with their fields, read from the file anew at each iteration; len() is their number."""

    def __init__(self, rows: "TableRows", size: int, left_out: LeftOut | None) -> None:
        self._rows = rows
        self._size = size
        self._left_out = left_out

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        normal = self._rows.normal
        for row in self._left_out.skip_left_out(self._rows, number_of) if self._left_out else self._rows:
            if isinstance(row, RowError):
                raise BadInput([row])  # the file was changed after the check
            yield normal(row[1]), row[2]


class TableRows:
    """The rows of a table to check. The first column is a field, too, if the template uses its header."""

    def __init__(self, table: Table, content: Content, normal: AddressReader) -> None:
        self.table = table
        self.normal = normal
        called = table.fields[0] in content.fields | content.optional and table.fields[0] != RECIPIENT
        columns = list(enumerate(table.fields))[0 if called else 1 :]
        self.columns = [(column, name) for column, name in columns if name]
        self.unnamed = [column for column, name in columns if not name]

    def __iter__(self) -> Iterator[tuple[int, str, dict[str, Any]] | RowError]:
        columns, width, unnamed = self.columns, len(self.table.header), self.unnamed
        for number, cells in self.table.rows():
            if (len(cells) != width or unnamed) and (fault := self._misfit_of_row(cells)):
                yield RowError(number, fault)
            else:
                yield number, cells[0], {name: cells[column] for column, name in columns}

    def _misfit_of_row(self, cells: list[str]) -> str:
        """Return the fault of a row without a cell for each column, or ''.

        Blank cells after the last column are allowed.
        """
        width = len(self.table.header)
        if len(cells) < width and self.table.encoding is None:
            cells.extend([""] * (width - len(cells)))  # spreadsheet rows end with their last cell
        if len(cells) < width or any(cells[width:]):
            return Said(CELLS[len(cells) != 1], count=str(len(cells)), width=str(width))
        for column in self.unnamed:
            if cells[column]:
                return Said("column %(column)s is not blank, and has no name in the header", column=str(column + 1))
        return ""


def check_table(
    table: Table,
    channel: str,
    content: Content,
    progress: Callable[[], None] = lambda: None,
    left_out: LeftOut | None = None,
    region: str = "",
) -> CheckedTable:
    """Check header and rows; raise BadInput with all faults. channel: of vendors.models.Vendor.Channel.

    left_out: if given, collects the bad rows instead; the header must still be good. region: as in AddressReader.
    """
    table.require_choice()
    rows = TableRows(table, content, AddressReader(channel, region, is_for_sending=True))
    _check_header(table, channel, content, rows)
    return CheckedTable(rows, check_rows(rows, rows.normal, content, progress, left_out=left_out), left_out)


def _check_header(table: Table, channel: str, content: Content, rows: TableRows) -> None:
    first = table.header[0]
    if channel != "print" and _is_recipient(first, rows.normal):
        raise table.header_fault(
            Said("there is no header: the first row holds the recipient %(name)s", name=repr(first))
        )
    missing = sorted((content.fields | content.optional) - {name for _, name in rows.columns})
    if missing:
        known = [name for name in table.fields if name]
        listed: str = ", ".join(known[:NAMED])
        if len(known) > NAMED:
            listed = Said("%(names)s and %(count)s more", names=listed, count=len(known) - NAMED)
        columns = ", ".join(map(repr, missing[:NAMED]))
        why = Said("the template needs %(names)s; the columns are %(known)s", names=columns, known=listed)
        raise table.header_fault(why)


def _is_recipient(text: str, normal: AddressReader) -> bool:
    try:
        return bool(normal(text))
    except ValueError:
        return False
