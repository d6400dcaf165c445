"""Reads the first visible sheet of an XLSX spreadsheet, row by row, and makes a CSV file of it.

Memory does not grow with the sheet, whatever the file says of itself: texts that cells share are kept in a temporary
file (8 bytes of memory each), and how much is unpacked, how long a text and how deep an element may be is bounded.
"""

import csv
import tempfile
import weakref
import zipfile
import zlib
from array import array
from collections.abc import Iterator
from functools import lru_cache
from io import TextIOWrapper
from posixpath import join, normpath
from typing import IO, BinaryIO
from xml.parsers import expat

from campaigns.intake.checking import MAX_CELL, BadInput, RowError
from campaigns.intake.xlsx_numbers import CellFormat, cell_format, number_text
from campaigns.intake.xlsx_xml import XmlPart, unescape, whole

MAGIC = b"PK\x03\x04"
MOST_UNPACKED = 2_000_000_000  # bytes, for who reads a file of their own by a command
MOST_ROWS, MOST_COLUMNS = 1_048_576, 16_384  # of any spreadsheet
MOST_FORMATS = 100_000
ERROR = "\0"  # before an error that a formula came to: what begins so is refused, and said with its row


def to_csv(file: BinaryIO, most: int | None = None) -> BinaryIO:
    """The sheet as CSV in UTF-8 with commas; rows keep their numbers, and dates are ISO 8601. Raises BadInput.

    most: bytes of XML that are unpacked, and bytes of CSV that are written; MOST_UNPACKED at the most.
    """
    most = min(most or MOST_UNPACKED, MOST_UNPACKED)
    out = tempfile.TemporaryFile()  # noqa: SIM115
    try:
        _convert(file, out, most)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        out.close()
        raise BadInput(f"the spreadsheet cannot be read: {error or 'it is damaged'}") from error
    except expat.ExpatError as error:
        out.close()
        raise BadInput(f"the spreadsheet is damaged: {error}") from error
    except BadInput:
        out.close()
        raise
    return out


def _convert(file: BinaryIO, out: IO[bytes], most: int) -> None:
    text = TextIOWrapper(out, encoding="utf-8", errors="surrogatepass", newline="")
    write = csv.writer(text).writerow
    last = 0
    try:
        with zipfile.ZipFile(file) as archive:
            for number, cells in _Workbook(archive, most).rows():
                text.write("\r\n" * (number - last - 1))
                write(cells if any(cells) else [])
                if out.tell() > most:
                    raise BadInput(f"the spreadsheet has more than {most:,} bytes of cells")
                last = number
    finally:
        text.detach()


class _Workbook:
    def __init__(self, archive: zipfile.ZipFile, most: int) -> None:
        self._archive, self._most, self._left = archive, most, most
        parts = {kind: path for kind, path, _ in self._relations("")}
        path = parts.get("officeDocument", "")
        if not path.endswith(".xml"):
            raise BadInput("the file is a zip file, but no XLSX spreadsheet: save it as XLSX or as 'CSV UTF-8'")
        related = self._relations(path)
        found = _Sheets()
        self._read(path, found)
        sheets = {id: sheet for kind, sheet, id in related if kind == "worksheet"}
        self._sheet = next((sheets[id] for id in found.visible if id in sheets), "")
        if not self._sheet:
            raise BadInput("the spreadsheet has no visible sheet")
        parts = {kind: path for kind, path, _ in related}
        self._texts, styles = _SharedTexts(), _Styles(found.since_1904)
        if "sharedStrings" in parts:
            self._read(parts["sharedStrings"], self._texts)
        if "styles" in parts:
            self._read(parts["styles"], styles)
        self._formats = styles.formats

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        sheet = _Sheet(self._texts, self._formats)
        for _ in self._blocks(self._sheet, sheet):
            yield from sheet.rows
            sheet.rows.clear()

    def _relations(self, part: str) -> list[tuple[str, str, str]]:
        """(kind, path, id) of what belongs to this part; of the whole file for ''."""
        folder, _, name = part.rpartition("/")
        found = _Relations(folder)
        self._read(join(folder, "_rels", f"{name}.rels"), found)
        return found.all

    def _read(self, path: str, handler: XmlPart) -> None:
        for _ in self._blocks(path, handler):
            pass

    def _blocks(self, path: str, handler: XmlPart) -> Iterator[None]:
        """Feeds the handler block by block."""
        try:
            info = self._archive.getinfo(path)
        except KeyError:
            raise BadInput(f"the file is a zip file, but no XLSX spreadsheet: it has no {path}") from None
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInput("the spreadsheet is packed in a way that is not usual: save it as XLSX")
        with self._archive.open(info) as source:
            for size in handler.read(source):
                self._left -= size
                if self._left < 0:
                    raise BadInput(f"the spreadsheet unpacks to more than {self._most:,} bytes: save it as CSV")
                yield


class _Relations(XmlPart):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self.all: list[tuple[str, str, str]] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "Relationship" and attributes.get("TargetMode") != "External" and len(self.all) < MOST_FORMATS:
            path = normpath(join("/", self._folder, attributes.get("Target", ""))).lstrip("/")
            self.all.append((attributes.get("Type", "").rpartition("/")[2], path, attributes.get("Id", "")))


class _Sheets(XmlPart):
    """The ids of the visible sheets, in order; whether days are counted from 1904."""

    def __init__(self) -> None:
        super().__init__()
        self.visible: list[str] = []
        self.since_1904 = False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "sheet" and attributes.get("state", "visible") == "visible" and len(self.visible) < MOST_FORMATS:
            self.visible.extend(value for name, value in attributes.items() if name.rpartition(":")[2] == "id")
        elif tag == "workbookPr":
            self.since_1904 = attributes.get("date1904") in ("1", "true")


class _Styles(XmlPart):
    """How numbers are shown, by the number of a cell's style."""

    def __init__(self, since_1904: bool) -> None:
        super().__init__()
        self.formats: list[CellFormat | None] = []
        self._since_1904, self._own, self._cells = since_1904, dict[str, str](), False

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.formats) + len(self._own) > MOST_FORMATS:
            raise BadInput("the spreadsheet is damaged: it has too many formats")
        if tag == "numFmt":
            self._own[attributes.get("numFmtId", "")] = attributes.get("formatCode", "")[:1000]
        elif tag == "cellXfs":
            self._cells = True
        elif tag == "xf" and self._cells:
            id = attributes.get("numFmtId", "0")
            self.formats.append(cell_format(id, self._own.get(id), self._since_1904))

    def end(self, tag: str) -> None:
        if tag == "cellXfs":
            self._cells = False


class _SharedTexts(XmlPart):
    """Texts in a temporary file, found by their number."""

    def __init__(self) -> None:
        super().__init__()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._starts = array("Q", [0])
        self._parts: list[str] = []
        self._ruby = False
        self.of = lru_cache(maxsize=10_000)(self._look_up)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "rPh":
            self._ruby = True
        elif tag == "si":
            self._parts, self._length = [], 0
        elif tag == "t" and not self._ruby:
            self._texts = self._parts

    def end(self, tag: str) -> None:
        if tag == "t":
            self._texts = None
        elif tag == "rPh":
            self._ruby = False
        elif tag == "si":
            data = unescape("".join(self._parts)).encode("utf-8", "surrogatepass")
            self._file.write(data)
            self._starts.append(self._starts[-1] + len(data))

    def _look_up(self, number: int) -> str:
        """Raises IndexError."""
        start, end = self._starts[number], self._starts[number + 1]
        self._file.seek(start)
        return self._file.read(end - start).decode("utf-8", "surrogatepass")


class _Sheet(XmlPart):
    """Collects rows as (number, cells as text)."""

    def __init__(self, texts: _SharedTexts, formats: list[CellFormat | None]) -> None:
        super().__init__()
        self.rows: list[tuple[int, list[str]]] = []
        self._shared, self._formats = texts, formats
        self._row, self._cells = 0, list[str]()
        self._kind, self._style = "", ""
        self._inline: list[str] = []

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "c":
            self._place(attributes.get("r", ""))
            self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
            self._inline = []
        elif tag == "v" or (tag == "t" and self._kind == "inlineStr"):
            self.want_text()
        elif tag == "row":
            number = whole(attributes["r"]) if "r" in attributes else self._row + 1
            if not self._row < number <= MOST_ROWS:
                raise BadInput(f"the spreadsheet is damaged: row {number} comes after row {self._row}")
            self._row, self._cells = number, []

    def end(self, tag: str) -> None:
        if tag == "v":
            self._cells[-1] = self._value(self.text())
        elif tag == "t" and self._kind == "inlineStr":
            self._inline.append(self.text())
            self._cells[-1] = unescape("".join(self._inline))
        elif tag == "row":
            self.rows.append((self._row, self._cells))

    def too_long(self) -> None:
        raise BadInput([RowError(self._row, f"a cell is larger than {MAX_CELL:,} characters")])

    def _place(self, reference: str) -> None:
        """Begins a cell in its column: that of its reference, like AB12, else the next one."""
        column = 0
        for letter in reference.rstrip("0123456789"):
            column = 26 * column + ord(letter) - 64
            if not 0 < column <= MOST_COLUMNS:
                break
        column = column or len(self._cells) + 1
        if not len(self._cells) < column <= MOST_COLUMNS:
            raise BadInput(
                [RowError(self._row, f"the spreadsheet is damaged: there is no place for {reference[:20]!r}")]
            )
        self._cells.extend([""] * (column - len(self._cells)))

    def _value(self, text: str) -> str:
        if self._kind == "s":
            try:
                return self._shared.of(whole(text))
            except IndexError:
                raise BadInput([RowError(self._row, "the spreadsheet is damaged: a text is missing")]) from None
        if self._kind == "n":
            style = whole(self._style or "0")
            return number_text(text, self._formats[style] if style < len(self._formats) else None)
        if self._kind == "b":
            return "TRUE" if text == "1" else "FALSE"
        return ERROR + text if self._kind == "e" else unescape(text)
