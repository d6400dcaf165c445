"""A spreadsheet with a filter in a browser: its hidden rows are asked about, and the answer can be changed."""

from pathlib import Path

import openpyxl
import pytest
from playwright.sync_api import expect

from campaigns.lists.drafts import checking
from campaigns.models import Draft
from tests import factories
from tests.browser.conftest import Browsing, LoggedIn
from tests.browser.test_wizard_to_report import the_message

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


@pytest.fixture
def filtered(tmp_path: Path) -> Path:
    book = openpyxl.Workbook()
    book.active.append(["email", "first_name", "paid", "due"])
    for number in range(2, 10):
        book.active.append([f"r{number}@sandbox.example", f"Reader {number}", number + 0.5, 46349 + number])
        book.active.cell(number, 3).number_format = '#,##0.00 "EUR"'
        book.active.cell(number, 4).number_format = "dd.mm.yyyy"
        book.active.row_dimensions[number].hidden = number % 3 == 0
    book.active.auto_filter.ref = "A1:D9"
    book.save(tmp_path / "filtered.xlsx")
    return tmp_path / "filtered.xlsx"


def checked(ann: Browsing) -> None:
    checking.check_draft(Draft.objects.latest("pk").pk)  # as a worker does
    ann.page.reload()


def test_hidden_rows_are_asked_about_and_the_answer_can_be_changed(logged_in: LoggedIn, filtered: Path) -> None:
    factories.credential(factories.vendor("amazingmail", adapter="sandbox", casters=None))
    ann = logged_in("ann", "campaign owner", of=factories.sponsor("Acme"))
    the_message(ann)
    page = ann.page
    page.get_by_label("A spreadsheet").set_input_files(filtered)
    expect(page.get_by_text("filtered.xlsx is being checked")).to_be_visible()
    checked(ann)
    expect(page.get_by_role("alert").get_by_text("3 rows of the spreadsheet are hidden")).to_be_visible()
    expect(page.get_by_role("link", name="Go on")).to_have_count(0)
    ann.screenshot("hidden-rows-asked")
    ann.follow(page.get_by_role("button", name="Leave hidden rows out"))
    checked(ann)
    expect(page.get_by_text("They are left out.")).to_be_visible()
    expect(page.get_by_text("of 5 rows in filtered.xlsx")).to_be_visible()
    ann.screenshot("hidden-rows-left-out")
    ann.follow(page.get_by_role("button", name="Send to hidden rows, too"))
    checked(ann)
    expect(page.get_by_text("of 8 rows in filtered.xlsx")).to_be_visible()
    expect(page.get_by_text("not as the spreadsheet shows them, but like 2026-11-25")).to_be_visible()
