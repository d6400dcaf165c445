"""Reads the first visible sheet of an ODS spreadsheet (OpenDocument 1.3, part 3), as LibreOffice writes it.

The file has a cell's value beside its shown text. A code with leading zeros becomes the shown text, an amount a plain
number, a date ISO 8601, as with XLSX (number_formats).
"""

import re
import zipfile
from decimal import Decimal, InvalidOperation

from campaigns.lists.intake.fields import MAX_CELL
from campaigns.lists.intake.number_formats import ShownAs
from campaigns.lists.intake.sheets import ERROR, MOST_COLUMNS, MOST_ROWS, UNCALCULATED, SheetRows, iso_day
from campaigns.lists.intake.xlsx_numbers import LONGEST
from campaigns.lists.intake.xlsx_xml import XmlPart, ZippedXml, damaged_sentence, parse_whole_number
from campaigns.reporting.own_files import TYPED
from campaigns.texts.bad_input import BadInput, RowError
from vendors.said import Said

TYPE = b"application/vnd.oasis.opendocument.spreadsheet"  # templates have more behind it
CONTENT = "content.xml"
MOST_STYLES = 100_000
BLANKS = re.compile("[ \t\r\n]+")
HIDDEN = ("collapse", "filter")
# Amounts whose digits are grouped by three; a sign between other groups is a part of a code.
GROUPED = re.compile(r"\D*\d{1,3}(?:([., '\u00a0\u202f\u2019])\d{3})(?:\1\d{3})*\D*")
TIME = re.compile(r"(-?)PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,]\d+)?S)?")
HOURS = 24  # of a day
KINDS: dict[str, ShownAs] = {"date": "date", "time": "time", "currency": "money", "percentage": "percent"}
# Elements inside a cell with text of their own: remarks, and drawings over the cell.
NOT_SHOWN = ("annotation", "note", "ruby-text", "frame", "custom-shape", "g", "control")


def read_type(archive: zipfile.ZipFile) -> bytes:
    """Return the type that an OpenDocument file states, else b""."""
    info = archive.NameToInfo.get("mimetype")
    return archive.read(info) if info and info.file_size < 200 else b""


def is_ods(archive: zipfile.ZipFile) -> bool:
    return read_type(archive).startswith(TYPE)


def read_ods(archive: zipfile.ZipFile, most: int, rows: SheetRows) -> None:
    """Write the sheet to `rows`. most: limit of unpacked bytes of XML.

    Raises BadInput, expat.ExpatError, and zipfile's errors.
    """
    parts, sheets = ZippedXml(archive, most), _Sheets(rows)
    manifest = _Manifest()
    if parts.has_part("META-INF/manifest.xml"):
        parts.feed_part("META-INF/manifest.xml", manifest)
    if manifest.is_encrypted:
        raise BadInput(Said("the spreadsheet has a password: save it without one"))
    own = _Properties()
    if parts.has_part("meta.xml"):
        parts.feed_part("meta.xml", own)
    rows.is_typed = own.is_typed
    parts.feed_part(CONTENT, sheets)
    if not sheets.is_found:
        raise BadInput(Said("the spreadsheet has no visible sheet"))


class _Manifest(XmlPart):
    def __init__(self) -> None:
        super().__init__()
        self.is_encrypted = False

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "encryption-data":
            self.is_encrypted = True


class _Properties(XmlPart):
    """Looks for the property of mailhub's own spreadsheets, which other programs keep when they save one as ODS."""

    def __init__(self) -> None:
        super().__init__()
        self.is_typed, self._name = False, ""

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "user-defined":
            self._name = attributes.get("meta:name", "")
            self.want_text()

    def end_tag(self, tag: str) -> None:
        if tag == "user-defined" and (self._name, self.text()) == TYPED:
            self.is_typed = True


class _Sheets(XmlPart):
    """Hands over the rows of the first visible sheet."""

    def __init__(self, rows: SheetRows) -> None:
        super().__init__()
        self._rows = rows
        self._style, self._hidden_styles = "", set[str]()
        self.is_found = self._is_read = False
        self._row, self._repeated, self._is_hidden, self._cells = 0, 1, False, list[str]()
        self._cell: dict[str, str] | None = None
        self._paragraphs: list[str] = []
        self._has_paragraph = False
        self._not_shown = 0

    def start_tag(self, tag: str, attributes: dict[str, str]) -> None:
        if self._cell is not None:
            self._start_text(tag, attributes)
        elif self._is_read:
            self._start_in_sheet(tag, attributes)
        elif tag == "style" and attributes.get("style:family") == "table":
            self._style = attributes.get("style:name", "")
        elif tag == "table-properties" and attributes.get("table:display") == "false":
            if len(self._hidden_styles) > MOST_STYLES:
                raise BadInput(damaged_sentence(Said("it has too many formats")))
            self._hidden_styles.add(self._style)
        elif tag == "table" and not self.is_found and attributes.get("table:style-name") not in self._hidden_styles:
            self.is_found = self._is_read = True

    def _start_in_sheet(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "table-row":
            self._repeated = parse_whole_number(attributes.get("table:number-rows-repeated", "1"))
            self._is_hidden = attributes.get("table:visibility") in HIDDEN
            self._cells = []
        elif tag in ("table-cell", "covered-table-cell"):
            self._cell, self._paragraphs, self._length = attributes, [], 0
            self._has_paragraph = False
            self._is_covered = tag != "table-cell"

    def _start_text(self, tag: str, attributes: dict[str, str]) -> None:
        if tag in NOT_SHOWN:
            self._not_shown += 1
        if self._not_shown:
            self._texts = None
        elif tag == "p":
            if self._paragraphs:
                self._paragraphs.append("\n")
            self._texts, self._has_paragraph = self._paragraphs, True
        elif self._texts is not None and tag in ("s", "tab", "line-break"):
            count = min(parse_whole_number(attributes.get("text:c", "1")), MAX_CELL) if tag == "s" else 1
            super()._take_text({"s": " ", "tab": "\t", "line-break": "\n"}[tag] * count)

    def end_tag(self, tag: str) -> None:
        if self._cell is not None:
            if tag in ("table-cell", "covered-table-cell"):
                self._end_cell(self._cell)
            elif tag in NOT_SHOWN:
                self._not_shown -= 1
                self._texts = None if self._not_shown else self._paragraphs
            elif tag == "p":
                self._texts = None
        elif tag == "table-row" and self._is_read:
            self._end_row()
        elif tag == "table":
            self._is_read = False

    def _take_text(self, text: str) -> None:
        """Take text between tags. A series of blanks and line breaks in it counts as one blank (part 3, 6.1.2)."""
        super()._take_text(BLANKS.sub(" ", text))

    def _end_cell(self, cell: dict[str, str]) -> None:
        self._cell, self._texts = None, None
        count = parse_whole_number(cell.get("table:number-columns-repeated", "1"))
        text = "" if self._is_covered else self._cell_value(cell, "".join(self._paragraphs))
        if not text and len(self._cells) + count > MOST_COLUMNS:
            count = MOST_COLUMNS - len(self._cells)  # up to the end of the sheet
        if len(self._cells) + count > MOST_COLUMNS:
            raise BadInput([RowError(self._row + 1, damaged_sentence(Said("it has too many columns")))])
        rows = min(parse_whole_number(cell.get("table:number-rows-spanned", "1")), MOST_ROWS)
        columns = min(parse_whole_number(cell.get("table:number-columns-spanned", "1")), MOST_COLUMNS)
        self._rows.note_merged(range(len(self._cells), len(self._cells) + columns), self._row + 1, self._row + rows)
        self._cells.extend([text] * count)

    def _end_row(self) -> None:
        while self._cells and not self._cells[-1]:
            self._cells.pop()
        if not self._cells:
            self._row += self._repeated
            return
        if self._row + self._repeated > MOST_ROWS:
            raise BadInput(damaged_sentence(Said("it has too many rows")))
        for _ in range(self._repeated):
            self._row += 1
            self._rows.write_row(self._row, self._cells, self._is_hidden)

    def _cell_value(self, cell: dict[str, str], shown: str) -> str:
        kind = cell.get("office:value-type", "")
        if cell.get("calcext:value-type") == "error":
            return ERROR + shown
        if not kind:  # LibreOffice writes an empty paragraph for a formula that came to an empty text
            return UNCALCULATED if "table:formula" in cell and not self._has_paragraph else shown
        if kind == "string":
            return cell.get("office:string-value") or shown
        if kind == "boolean":
            return "TRUE" if cell.get("office:boolean-value") == "true" else "FALSE"
        said = KINDS.get(kind, "")
        if kind == "date":
            value = iso_day(cell.get("office:date-value", shown))
        elif kind == "time":
            value = _time_text(cell.get("office:time-value", ""), shown)
        else:
            value = _number_or_shown(cell.get("office:value", ""), shown)
            if not said and value not in (shown, ""):
                said = "number"
        if said:
            self._rows.note(len(self._cells), said, value)
        return value

    def raise_too_long(self) -> None:
        raise BadInput([RowError(self._row + 1, Said("a cell is larger than %(most)s characters", most=MAX_CELL))])


def _time_text(text: str, shown: str) -> str:
    """Return a duration in hours, or the time of day if the cell shows that of a duration beyond a day."""
    found = TIME.fullmatch(text)
    if not found:
        return text or shown
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    first = re.match(r"\d{1,2}(?=:)", shown)
    if hours >= HOURS and first and int(first[0]) in (hours % HOURS, (hours - 1) % 12 + 1):
        hours %= HOURS
    return f"{found[1]}{hours:02}:{minutes:02}:{seconds:02}"


def _number_or_shown(text: str, shown: str) -> str:
    """Return the shown text if the number is a code, with leading zeros or signs between its digits, or a word."""
    if shown.isprintable() and any(map(str.isalpha, shown)) and not any(map(str.isdigit, shown)):
        return shown
    try:
        number = Decimal(text)
        is_whole = text.isascii() and text.isdigit() and len(text) <= LONGEST
        plain = text if is_whole else format(Decimal(f"{float(number):.15g}"), "f")
    except (InvalidOperation, ValueError, OverflowError):
        return shown
    digits = re.sub(r"\D", "", shown)
    whole_part = plain.lstrip("-")
    if not whole_part.isdigit() or digits.lstrip("0") != whole_part.lstrip("0") or not shown.isprintable():
        return plain
    is_padded = len(digits) > len(whole_part)
    bare = re.sub(r"\A\D*|\D*\Z", "", shown)
    has_signs = bare != digits and not GROUPED.fullmatch(shown)
    is_phone = shown.lstrip().startswith("+")
    return shown if is_padded or has_signs or is_phone else plain
