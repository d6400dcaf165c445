"""Spreadsheets of every kind: codes as shown, hidden rows asked about, formulas never calculated told."""

import datetime
import io
import json
import re
import zipfile
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter
import xlwt
from django.core.management import CommandError, call_command

from campaigns.lists.intake import BadInput, Table, check_table, xls_reader
from campaigns.lists.intake.csv_reader import HiddenRowsUndecided
from campaigns.lists.intake.sheets import SheetRows
from campaigns.lists.intake.suppression_file import SuppressionFile
from campaigns.models import Message, Suppression
from campaigns.reporting.own_files import TYPED
from campaigns.suppression.lists import NewSuppression
from campaigns.texts import templates
from tests import factories
from tests.lists.test_intake_csv_reader import BARE, problems, stored
from tests.lists.test_intake_xlsx import SHEET, book, cells, changed

# What a spreadsheet shows of a number, by its format (ECMA-376, 18.8.31).
AS_SHOWN = [
    ("00000", 1067, "01067"),
    ('"D-"00000', 1067, "D-01067"),
    (r"00000\-0000", 12345678, "01234-5678"),
    ("00000;@", 1067, "01067"),
    ("[$-407]00000", 1067, "01067"),
    (r"00\:00", 930, "09:30"),
    (r"0000\ 000", 123456, "0123 456"),
    ("00000_)", 1067, "01067"),
    ("0#", 5, "05"),
    (r"000\-00\-0000", 12345678, "012-34-5678"),
    ('"Nr. "000', 7, "Nr. 007"),
    ("[<=99999]00000;00000-0000", 1067, "01067"),
    ("[<=99999]00000;00000-0000", 12345678, "01234-5678"),
    ("[<=9999999]###-####;(###) ###-####", 5551234, "555-1234"),
    ("[<=9999999]###-####;(###) ###-####", 8005551234, "(800) 555-1234"),
    (r"\+00\ 000\ 0000000", 491711234567, "+49 171 1234567"),
    ('"+"0', 491711234567, "+491711234567"),
    ("[Red]000;[Blue]-000", -42, "-042"),
    ("000;(000)", -42, "(042)"),
    ("00000", -5, "-00005"),
    ("00000;-00000;00000;@", 0, "00000"),
    ("00.00", 5.5, "05.50"),
    ('[=0]"none";00000', 0, "none"),
    ('00000;-00000;""', 0, ""),
    ("00000", 1067.5, "01068"),
    ("000,000,000", 1234567, "001,234,567"),
    (r'00000\ "DD"', 1067, "01067 DD"),
    ("0000????", 123, "00000123"),
    ('"0"0', 1711234567, "01711234567"),
    ('"0"#\\ ###\\ ####', 1711234567, "0171 123 4567"),
    ('"yes";;"no"', 0, "no"),
    ('[=1]"ja";[=0]"nein";0', 1, "ja"),
    ('#,##0;-#,##0;"free"', 0, "free"),
]
# Amounts and days are for templates to write as readers of each language do.
AS_NUMBERS = [
    ("General", 1067, "1067", ""),
    ("@", 1067, "1067", ""),
    ("#,##0.00", 1234.5, "1234.5", "number"),
    (r"#\ ##0", 1234567, "1234567", ""),
    ('#,##0.00\\ "€"', 1234.5, "1234.5", "money"),
    ("[$€-407]#,##0.00", 1234.5, "1234.5", "money"),
    ("0.00%", 0.25, "0.25", "percent"),
    ("+0;-0", 5, "5", ""),
    ('0 "km"', 5, "5", "number"),
    ("# ?/?", 0.5, "0.5", "number"),
    ("0.00E+00", 1234567, "1234567", "number"),
    ("dd/mm/yyyy", 46349, "2026-11-23", "date"),
    ("[$-407]d. mmmm yyyy;@", 46349, "2026-11-23", "date"),
    ("hh:mm", 0.75, "18:00:00", "time"),
    ("hh:mm", 46349.75, "18:00:00", "time"),
    ("[h]:mm", 1.5, "36:00:00", "time"),
    ("[h]:mm", -0.25, "-06:00:00", "time"),
    ("[h]:mm:ss;[Red]-[h]:mm:ss", -1.5, "-36:00:00", "time"),
    ("hh:mm", -0.25, "-0.25", "time"),
    ("[mm]", 0.5, "12:00:00", "time"),
    ("mm", 46349, "2026-11-23", "date"),
    ('#,##0;-#,##0;"-"??', 0, "0", "number"),
    (";;;", 1067, "1067", ""),
]


@pytest.mark.parametrize(("code", "number", "shown"), AS_SHOWN)
def test_a_code_is_given_as_the_spreadsheet_shows_it(code: str, number: float, shown: str) -> None:
    data = book([["email", "code"], ["a@sandbox.example", number]], {1: code})
    assert cells(data) == [["a@sandbox.example", shown]]
    assert Table(io.BytesIO(data)).examples == {}


@pytest.mark.parametrize(("code", "number", "given", "kind"), AS_NUMBERS)
def test_an_amount_or_a_day_is_given_plainly_and_that_is_told(code: str, number: float, given: str, kind: str) -> None:
    data = book([["email", "code"], ["a@sandbox.example", number]], {1: code})
    assert cells(data) == [["a@sandbox.example", given]]
    assert Table(io.BytesIO(data)).examples == ({kind: {"code": given}} if kind else {})


@pytest.mark.parametrize(
    "code", ["[", '"', "\\", "_", "*", "0;;;;;0", "[>]0", "[<=x]0", "0" * 3_000, "[$", ";", "e+", "."]
)
def test_a_format_that_nobody_understands_leaves_the_number_as_it_is(code: str) -> None:
    data = book([["email", "code"], ["a@sandbox.example", 5]])
    style = f'<numFmts count="1"><numFmt numFmtId="164" formatCode="{escape(code)}"/></numFmts><fonts'
    data = changed(
        changed(data, "xl/styles.xml", "<fonts", style),
        "xl/styles.xml",
        '(?<=<cellXfs count="1"><xf numFmtId=)"0"',
        '"164"',
    )
    (row,) = cells(data)
    assert row[1].strip("0") == "5"


def with_formulas(**formulas: str) -> bytes:
    made = openpyxl.Workbook()
    made.active.append(["email", "name", "total"])
    made.active.append(["a@sandbox.example", "A", 3])
    for place, formula in formulas.items():
        made.active[place] = formula
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


OPTIONAL = templates.compile_templates("Hello", "{{ name }} {{ total|default('nothing', true) }}", html=False)
NEVER = "is a formula that was never calculated: open the list in a spreadsheet program and save it"


def test_a_formula_that_was_never_calculated_is_a_bad_row() -> None:
    found = [str(problem) for problem in problems(with_formulas(C2='=CONCATENATE("EUR ",1+1)'), OPTIONAL)]
    assert found == [f"row 2: 'total' {NEVER}"]
    (problem,) = problems(with_formulas(A2="=B1"), BARE)
    assert NEVER in str(problem)
    (problem,) = problems(with_formulas(B1="=A1"), BARE)
    assert str(problem) == "row 1: the name of column 2 is an error, or a formula that was never calculated"


def test_the_zero_that_a_program_writes_for_every_formula_is_none() -> None:
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as made:
        sheet = made.add_worksheet()
        sheet.write_row(0, 0, ["email", "name", "total"])
        sheet.write_row(1, 0, ["a@sandbox.example", "A"])
        sheet.write_formula(1, 2, "=SUM(A1:A9)")
    assert [str(one) for one in problems(out.getvalue(), OPTIONAL)] == [f"row 2: 'total' {NEVER}"]
    calculated = changed(out.getvalue(), "xl/workbook.xml", ' fullCalcOnLoad="1"', "")
    assert stored(calculated, OPTIONAL) == [("a@sandbox.example", {"name": "A", "total": "0"})]


def test_a_formula_that_came_to_an_empty_text_is_empty() -> None:
    data = changed(with_formulas(C2="=B9"), SHEET, r'<c r="C2">', '<c r="C2" t="str">')
    assert stored(data, OPTIONAL) == [("a@sandbox.example", {"name": "A", "total": ""})]


EMPTY_TEXT, ZERO, TWO = b"\x03\0\0\0\0\0\xff\xff", bytes(8), b"\0\0\0\0\0\0\0\x40"


def xls_with_formulas(*values: bytes, flags: int = 0, is_uncalced: bool = False, has_summary: bool = False) -> bytes:
    """An old Excel file with a name and a total by formulas. values: theirs, as [MS-XLS] 2.5.133 has them."""
    made = xlwt.Workbook()
    sheet = made.add_sheet("list")
    for column, name in enumerate(["email", "name", "total"]):
        sheet.write(0, column, name)
    sheet.write(1, 0, "a@sandbox.example")
    sheet.write(1, 1, xlwt.Formula('IF(A9="","","x")'))
    sheet.write(1, 2, xlwt.Formula("A8-A9"))
    out = io.BytesIO()
    made.save(out)
    data = out.getvalue()
    for value in values:
        data = data.replace(EMPTY_TEXT + bytes(2), value + bytes([flags, 0xFF]), 1)  # the mark keeps it from the next
    for value in values:
        data = data.replace(value + bytes([flags, 0xFF]), value + bytes([flags, 0]))
    if is_uncalced:
        data = data.replace(b"\x0c\0\x02\0\x64\0", b"\x5e\0\x02\0\0\0", 1)  # instead of the number of iterations
    return data + ("\x05SummaryInformation".encode("utf-16-le") if has_summary else b"")


@pytest.mark.parametrize(
    ("data", "bad"),
    [
        (xls_with_formulas(EMPTY_TEXT, EMPTY_TEXT), ["name", "total"]),  # as xlwt and Apache POI write it
        (xls_with_formulas(ZERO, ZERO), ["name", "total"]),
        (xls_with_formulas(EMPTY_TEXT, TWO), []),
        (xls_with_formulas(EMPTY_TEXT, ZERO, has_summary=True), []),  # as LibreOffice writes it
        (xls_with_formulas(EMPTY_TEXT, EMPTY_TEXT, has_summary=True), []),
        (xls_with_formulas(TWO, ZERO, flags=3, has_summary=True), ["total"]),  # as Spreadsheet::WriteExcel
        (xls_with_formulas(EMPTY_TEXT, ZERO, is_uncalced=True, has_summary=True), ["total"]),
    ],
)
def test_formulas_of_an_old_excel_file_that_were_never_calculated_are_told(data: bytes, bad: list[str]) -> None:
    if bad:
        content = templates.compile_templates("Hello", f"{{{{ {bad[0]} }}}} {{{{ total }}}}", html=False)
        assert str(problems(data, content)[0]).startswith(f"row 2: '{bad[0]}' {NEVER}")
    assert [
        name for name, cell in zip(("email", "name", "total"), cells(data)[-1], strict=False) if "\0" in cell
    ] == bad


def test_an_old_excel_file_made_of_our_report_keeps_its_quotes() -> None:
    header = ["email", "state", "reason", "code", "vendor id", "sent at", "reported at", "sendings"]
    data = xls([header, ["'-ann@sandbox.example", "sent", "", "", "x", "", "", "1"]])
    assert next(Table(io.BytesIO(data)).rows())[1] == ["-ann@sandbox.example"]
    for codec in ("ascii", "utf-16-le"):
        assert is_typed_xls("".join(TYPED).encode(codec))
    assert not is_typed_xls(TYPED[0].encode())


def is_typed_xls(properties: bytes) -> bool:
    rows = SheetRows(1000)
    about = {"since_1904": False, "formats": [], "merged": [], "properties": properties.hex()}
    xls_reader._write_sheet(io.BytesIO(json.dumps(about).encode()), rows)
    return rows.is_typed


def packed(*names: str, **parts: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        for name, text in parts.items():
            archive.writestr(name, text)
    return out.getvalue()


def old_office(stream: str) -> bytes:
    """An OLE file whose only stream has this name."""
    name = "Workbook".encode("utf-16-le").ljust(64, b"\0")
    return xls_with_formulas().replace(name, stream.encode("utf-16-le").ljust(64, b"\0"))


OFFICE = ("[Content_Types].xml", "_rels/.rels")
ODF = "application/vnd.oasis.opendocument."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (packed(*OFFICE, "word/document.xml"), "the file is a text document, not CSV: save it as XLSX"),
        (packed(*OFFICE, "ppt/presentation.xml"), "the file is a presentation, not CSV: save it as XLSX"),
        (packed(*OFFICE, "xl/workbook.bin"), "the file is a binary Excel file (XLSB), not CSV: save it as XLSX"),
        (packed("Index/Document.iwa", "Metadata/Properties.plist"), "the file is a document of Apple's Numbers, Pages"),
        (packed("Index.zip", "preview.jpg"), "the file is a document of Apple's Numbers, Pages"),
        (packed("index.xml", "buildVersionHistory.plist"), "the file is a document of Apple's Numbers, Pages"),
        (packed(mimetype=ODF + "text"), "the file is a text document, not CSV"),
        (packed(mimetype=ODF + "presentation"), "the file is a presentation, not CSV"),
        (packed(mimetype="application/epub+zip"), "the file is a packed archive, not CSV"),
        (packed("list.csv"), "the file is a packed archive, not CSV"),
        (old_office("EncryptedPackage"), "the spreadsheet has a password: save it without one"),
        (old_office("WordDocument"), "the file is a text document, not CSV"),
        (old_office("PowerPoint Document"), "the file is a presentation, not CSV"),
        (old_office("__properties_version1.0"), "the file is an e-mail, not CSV"),
        (old_office("Contents"), "the file is no spreadsheet, has a password, or is damaged: save it as XLSX"),
    ],
)
def test_a_file_that_is_no_spreadsheet_is_told_what_it_is(data: bytes, message: str) -> None:
    [problem] = problems(data, BARE)
    assert str(problem).startswith(message)


@pytest.mark.parametrize("kind", ["application/vnd.ms-excel.sheet.macroEnabled", "application/x.template"])
def test_macros_and_templates_of_excel_are_lists_as_others(kind: str) -> None:
    sheet = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    data = changed(with_formulas(), "[Content_Types].xml", re.escape(sheet), kind)
    assert stored(data, BARE) == [("a@sandbox.example", {"name": "A", "total": "3"})]


LIST = [["email", "name"], *([f"r{number}@sandbox.example", f"R{number}"] for number in range(2, 8))]


def hidden_xlsx(*rows: int) -> bytes:
    made = openpyxl.Workbook()
    for row in LIST:
        made.active.append(row)
    made.active.auto_filter.ref = "A1:B7"
    for row in rows:
        made.active.row_dimensions[row].hidden = True
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def hidden_xls(*rows: int) -> bytes:
    made = xlwt.Workbook()
    sheet = made.add_sheet("list")
    for number, row in enumerate(LIST):
        for column, text in enumerate(row):
            sheet.write(number, column, text)
        sheet.row(number).hidden = number + 1 in rows
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


NAMESPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text", "style")
)


def ods(rows: str, styles: str = "", before: str = "", kind: str = "spreadsheet", **parts: str) -> bytes:
    """A spreadsheet as LibreOffice writes it."""
    content = (
        f'<?xml version="1.0" encoding="UTF-8"?><office:document-content {NAMESPACES} '
        'xmlns:calcext="urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0" office:version="1.3">'
        f"<office:automatic-styles>{styles}</office:automatic-styles><office:body><office:spreadsheet>{before}"
        f'<table:table table:name="list"><table:table-column table:number-columns-repeated="16384"/>{rows}'
        '<table:table-row table:number-rows-repeated="1048500">'
        '<table:table-cell table:number-columns-repeated="16384"/>'
        "</table:table-row></table:table></office:spreadsheet></office:body></office:document-content>"
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("mimetype", f"application/vnd.oasis.opendocument.{kind}", zipfile.ZIP_STORED)
        made.writestr("content.xml", content)
        for name, text in parts.items():
            made.writestr(name, text)
    return out.getvalue()


def ods_row(*texts: str, **attributes: str) -> str:
    said = "".join(f' table:{name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f"<table:table-row{said}>{''.join(map(ods_cell, texts))}</table:table-row>"


def ods_cell(shown: str, kind: str = "string", value: str = "", name: str = "value", more: str = "") -> str:
    of = f' office:{name}="{value}"' if value else ""
    return f'<table:table-cell office:value-type="{kind}"{of}{more}><text:p>{shown}</text:p></table:table-cell>'


def hidden_ods(*rows: int) -> bytes:
    return ods("".join(
        ods_row(*row, **({"visibility": "filter" if number % 2 else "collapse"} if number in rows else {}))
        for number, row in enumerate(LIST, start=1)
    ))  # fmt: skip


HIDDEN = {"xlsx": hidden_xlsx, "ods": hidden_ods, "xls": hidden_xls}


@pytest.mark.parametrize("made", HIDDEN.values(), ids=HIDDEN)
def test_hidden_rows_are_named_and_kept_or_left_out_as_somebody_decides(made: Callable[..., bytes]) -> None:
    data = made(3, 4, 7)
    with pytest.raises(HiddenRowsUndecided) as undecided:
        check_table(Table(io.BytesIO(data)), "email", BARE)
    assert str(undecided.value) == (
        "rows of the spreadsheet are hidden, as by a filter: 3 (3, 4, 7); say whether they are kept or left out"
    )
    kept = check_table(Table(io.BytesIO(data), hidden_rows="keep"), "email", BARE)
    assert [one for one, _ in kept] == [f"r{number}@sandbox.example" for number in range(2, 8)]
    shown = check_table(Table(io.BytesIO(data), hidden_rows="leave_out"), "email", BARE)
    assert [one for one, _ in shown] == [f"r{number}@sandbox.example" for number in (2, 5, 6)]
    assert stored(made(), BARE) == [(one, {"name": name}) for one, name in LIST[1:]]


def test_many_hidden_rows_are_counted_and_a_hidden_header_is_none() -> None:
    with pytest.raises(BadInput, match=r"are hidden, .*: 6 \(2, 3, 4, 5, 6, \.\.\.\)"):
        check_table(Table(io.BytesIO(hidden_xlsx(1, 2, 3, 4, 5, 6, 7))), "email", BARE)


@pytest.mark.django_db
def test_the_command_asks_about_hidden_rows_and_says_what_it_does(tmp_path: Path, capsys: Any) -> None:
    vendor = factories.vendor("amazing-mail")
    factories.credential(vendor, "default")
    factories.sponsor("Velma")
    (tmp_path / "list.xlsx").write_bytes(hidden_xlsx(3, 4))
    (tmp_path / "body.txt").write_text("Dear {{ name }}")
    command = [str(tmp_path / "list.xlsx"), "--sponsor", "Velma", "--vendor", "amazing-mail", "--subject", "s"]
    command += ["--body", str(tmp_path / "body.txt")]
    with pytest.raises(
        CommandError, match=r"rows .* are hidden, .*: 2 \(3, 4\); .*\(--hidden-rows keep or leave-out\)"
    ):
        call_command("send_campaign", *command)
    assert not Message.objects.exists()
    call_command("send_campaign", *command, "--hidden-rows", "leave-out")
    assert "2 hidden rows of the spreadsheet are left out" in capsys.readouterr().err
    assert Message.objects.count() == 4
    data = book([["email", "name"], ["a@sandbox.example", 46349]], {1: "dd.mm.yyyy"})
    (tmp_path / "list.xlsx").write_bytes(data)
    call_command("send_campaign", *command)
    assert "dates (name): not as the spreadsheet shows them, but like 2026-11-23" in capsys.readouterr().err


@pytest.mark.django_db
def test_hidden_rows_stay_suppressed_and_are_lifted_only_if_somebody_says_so(tmp_path: Path, capsys: Any) -> None:
    sponsor = factories.sponsor("Velma")
    (tmp_path / "list.xlsx").write_bytes(changed(hidden_xlsx(3, 4), SHEET, "<t>name</t>", "<t>source</t>"))
    whose = ["--sponsor", sponsor.name, "--channel", "email"]
    call_command("suppression", "import", *whose, str(tmp_path / "list.xlsx"))
    assert "2 of them are in rows that the spreadsheet hides" in capsys.readouterr().err
    assert Suppression.objects.count() == 6
    lift = ["suppression", "lift", *whose, "--file", str(tmp_path / "list.xlsx")]
    with pytest.raises(CommandError, match="--hidden-rows keep or leave-out"):
        call_command(*lift)
    assert Suppression.objects.filter(until=None).count() == 6
    call_command(*lift, "--hidden-rows", "leave-out")
    assert Suppression.objects.filter(until=None).count() == 2


def test_ods_gives_codes_as_shown_and_days_and_amounts_plainly() -> None:
    row = [
        ods_cell("a@sandbox.example"),
        ods_cell("01067", "float", "1067"),
        ods_cell("D-01067", "float", "1067"),
        ods_cell("01234-5678", "float", "12345678"),
        ods_cell("+49 171 1234567", "float", "491711234567"),
        ods_cell("1.234.567", "float", "1234567"),
        ods_cell("1.234,50 €", "currency", "1234.5"),
        ods_cell("25 %", "percentage", "0.25"),
        ods_cell("23.11.2026", "date", "2026-11-23", "date-value"),
        ods_cell("23.11.26 18:30", "date", "2026-11-23T18:30:05", "date-value"),
        ods_cell("18:30", "time", "PT18H30M05S", "time-value"),
        ods_cell("WAHR", "boolean", "true", "boolean-value"),
        ods_cell("4,47700900123E+11", "float", "4.47700900123E11"),
        ods_cell('x<text:s text:c="2"/>y<text:tab/>z</text:p><text:p><text:span>new</text:span>'),
        '<table:covered-table-cell office:value-type="string"><text:p>under</text:p></table:covered-table-cell>',
        '<table:table-cell office:value-type="string"><office:annotation><text:p>no</text:p></office:annotation>'
        "<text:p>yes</text:p></table:table-cell>",
    ]
    header = ods_row("email", *(f"f{number}" for number in range(1, len(row))))
    table = Table(io.BytesIO(ods(f"{header}<table:table-row>{''.join(row)}</table:table-row>")))
    ((_, found),) = table.rows()
    assert found[1:] == [
        *("01067", "D-01067", "01234-5678", "+49 171 1234567", "1234567", "1234.5", "0.25", "2026-11-23"),
        *("2026-11-23T18:30:05", "18:30:05", "TRUE", "447700900123", "x  y\tz\nnew", "", "yes"),
    ]
    assert table.examples == {
        "number": {"f5": "1234567", "f12": "447700900123"},
        "money": {"f6": "1234.5"},
        "percent": {"f7": "0.25"},
        "date": {"f8": "2026-11-23", "f9": "2026-11-23T18:30:05"},
        "time": {"f10": "18:30:05"},
    }


def test_ods_gives_words_for_numbers_long_numbers_and_one_blank_for_many() -> None:
    row = (
        ods_cell("a@sandbox.example")
        + ods_cell("ja", "float", "1")
        + ods_cell("123456789012345678", "float", "123456789012345678")
        + ods_cell("two\n   words")
    )
    data = ods(ods_row("email", "member", "number", "note") + f"<table:table-row>{row}</table:table-row>")
    assert cells(data) == [["a@sandbox.example", "ja", "123456789012345678", "two words"]]


@pytest.mark.parametrize(
    ("value", "shown", "given"),
    [
        ("PT30H00M00S", "30:00", "30:00:00"),
        ("PT30H00M00S", "06:00", "06:00:00"),  # of the format hh:mm
        ("PT42H05M00S", "6:05 PM", "18:05:00"),
        ("PT24H00M00S", "12:00 AM", "00:00:00"),
        ("PT30H00M00S", "1800", "30:00:00"),  # in minutes
        ("PT30H05M00S", "05:00", "30:05:00"),  # minutes and seconds
        ("-PT06H00M00S", "-6:00", "-06:00:00"),
    ],
)
def test_ods_gives_a_duration_beyond_a_day_as_shown(value: str, shown: str, given: str) -> None:
    row = ods_cell("a@sandbox.example") + ods_cell(shown, "time", value, "time-value")
    assert cells(ods(ods_row("email", "time") + f"<table:table-row>{row}</table:table-row>")) == [
        ["a@sandbox.example", given]
    ]


def test_cells_merged_over_rows_are_told_by_every_reader() -> None:
    merged = ods_cell("Bonn", more=' table:number-rows-spanned="2"')
    row = f"<table:table-row>{ods_cell('a@sandbox.example')}{merged}</table:table-row>"
    table = Table(io.BytesIO(ods(ods_row("email", "city") + row + ods_row("b@sandbox.example"))))
    assert table.examples == {"merged": {"city": "2–3"}}
    made, out = xlwt.Workbook(), io.BytesIO()
    sheet = made.add_sheet("list")
    sheet.write(0, 0, "email")
    sheet.write(0, 1, "city")
    sheet.write_merge(1, 2, 1, 1, "Bonn")
    made.save(out)
    assert Table(out).examples == {"merged": {"city": "2–3"}}


def test_ods_tells_errors_formulas_and_reads_the_first_visible_sheet() -> None:
    hidden = '<style:table-properties table:display="false"/>'
    hidden = f'<style:style style:name="ta1" style:family="table">{hidden}</style:style>'
    before = f'<table:table table:name="no" table:style-name="ta1">{ods_row("not this")}</table:table>'
    error = ods_cell("#NV", "string", "", more=' calcext:value-type="error" table:formula="of:=NA()"')
    never = '<table:table-cell table:formula="of:=1+1"/>'
    empty = '<table:table-cell table:formula="of:=&quot;&quot;"><text:p/></table:table-cell>'
    rows = ods_row("email", "name") + "".join(
        f"<table:table-row>{ods_cell(f'{name}@sandbox.example')}{cell}</table:table-row>"
        for name, cell in (("a", error), ("b", never), ("c", ods_cell("C")), ("d", empty))
    )
    found = [str(one) for one in problems(ods(rows, hidden, before), OPTIONAL_NAME)]
    assert found == [
        "row 2: 'name' holds the error #NV of a spreadsheet's formula",
        f"row 3: 'name' {NEVER}",
    ]


OPTIONAL_NAME = templates.compile_templates("Hello", "{{ name|default('nothing', true) }}", html=False)


def test_rows_and_cells_that_ods_writes_once_for_many_are_all_read() -> None:
    many = ods_cell("x", more=' table:number-columns-repeated="2"')
    data = ods(
        ods_row("email", "a", "b")
        + f'<table:table-row table:number-rows-repeated="3">{ods_cell("r@sandbox.example")}{many}</table:table-row>'
        + ods_row("", number_rows_repeated="2")
        + ods_row("s@sandbox.example")
    )
    assert list(Table(io.BytesIO(data)).rows()) == [
        *((number, ["r@sandbox.example", "x", "x"]) for number in (2, 3, 4)),
        (7, ["s@sandbox.example"]),
    ]


def repeated(text: str, count: int) -> str:
    cell = ods_cell(text, more=f' table:number-columns-repeated="{count}"')
    return f"<table:table-row>{cell}</table:table-row>"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ods(ods_row("x", number_rows_repeated="1048577")), "too many rows"),
        (ods(repeated("x", 16_385)), "too many columns"),
        (ods(ods_row("x" * 99_000, number_rows_repeated="1000000")), "more than 5,000,000 bytes of cells"),
        (ods(repeated("x" * 99_000, 16_000)), "the row is larger than 10,000,000 characters"),
        (ods(ods_row("x" * 300_000)), "a cell is larger than 100,000 characters"),
        (ods(" " * 6_000_000), "unpacks to more than 5,000,000 bytes"),
        (ods("", kind="text"), "the file is a text document"),
        (ods("", **{"META-INF/manifest.xml": "<a><encryption-data/></a>"}), "has a password"),
        (ods("<a>"), "is damaged"),
    ],
)  # fmt: skip
def test_an_ods_file_that_says_too_much_is_refused_with_a_sentence(data: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Table(io.BytesIO(data), most_unpacked=5_000_000)


def xls(rows: list[list[Any]], formats: dict[int, str] | None = None) -> bytes:
    made = xlwt.Workbook()
    made.add_sheet("notes").write(0, 0, "not this")
    made.get_sheet(0).visibility = 1
    sheet = made.add_sheet("list")
    made.set_active_sheet(1)
    styles = {column: xlwt.easyxf(num_format_str=code) for column, code in (formats or {}).items()}
    for number, row in enumerate(rows):
        for column, value in enumerate(row):
            sheet.write(number, column, value, *([styles[column]] if number and column in styles else []))
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def test_an_old_excel_file_is_read_as_a_new_one() -> None:
    day = datetime.datetime(2026, 11, 23, 18, 30, 5)  # noqa: DTZ001
    formats = {1: "00000", 2: '"D-"00000', 3: "#,##0.00", 4: "dd.mm.yyyy", 5: "0%", 6: "General"}
    rows = [
        ["email", *"abcdefg"],
        ["a@sandbox.example", 1067, 1067, 1234.5, day, 0.25, 447700900123, True],
        [],
        ["zoë@sandbox.example", "", "", "", "", "", "Ann\n&"],
    ]
    table = Table(io.BytesIO(xls(rows, formats)))
    assert [(number, [*found, *[""] * (8 - len(found))]) for number, found in table.rows()] == [
        (2, ["a@sandbox.example", "01067", "D-01067", "1234.5", "2026-11-23T18:30:05", "0.25", "447700900123", "TRUE"]),
        (4, ["zoë@sandbox.example", "", "", "", "", "", "Ann\n&", ""]),
    ]
    assert {kind: list(found) for kind, found in table.examples.items()} == {
        "number": ["c"],
        "date": ["d"],
        "percent": ["e"],
    }


def test_any_cut_or_flipped_byte_of_an_old_excel_file_gives_a_sentence_or_a_list() -> None:
    data = xls([["email", "name"], ["a@sandbox.example", "Ann"]])
    for place in range(4, len(data), len(data) // 7):
        flipped = bytearray(data)
        flipped[place] ^= 0x5A
        for broken in (data[:place], bytes(flipped)):
            try:
                cells(broken)
            except BadInput as problem:
                assert str(problem)  # noqa: PT017


def test_an_old_excel_file_that_takes_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = xls([["email"], *([f"r{number}@sandbox.example"] for number in range(500))])
    with pytest.raises(BadInput, match="unpacks to more than 10,000 bytes"):
        Table(io.BytesIO(data), most_unpacked=10_000)
    monkeypatch.setattr(xls_reader, "SECONDS", 0.001)
    with pytest.raises(BadInput, match="takes too much memory or time: save it as XLSX"):
        Table(io.BytesIO(data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("Email;Name;City\nann@example.org;Ann;Bonn\n ", [["ann@example.org", "Ann", "Bonn"]]),
        ("Email;Name\na@example.org;A\n ; \nb@example.org;B\n", [["a@example.org", "A"], ["b@example.org", "B"]]),
        ("Email;Amount (EUR, net, rounded)\nann@example.org;12\n", [["ann@example.org", "12"]]),
        ('"E-mail\naddress";Name\nann@example.org;Ann\n', [["ann@example.org", "Ann"]]),
        ("Email;Amount (EUR, net, rounded)\nann@example.org;1,2,3\n", [["ann@example.org", "1,2,3"]]),
        ("Name, Vorname;Email\nMiller, Ann;ann@example.org\n", [["Miller, Ann", "ann@example.org"]]),
        ("Email,Note; more\nann@example.org,a;b\n", [["ann@example.org", "a;b"]]),
        ("Email\tA, b; c\nann@example.org\tx,y;z\n", [["ann@example.org", "x,y;z"]]),
        ('Email;"a,b,c"\nann@example.org;"1,5"\nbob@example.org\n', [["ann@example.org", "1,5"], ["bob@example.org"]]),
        ("Email,Name\nann@example.org,\"Miller; Ann; x\"\n", [["ann@example.org", "Miller; Ann; x"]]),
        ("Email;Name\n", []),
        ("Email\nann@example.org\n", [["ann@example.org"]]),
    ],
)  # fmt: skip
def test_the_delimiter_is_the_one_by_which_the_rows_fit(data: str, expected: list[list[str]]) -> None:
    assert cells(data.encode()) == expected
    assert cells(data.replace("\n", "\r\n").encode("utf-16")) == [
        [one.replace("\n", "\r\n") for one in row] for row in expected
    ]


def test_blanks_behind_the_last_column_and_in_one_without_a_name_are_nothing() -> None:
    data = "email;name;;\nann@example.org;Ann; ;\u00a0;\nbob@example.org;Bob\t;;; \n"
    assert [fields["name"].strip() for _, fields in stored(data, BARE)] == ["Ann", "Bob"]
    assert stored("email;;name\nann@example.org; ;Ann\n", BARE) == [("ann@example.org", {"name": "Ann"})]
    (found,) = SuppressionFile(
        io.BytesIO(b"address,source\na@sandbox.example,s, , \n"), "email", NewSuppression("", "bounced"), {}
    )
    assert found.address == "a@sandbox.example"


def test_a_long_list_is_not_judged_by_a_row_that_the_sample_cuts_off() -> None:
    rows = [f"r{number}@example.org;{'x, y' * 50}" for number in range(2_000)]
    found = cells("\n".join(["Email;Note", *rows]).encode())
    assert len(found) == 2_000 and {len(row) for row in found} == {2}


def test_the_file_of_suppressions_may_be_a_spreadsheet_of_any_kind() -> None:
    rows = [["address", "source"], ["a@sandbox.example", "s"]]
    for data in (xls(rows), book(rows), ods("".join(ods_row(*row) for row in rows))):
        (found,) = SuppressionFile(io.BytesIO(data), "email", NewSuppression("", "bounced"), {})
        assert (found.address, found.source) == ("a@sandbox.example", "s")
