"""A report opens in the programs that people use, and comes back as the list that it was."""

import csv
import io
import warnings
from html import escape
from typing import Any

import openpyxl
import pandas
import pytest
from django.core.management import call_command

from campaigns.lists import intake
from campaigns.lists.intake import Table, check_table
from campaigns.lists.intake.suppression_file import SuppressionFile
from campaigns.models import Campaign
from campaigns.reporting import export, xlsx_writer
from campaigns.reporting.export import Export
from campaigns.reporting.own_files import REPORT
from campaigns.suppression import suppressing
from campaigns.suppression.lists import NewSuppression
from campaigns.texts import templates
from campaigns.texts.given_texts import given_value
from tests import factories
from tests.lists.test_intake_spreadsheets import NAMESPACES, ods, ods_row
from vendors.history import Actor

pytestmark = pytest.mark.django_db
BARE = templates.compile_templates("Hello", "Good day", html=False)
HEADER = ["email", "name", "note", "zip", "account"]
ROWS = [
    ["-ann@sandbox.example", "Ann", "=1+1", "01067", "12345678901234567890"],
    ["bob@sandbox.example", "@bob", "-5 Grad", "00000", "0049"],
    ["'-eve@sandbox.example", "'@eve", "''=x", "1/2", "1E5"],
    ["+tom@sandbox.example", "\ttom", "a;=1\n'=2", " x ", "+49 30 1"],
    ["=zoe@sandbox.example", "<r>zoe</r>", "_x0041_ <&>\"'", "\x01\x0b\x1f\r\n", "\U0001f600\ufffe"],
    ["joe@sandbox.example", "", "", "", "'t Hooft"],
]
FORMATS = {"csv": export.csv_chunks, "xlsx": export.xlsx_chunks}


def as_csv(header: list[str], rows: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([header, *rows])
    return out.getvalue().encode()


def recipients(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    return list(check_table(Table(io.BytesIO(data)), "email", BARE))


def campaign_of(data: bytes) -> Campaign:
    job = intake.store_campaign(
        sponsor=factories.sponsor(),
        credential=factories.credential(),
        name="Readers",
        subject="s",
        body="b",
        html=False,
        recipients=check_table(Table(io.BytesIO(data)), "email", BARE),
    )
    return Campaign.objects.get(pk=job.campaign_id)


def report(campaign: Campaign, kind: str) -> bytes:
    return b"".join(FORMATS[kind](Export(campaign, "email")))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_report_is_the_list_that_it_was_however_often_it_goes_round(kind: str) -> None:
    data = as_csv(HEADER, ROWS)
    expected = recipients(data)
    assert [fields["note"] for _, fields in expected] == [row[2] for row in ROWS]
    for _ in range(3):
        data = report(campaign_of(data), kind)
        assert recipients(data) == expected


@pytest.mark.parametrize("kind", FORMATS)
def test_fields_that_are_called_as_columns_of_a_report_stay_apart(kind: str) -> None:
    data = as_csv(
        ["email", "State", "vendor_id", "reason", "state_mailhub"], [["a@sandbox.example", "1", "=2", "3", "4"]]
    )
    expected = recipients(data)
    for _ in range(2):
        data = report(campaign_of(data), kind)
        assert recipients(data) == expected
    table = Table(io.BytesIO(data))
    assert table.header == ["recipient", "State", "vendor_id", "reason", "state_mailhub"]


def test_a_report_from_which_columns_were_taken_has_no_quotes_more_either() -> None:
    made = report(campaign_of(as_csv(HEADER, ROWS[:2])), "csv")
    rows = [[*row[:3], row[8], row[11]] for row in csv.reader(io.StringIO(made.decode("utf-8-sig")))]
    assert rows[0] == ["recipient", "name", "note", "vendor id", "sendings"]
    out = io.StringIO()
    csv.writer(out, delimiter=";").writerows(rows)
    found = recipients(out.getvalue().encode("utf-8-sig"))
    assert [(one, fields["name"], fields["note"]) for one, fields in found] == [
        ("-ann@sandbox.example", "Ann", "=1+1"),
        ("bob@sandbox.example", "@bob", "-5 Grad"),
    ]


def test_a_csv_report_that_a_spreadsheet_has_saved_again_has_no_quotes_more_either() -> None:
    made = report(campaign_of(as_csv(HEADER, ROWS[:2])), "csv")
    book = openpyxl.Workbook()
    for row in csv.reader(io.StringIO(made.decode("utf-8-sig"))):
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    assert recipients(out.getvalue()) == recipients(as_csv(HEADER, ROWS[:2]))


def test_a_spreadsheet_of_ours_that_another_program_has_saved_as_ods_keeps_its_quotes() -> None:
    data = as_csv(HEADER, ROWS[1:3])
    header, *rows = openpyxl.load_workbook(io.BytesIO(report(campaign_of(data), "xlsx"))).active.values
    cells = "".join(ods_row(*(escape(str(cell or "")) for cell in row)) for row in (header, *rows))
    meta = (
        f"<office:document-meta {NAMESPACES} xmlns:meta='urn:oasis:names:tc:opendocument:xmlns:meta:1.0'><office:meta>"
        "<meta:user-defined meta:name='mailhub'>cells as they are</meta:user-defined>"
        "</office:meta></office:document-meta>"
    )
    assert recipients(ods(cells, **{"meta.xml": meta})) == recipients(data)


def test_a_list_of_somebody_else_keeps_its_quotes() -> None:
    rows = [["'-ann@sandbox.example", "'=1", "1"]]
    assert recipients(as_csv(["email", "state", "reason"], rows)) == [
        ("'-ann@sandbox.example", {"state": "'=1", "reason": "1"})
    ]


def test_exported_suppressions_can_be_a_list_and_suppressions_again() -> None:
    made = factories.sponsor()
    suppressing.add_and_record(
        made.pk, "email", [NewSuppression("-ann@sandbox.example", "bounced", "=1+1")], Actor("ann")
    )
    out = io.StringIO()
    call_command("suppression", "export", "--sponsor", made.name, "--channel", "email", stdout=out)
    data = out.getvalue().encode()
    assert b"'-ann@" in data
    assert recipients(data)[0][0] == "-ann@sandbox.example"
    (again,) = SuppressionFile(io.BytesIO(data), "email", NewSuppression("", "bounced"), {})
    assert (again.address, again.source) == ("-ann@sandbox.example", "=1+1")


def shown(rows: list[list[str]]) -> list[list[str | None]]:
    """Our texts as openpyxl shows them: an empty cell is None."""
    return [[text or None for text in row] for row in rows]


def test_openpyxl_and_pandas_open_a_report_and_find_texts() -> None:
    # without the row of signs that openpyxl leaves escaped
    rows = [list(map(given_value, row)) for row in ROWS if "\x01" not in row[3]]
    data = report(campaign_of(as_csv(HEADER, rows)), "xlsx")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        book = openpyxl.load_workbook(io.BytesIO(data))
    found = [[cell.value for cell in row] for row in book.active.iter_rows()]
    assert found[0] == ["recipient", *HEADER[1:], *REPORT]
    assert [row[:5] for row in found[1:]] == shown(rows)
    assert {cell.data_type for row in book.active.iter_rows() for cell in row if cell.value is not None} == {"s"}
    frame = pandas.read_excel(io.BytesIO(data), dtype=str, keep_default_na=False)
    assert [list(row[:5]) for row in frame.itertuples(index=False)] == rows


def test_more_rows_than_a_sheet_holds_go_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_writer, "MOST_ROWS", 3)
    for count, sizes in ((0, [1]), (2, [3]), (3, [3, 2]), (5, [3, 3, 2])):
        made = b"".join(xlsx_writer.xlsx_chunks(["h"], ([str(n)] for n in range(count)), "Spring: [sale]"))
        book = openpyxl.load_workbook(io.BytesIO(made))
        assert [sheet.max_row for sheet in book] == sizes
        cells = [cell for sheet in book for (cell,) in sheet.iter_rows(min_row=2, values_only=True)]
        assert cells == [str(n) for n in range(count)]
    assert book.sheetnames == ["Spring   sale", "Spring   sale 2", "Spring   sale 3"]


@pytest.mark.parametrize("title", ["", "History", "'", "[]:*?/\\", "x" * 200, "\U0001f600" * 40, "\x01a\ud800", "a\0b"])
def test_a_sheet_has_a_name_whatever_the_campaign_is_called(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_writer, "MOST_ROWS", 2)
    made = b"".join(xlsx_writer.xlsx_chunks(["h"], [["1"], ["2"]], title))
    assert [sheet.max_row for sheet in openpyxl.load_workbook(io.BytesIO(made))] == [2, 2]


def test_a_text_that_no_cell_can_hold_is_cut_and_the_file_can_be_read() -> None:
    made = b"".join(xlsx_writer.xlsx_chunks(["h"], [["\U0001f600" * 20_000], ["a\ud800b"]], "t"))
    sheet = openpyxl.load_workbook(io.BytesIO(made)).active
    assert len(sheet["A2"].value) == 16_383 and sheet["A3"].value == "ab"
