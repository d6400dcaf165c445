"""Spreadsheets: read as the person who made them sees them, in memory that does not grow, whatever a file says."""

import datetime
import io
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from campaigns.lists.intake import BadInput, Table
from campaigns.lists.intake.xlsx_numbers import cell_format, number_text
from campaigns.texts import templates
from tests.lists.test_intake_csv_reader import BARE, problems, stored

ROOT = Path(__file__).resolve().parents[2]


def book(rows: Iterable[Iterable[Any]], formats: dict[int, str] | None = None, **options: Any) -> bytes:
    """A workbook as Excel writes it. formats: of the cells of a column."""
    out = io.BytesIO()
    with xlsxwriter.Workbook(out, {"in_memory": True, **options}) as made:
        sheet = made.add_worksheet()
        shown = {column: made.add_format({"num_format": form}) for column, form in (formats or {}).items()}
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells):
                sheet.write(row, column, cell, shown.get(column) if row else None)
    return out.getvalue()


def cells(data: bytes) -> list[list[str]]:
    return [cells for _, cells in Table(io.BytesIO(data)).rows()]


def changed(data: bytes, part: str, old: str, new: str) -> bytes:
    """The workbook with a part in which the pattern `old` is replaced."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            content = source.read(name)
            if name == part:
                assert re.search(old, content.decode())
                content = re.sub(old, lambda _: new, content.decode()).encode()
            target.writestr(name, content)
    return out.getvalue()


SHEET = "xl/worksheets/sheet1.xml"
LIST = [["email", "name"], ["ann@sandbox.example", "Ann"]]


@pytest.mark.parametrize("constant_memory", [False, True], ids=["shared texts", "texts in the sheet"])
def test_a_spreadsheet_is_a_list_like_any_other(constant_memory: bool) -> None:
    rows = [["E-mail", "First name"], ["ann@sandbox.example", 'Zoë <&> "x", 田中\nline'], [], ["bob@sandbox.example"]]
    content = templates.compile_templates("Hello", "Dear {{ First_name|default('you', true) }}", html=False)
    assert stored(book(rows, constant_memory=constant_memory), content) == [
        ("ann@sandbox.example", {"First_name": 'Zoë <&> "x", 田中\nline'}),
        ("bob@sandbox.example", {"First_name": ""}),
    ]
    (problem,) = problems(book([*rows, ["nobody", "Eve"]]), content)
    assert problem.row == 5, "a blank row is counted"


def test_numbers_and_dates_are_what_the_person_sees() -> None:
    day, moment = datetime.datetime(2026, 11, 23), datetime.datetime(2026, 11, 23, 18, 30, 5)  # noqa: DTZ001
    formats = {1: "dd.mm.yyyy", 2: "yyyy-mm-dd hh:mm", 3: "hh:mm", 4: "00000", 5: '#,##0.00 "days"', 6: "General"}
    values = ["a", day, moment, 0.75, 1067, 0.1 + 0.2, 447700900123]
    rows = [["email", "day", "moment", "time", "postcode", "amount", "phone"], values]
    for since_1904 in (False, True):
        assert cells(book(rows, formats, date_1904=since_1904)) == [
            ["a", "2026-11-23", "2026-11-23T18:30:05", "18:00:00", "01067", "0.3", "447700900123"]
        ]
    assert cells(book([["email", "yes"], ["a", True], ["b", False]])) == [["a", "TRUE"], ["b", "FALSE"]]


@pytest.mark.parametrize(
    ("number", "id", "code", "text"),
    [
        *(("1", "14", None, "1900-01-01"), ("59", "14", None, "1900-02-28"), ("61", "14", None, "1900-03-01")),
        *(("46349", "0", None, "46349"), ("46349", "164", "[$-407]d. mmmm yyyy", "2026-11-23")),
        *(("2", "164", "[h]:mm", "48:00:00"), ("5", "164", '"day "0', "5"), ("5", "164", "[Red]0", "5")),
        *(("4.4770090012300003E11", "0", None, "447700900123"), ("1E-7", "0", None, "0.0000001")),
        *(("12.300000000000001", "0", None, "12.3"), ("-5", "14", None, "-5"), ("9e99", "14", None, "9" + "0" * 99)),
        *(("x", "14", None, "x"), ("-0", "0", None, "0"), ("-0.0", "164", "0.00", "0"), ("0", "0", None, "0")),
    ],
)
def test_a_number_is_shown_by_its_format(number: str, id: str, code: str | None, text: str) -> None:
    assert number_text(number, cell_format(id, code, False)) == text


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("<c><v>123456789012345678</v></c>", "123456789012345678"),  # a customer's number of more than 15 digits
        ("<c><v>1234567890123456</v></c>", "1234567890123456"),
        ("<c><v>0.30000000000000004</v></c>", "0.3"),
        ('<c t="b"><v>true</v></c>', "TRUE"),
        ('<c t="d"><v>2026-01-02T00:00:00Z</v></c>', "2026-01-02"),
        ('<c t="d"><v>2026-01-02T03:04:05.5</v></c>', "2026-01-02T03:04:05"),
        ('<c r="b2"><v>7</v></c>', "7"),
        ('<c t="inlineStr"><is><r><t>東京</t></r><rPh sb="0" eb="2"><t>トウキョウ</t></rPh></is></c>', "東京"),
    ],
)
def test_cells_as_other_programs_write_them(cell: str, shown: str) -> None:
    data = changed(book([*LIST[:1], ["ann@sandbox.example", 5]]), SHEET, '<c r="B2"><v>5</v></c>', cell)
    assert cells(data) == [["ann@sandbox.example", shown]]


def test_cells_merged_over_rows_are_told_and_those_of_one_row_are_not() -> None:
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as made:
        sheet = made.add_worksheet()
        for row, cells_ in enumerate([["email", "city", "note"], ["a@b.de", "Bonn", "x"], ["c@b.de", "", "y"]]):
            sheet.write_row(row, 0, cells_)
        sheet.merge_range("B2:B3", "Bonn")
        sheet.merge_range("D2:E2", "wide")
    assert Table(io.BytesIO(out.getvalue())).examples == {"merged": {"city": "2–3"}}


def test_both_halves_of_a_sign_may_be_escaped_and_half_a_sign_is_none() -> None:
    cell = '<c t="inlineStr"><is><t>_xD83D__xDE00_ _xD83D_ _x005F_x0041_</t></is></c>'
    data = changed(book([*LIST[:1], ["ann@sandbox.example", 5]]), SHEET, '<c r="B2"><v>5</v></c>', cell)
    assert cells(data) == [["ann@sandbox.example", "\U0001f600 \ufffd _x0041_"]]


def test_a_blank_first_row_is_no_header_and_a_blank_first_sheet_is_told() -> None:
    assert stored(book([[], *LIST]))[0][1] == {"name": "Ann"}
    assert [str(one) for one in problems(book([]))] == ["the first visible sheet is empty"]


def test_a_formula_is_its_result_and_an_error_is_told_with_its_row() -> None:
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as made:
        sheet = made.add_worksheet()
        sheet.write_row(0, 0, ["email", "name"])
        sheet.write_formula(1, 0, '="ann@"&"sandbox.example"', None, "ann@sandbox.example")
        sheet.write_formula(1, 1, "=1+1", None, 2)
        sheet.write_row(2, 0, ["bob@sandbox.example"])
        sheet.write_formula(2, 1, "=NA()", None, "#N/A")
    (problem,) = problems(out.getvalue())
    assert str(problem) == "row 3: 'name' holds the error #N/A of a spreadsheet's formula"


def test_the_first_visible_sheet_is_read() -> None:
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as made:
        made.add_worksheet("notes").write(0, 0, "not this")
        sheet = made.add_worksheet("list")
        sheet.write(0, 0, "email")
        sheet.write(1, 0, "ann@sandbox.example")
        sheet.activate()
        made.get_worksheet_by_name("notes").hide()
    assert stored(out.getvalue(), BARE) == [("ann@sandbox.example", {})]


def test_formatted_text_escapes_and_prefixes_are_read_as_excel_means_them() -> None:
    rich = '<si><r><t>A</t></r><r><rPr><b/></rPr><t>nn_x000D_</t></r><rPh sb="0" eb="1"><t>no</t></rPh></si>'
    data = changed(book(LIST), "xl/sharedStrings.xml", "<si><t>Ann</t></si>", rich)
    assert cells(data) == [["ann@sandbox.example", "Ann"]]
    with zipfile.ZipFile(io.BytesIO(book(LIST))) as source:
        sheet = source.read(SHEET).decode()
    other = re.sub(r"<(/?)(worksheet|sheetData|row|c|v)\b", r"<\1x:\2", sheet).replace("xmlns=", "xmlns:x=", 1)
    assert cells(changed(book(LIST), SHEET, "(?s).+", other)) == [["ann@sandbox.example", "Ann"]]
    bare = re.sub(r' r="[A-Z]*\d+"', "", sheet)
    assert cells(changed(book(LIST), SHEET, "(?s).+", bare)) == [["ann@sandbox.example", "Ann"]]


CELL = '<c r="A1" t="s"><v>0</v></c>'


@pytest.mark.parametrize(
    ("part", "old", "new", "message"),
    [
        (SHEET, CELL, '<c r="A1" t="s"><v>77</v></c>', "a text is missing"),
        (SHEET, CELL, '<c r="A1" t="s"><v>-1</v></c>', "should be a number"),
        (SHEET, CELL, '<c r="ZZZZ1"><v>1</v></c>', "row 1: the spreadsheet is damaged: there is no place for 'ZZZZ1'"),
        (SHEET, 'row r="2"', 'row r="1"', "row 1 comes after row 1"),
        (SHEET, 'row r="2"', 'row r="99999999"', "row 99999999 comes after row 1"),
        (SHEET, "</sheetData>", "", "the spreadsheet is damaged"),
        (SHEET, "<worksheet", "<!DOCTYPE a [<!ENTITY b 'c'>]><worksheet", "it has a document type"),
        (SHEET, "<sheetData>", "<a>" * 99, "nested too deeply"),
        (SHEET, "<sheetData>", "<sheetData>" + "".join(f"<a{n}/>" for n in range(2_000)), "too many kinds of elements"),
        (SHEET, "<sheetData>", f'<sheetData a="{"x" * 1_200_000}">', "a tag does not end"),
        (SHEET, CELL, f'<c r="A1" t="str"><v>{"x" * 300_000}</v></c>', "row 1: a cell is larger than 100,000"),
        ("xl/sharedStrings.xml", "<t>Ann</t>", f"<t>{'x' * 300_000}</t>", "a cell of the spreadsheet is larger"),
        ("xl/workbook.xml", "<sheet ", '<sheet state="hidden" ', "no visible sheet"),
        ("_rels/.rels", 'officeDocument"', 'other"', "no XLSX spreadsheet"),
        (
            "xl/_rels/workbook.xml.rels",
            "worksheets/sheet1.xml",
            "worksheets/sheet9.xml",
            "it has no xl/worksheets/sheet9",
        ),
    ],
)
def test_a_damaged_spreadsheet_is_refused_with_a_sentence(part: str, old: str, new: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Table(io.BytesIO(changed(book(LIST), part, old, new)))


def test_any_cut_or_flipped_byte_gives_a_sentence_or_a_list() -> None:
    data = book(LIST)
    for place in range(0, len(data), 37):
        flipped = bytearray(data)
        flipped[place] ^= 0x5A
        for broken in (data[:place], bytes(flipped)):
            try:
                cells(broken)
            except BadInput as problem:
                assert str(problem)  # noqa: PT017


def test_what_is_packed_to_unpack_endlessly_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.lists.intake.spreadsheets.MOST_UNPACKED", 10_000_000)
    bomb = changed(book(LIST), SHEET, "</sheetData>", "</sheetData>" + " " * 20_000_000)
    assert len(bomb) < 100_000
    with pytest.raises(BadInput, match="unpacks to more than 10,000,000 bytes: save it as CSV"):
        Table(io.BytesIO(bomb))


@pytest.mark.parametrize("constant_memory", ["", "1"], ids=["shared texts", "texts in the sheet"])
@pytest.mark.slow("processes")
def test_a_long_spreadsheet_is_read_in_memory_that_hardly_grows(tmp_path: Path, constant_memory: str) -> None:
    path = tmp_path / "long.xlsx"
    with xlsxwriter.Workbook(path, {"constant_memory": bool(constant_memory)}) as made:
        sheet = made.add_worksheet()
        sheet.write_row(0, 0, ["email", "name"])
        for row in range(1, 60_001):
            sheet.write_row(row, 0, [f"person{row}@sandbox.example", "Ann"])
    command = [sys.executable, "-m", "tests.campaigns.checking", str(path)]
    ran = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    assert int(ran.stdout) < 10_000, "kB: the cells alone, held as Python texts, would be 9,000"
