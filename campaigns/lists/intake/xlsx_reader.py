"""Reads the first visible sheet of an XLSX spreadsheet, row by row.

Memory does not grow with the sheet, even if the file lies about itself. Texts shared by cells are kept in a temporary
file (8 bytes of memory each). The unpacked size, the length of a text and the depth of an element are bounded.
"""

import re
import tempfile
import weakref
import zipfile
from array import array
from functools import lru_cache
from posixpath import join, normpath

from campaigns.lists.intake.fields import MAX_CELL
from campaigns.lists.intake.sheets import ERROR, MOST_COLUMNS, MOST_ROWS, UNCALCULATED, SheetRows, iso_day
from campaigns.lists.intake.xlsx_numbers import CellFormat, cell_format, number_text
from campaigns.lists.intake.xlsx_xml import XmlPart, ZippedXml, damaged_sentence, parse_whole_number, unescape_text
from campaigns.reporting.own_files import TYPED
from campaigns.texts.bad_input import BadInput, RowError
from vendors.said import Said

MOST_FORMATS = 100_000
TRUE = ("1", "true")
MERGED = re.compile(r"([A-Z]{1,3})([0-9]{1,7}):([A-Z]{1,3})([0-9]{1,7})", re.ASCII)


def read_xlsx(archive: zipfile.ZipFile, most: int, rows: SheetRows) -> None:
    """Write the sheet to `rows`; dates are ISO 8601. most: bytes of XML to unpack.

    Raises BadInput, expat.ExpatError, and zipfile's errors.
    """
    parts = ZippedXml(archive, most)
    by_kind = {kind: path for kind, path, _ in _read_relations(parts, "")}
    path = by_kind.get("officeDocument", "")
    if not path.endswith(".xml"):
        raise BadInput(Said("the file is a zip file, but no XLSX spreadsheet: save it as XLSX or as 'CSV UTF-8'"))
    own = _Properties()
    if parts.has_part(by_kind.get("custom-properties", "")):
        parts.feed_part(by_kind["custom-properties"], own)
    rows.is_typed = own.is_typed
    related, book = _read_relations(parts, path), _Workbook()
    parts.feed_part(path, book)
    sheets = {id: sheet for kind, sheet, id in related if kind == "worksheet"}
    sheet = next((sheets[id] for id in book.visible if id in sheets), "")
    if not sheet:
        raise BadInput(Said("the spreadsheet has no visible sheet"))
    by_kind = {kind: path for kind, path, _ in related}
    texts, styles = _SharedTexts(), _Styles(book.since_1904)
    if "sharedStrings" in by_kind:
        parts.feed_part(by_kind["sharedStrings"], texts)
    if "styles" in by_kind:
        parts.feed_part(by_kind["styles"], styles)
    parts.feed_part(sheet, _Sheet(texts, styles.formats, rows, book.is_uncalculated))


def _read_relations(parts: ZippedXml, part: str) -> list[tuple[str, str, str]]:
    """Return (kind, path, id) of what belongs to this part; of the whole file for ''."""
    folder, _, name = part.rpartition("/")
    found = _Relations(folder)
    parts.feed_part(join(folder, "_rels", f"{name}.rels"), found)
    return found.all


class _Relations(XmlPart):
    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder
        self.all: list[tuple[str, str, str]] = []

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "Relationship" and attributes.get("TargetMode") != "External" and len(self.all) < MOST_FORMATS:
            path = normpath(join("/", self._folder, attributes.get("Target", ""))).lstrip("/")
            self.all.append((attributes.get("Type", "").rpartition("/")[2], path, attributes.get("Id", "")))


class _Properties(XmlPart):
    """Looks for the property that mailhub gives its own spreadsheets."""

    def __init__(self) -> None:
        super().__init__()
        self.is_typed, self._name = False, ""

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "property":
            self._name = attributes.get("name", "")
        elif tag == "lpwstr":
            self.want_text()

    def end_tag(self, tag: str) -> None:
        if tag == "lpwstr" and (self._name, self.text()) == TYPED:
            self.is_typed = True


class _Workbook(XmlPart):
    """The ids of the visible sheets, in order; whether days are counted from 1904.

    is_uncalculated: a program has written it that does not calculate, and asks the next one to do so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.visible: list[str] = []
        self.since_1904 = self.is_uncalculated = False

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "sheet" and attributes.get("state", "visible") == "visible" and len(self.visible) < MOST_FORMATS:
            self.visible.extend(value for name, value in attributes.items() if name.rpartition(":")[2] == "id")
        elif tag == "workbookPr":
            self.since_1904 = attributes.get("date1904") in TRUE
        elif tag == "calcPr":
            self.is_uncalculated = attributes.get("fullCalcOnLoad") in TRUE


class _Styles(XmlPart):
    """How numbers are shown, by the number of a cell's style."""

    def __init__(self, since_1904: bool) -> None:
        super().__init__()
        self.formats: list[CellFormat | None] = []
        self._since_1904, self._own, self._cells = since_1904, dict[str, str](), False

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self.formats) + len(self._own) > MOST_FORMATS:
            raise BadInput(damaged_sentence(Said("it has too many formats")))
        if tag == "numFmt":
            self._own[attributes.get("numFmtId", "")] = attributes.get("formatCode", "")[:1000]
        elif tag == "cellXfs":
            self._cells = True
        elif tag == "xf" and self._cells:
            id = attributes.get("numFmtId", "0")
            self.formats.append(cell_format(id, self._own.get(id), self._since_1904))

    def end_tag(self, tag: str) -> None:
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
        self.of = lru_cache(maxsize=10_000)(self._look_text_up)

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "rPh":
            self._ruby = True
        elif tag == "si":
            self._parts, self._length = [], 0
        elif tag == "t" and not self._ruby:
            self._texts = self._parts

    def end_tag(self, tag: str) -> None:
        if tag == "t":
            self._texts = None
        elif tag == "rPh":
            self._ruby = False
        elif tag == "si":
            data = unescape_text("".join(self._parts)).encode("utf-8", "surrogatepass")
            self._file.write(data)
            self._starts.append(self._starts[-1] + len(data))

    def _look_text_up(self, number: int) -> str:
        """Raises IndexError."""
        start, end = self._starts[number], self._starts[number + 1]
        self._file.seek(start)
        return self._file.read(end - start).decode("utf-8", "surrogatepass")


class _Sheet(XmlPart):
    """Hands over rows as they end."""

    def __init__(
        self, texts: _SharedTexts, formats: list[CellFormat | None], rows: SheetRows, is_uncalculated: bool
    ) -> None:
        super().__init__()
        self._shared, self._formats, self._rows, self._is_uncalculated = texts, formats, rows, is_uncalculated
        self._row, self._is_hidden, self._cells = 0, False, list[str]()
        self._kind, self._style = "", ""
        self._inline: list[str] = []
        self._ruby = False
        self._has_formula = self._has_value = self._is_zero = False

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "c":
            self._begin_cell(attributes.get("r", ""))
            self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
            self._inline = []
            self._has_formula = self._has_value = False
        elif tag == "v" or (tag == "t" and self._kind == "inlineStr" and not self._ruby):
            self.want_text()
        elif tag == "rPh":
            self._ruby = True
        elif tag == "f":
            self._has_formula = True
        elif tag == "row":
            number = parse_whole_number(attributes["r"]) if "r" in attributes else self._row + 1
            if not self._row < number <= MOST_ROWS:
                why = Said("row %(row)s comes after row %(before)s", row=str(number), before=str(self._row))
                raise BadInput(damaged_sentence(why))
            self._row, self._is_hidden, self._cells = number, attributes.get("hidden") in TRUE, []
        elif tag == "mergeCell" and (found := MERGED.fullmatch(attributes.get("ref", ""))):
            columns = range(_column_number(found[1]) - 1, _column_number(found[3]))
            self._rows.note_merged(columns, int(found[2]), int(found[4]))

    def end_tag(self, tag: str) -> None:
        if tag == "v":
            text = self.text()
            self._has_value = bool(text) or self._kind == "str"
            self._is_zero = text == "0"
            if self._has_value:
                self._cells[-1] = self._value_of_cell(text)
        elif tag == "rPh":
            self._ruby = False
        elif tag == "t" and self._kind == "inlineStr":
            self._has_value = True
            self._inline.append(self.text())
            self._cells[-1] = unescape_text("".join(self._inline))
        elif tag == "c" and self._has_formula:
            # A zero is what such a program writes for any result.
            if not self._has_value or (self._is_uncalculated and self._kind == "n" and self._is_zero):
                self._cells[-1] = UNCALCULATED
        elif tag == "row":
            self._rows.write_row(self._row, self._cells, self._is_hidden)

    def raise_too_long(self) -> None:
        raise BadInput([RowError(self._row, Said("a cell is larger than %(most)s characters", most=MAX_CELL))])

    def _begin_cell(self, reference: str) -> None:
        """Begins a cell in its column: that of its reference, like AB12, else the next one."""
        column = _column_number(reference.rstrip("0123456789").upper()) or len(self._cells) + 1
        if not len(self._cells) < column <= MOST_COLUMNS:
            why = Said("there is no place for %(name)s", name=repr(reference[:20]))
            raise BadInput([RowError(self._row, damaged_sentence(why))])
        self._cells.extend([""] * (column - len(self._cells)))

    def _value_of_cell(self, text: str) -> str:
        if self._kind == "s":
            try:
                return self._shared.of(parse_whole_number(text))
            except IndexError:
                raise BadInput([RowError(self._row, damaged_sentence(Said("a text is missing")))]) from None
        if self._kind == "n":
            style = parse_whole_number(self._style or "0")
            form = self._formats[style] if style < len(self._formats) else None
            shown = number_text(text, form)
            if form and form.kind and any(map(str.isdigit, shown)):  # a word is given as shown
                self._rows.note(len(self._cells) - 1, form.kind, shown)
            return shown
        if self._kind == "b":
            return "TRUE" if text in TRUE else "FALSE"
        if self._kind == "d":
            shown = iso_day(text)
            self._rows.note(len(self._cells) - 1, "date" if "-" in shown else "time", shown)
            return shown
        return ERROR + text if self._kind == "e" else unescape_text(text)


def _column_number(letters: str) -> int:
    """Return the number of a column, like AB, from 1 on; 0 for none."""
    column = 0
    for letter in letters:
        column = 26 * column + ord(letter) - 64
        if not 0 < column <= MOST_COLUMNS:
            break
    return column
