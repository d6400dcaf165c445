"""A campaign owner's whole way in a browser: from an upload with three bad rows to the report.

Behind the pages are a real worker, and a sandbox vendor that takes the letters and reports what became of them.
"""

import csv
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from campaigns.models import Campaign, Job
from campaigns.reporting import xlsx_writer
from tests import factories
from tests.browser.conftest import Browsing, LoggedIn
from tests.programs import sweeping, wait_until, worker
from tests.sandbox import Sandbox
from vendors import report_keys
from vendors.models import Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
GOOD, FIRST = 30, 10
BAD = [("no address", "Cy"), ("r0@sandbox.example", "Again"), ("zed@sandbox.example", "")]
ENDS = {"returned@sandbox.example": "Bounced", "bounce@sandbox.example": "Failed"}  # all others are delivered


@pytest.fixture
def vendor(sandbox: Sandbox, live_server) -> Vendor:
    settings = {"url": f"{sandbox.url}/letters", "receipts": True, "timeout": 30, "settle_delay": 1}
    made = factories.vendor("amazingmail", adapter="sandbox", settings=settings, casters=None)
    factories.credential(made)
    secret = report_keys.rotate_key(made, timezone.now())
    sandbox.settings(receipts_to=f"{live_server.url}/api/v1/receipts/{made.slug}", receipts_secret=secret)
    return made


@pytest.fixture
def spreadsheet(tmp_path: Path) -> Path:
    rows = [(f"r{n}@sandbox.example", f"Reader {n}") for n in range(GOOD - len(ENDS))]
    rows += [(who, who.partition("@")[0].title()) for who in ENDS]
    file = tmp_path / "readers.xlsx"
    file.write_bytes(b"".join(xlsx_writer.xlsx_chunks(["email", "Given"], [*rows, *BAD], "Readers")))
    return file


def test_from_an_upload_with_three_bad_rows_to_the_report(
    logged_in: LoggedIn, sandbox: Sandbox, vendor: Vendor, spreadsheet: Path
) -> None:
    sponsor = factories.sponsor("Acme")
    ann = logged_in("ann", "campaign owner", of=sponsor)
    the_message(ann)
    ann.page.get_by_label("A spreadsheet").set_input_files(spreadsheet)
    expect(ann.page.get_by_text("readers.xlsx is being checked")).to_be_visible()
    ann.screenshot("story-checking")
    with worker(queues=f"hub,celery,{vendor.queue}", ready=False), sweeping(pauses=True):
        the_list(ann)
        the_check(ann)
        the_campaign(ann, sandbox)
    the_report(ann)


def the_message(ann: Browsing) -> None:
    page = ann.page
    page.get_by_role("link", name="New campaign").first.click()
    page.get_by_label("Name of the campaign").fill("Spring")
    page.get_by_label("Subject").fill("Hello {{ first_name }}")
    page.get_by_label("Text", exact=True).fill("Good day {{ first_name }}")
    ann.follow(page.get_by_role("button", name="Keep, and go on"))


def the_list(ann: Browsing) -> None:
    """The page follows the check by itself; no row can be sent until the column is named as in the message."""
    page = ann.page
    expect(page.get_by_role("alert").get_by_text("first_name")).to_be_visible()
    ann.screenshot("story-unmapped")
    page.get_by_label("The name of Given in the message").fill("first_name")
    page.get_by_role("button", name="Use these columns, and check again").click()
    problems = page.get_by_role("table").filter(has_text="What is wrong").locator("tbody tr")
    expect(problems).to_have_count(len(BAD))
    ann.screenshot("story-bad-rows")
    with page.expect_download() as wanted:
        page.get_by_role("link", name="Download all of them").click()
    kept = list(csv.reader(wanted.value.path().read_text("utf-8-sig").splitlines()))
    assert [tuple(row[:2]) for row in kept[1:]] == BAD and all(row[-1] for row in kept[1:]), kept
    page.get_by_role("button", name="Leave these 3 rows out, and go on").click()


def the_check(ann: Browsing) -> None:
    page = ann.page
    expect(page.frame_locator("iframe").get_by_text("Good day Reader 0")).to_be_visible()
    page.get_by_text("or the first ones first").click()
    page.get_by_label("Send to the first so many").fill(str(FIRST))
    ann.screenshot("story-check")
    page.get_by_role("button", name=f"Send the first {FIRST} of {GOOD} e-mails").click()
    expect(page.get_by_role("status")).to_contain_text(f"stored, for {GOOD} recipients. Its first {FIRST} are sent")


def the_campaign(ann: Browsing, sandbox: Sandbox) -> None:
    """Without a reload: the first are sent, it waits for her, she lets it go on, and it ends."""
    page = ann.page
    bar = page.locator("#live .bar")
    expect(bar).to_have_attribute("title", f"{FIRST} sent of {GOOD}")
    expect(page.get_by_text("It is paused: nothing more is sent")).to_be_visible()
    assert len(sandbox.books().accepted) == FIRST
    ann.screenshot("story-first-sent")
    page.get_by_role("link", name="Let it go on").click()
    page.get_by_label("Why? It is kept with the decision.").fill("the first ones look well")
    page.get_by_role("button", name="Let it go on").click()
    expect(page.get_by_text("It has ended. Not everybody was reached.")).to_be_visible()
    assert len(sandbox.books().accepted) == GOOD - 1 and not sandbox.books().duplicates()
    reported = Job.objects.filter(parent=None, accepted=GOOD - 1, refused=1, delivered=GOOD - 2, bounced=1)
    wait_until(reported.exists, "the vendor has reported", log=lambda: str(Job.objects.filter(parent=None).values()))


def the_report(ann: Browsing) -> None:
    page = ann.page
    page.reload()  # as it says itself: it has ended, and reports come later
    assert Campaign.objects.get().size == GOOD
    expect(page.locator("#live .bar")).to_have_attribute("title", f"{GOOD - 1} sent, 1 failed of {GOOD}")
    for width in (1280, 390):
        ann.resize(width)
        ann.fits("story-ended")
    with page.expect_download() as wanted:
        page.get_by_role("link", name="CSV", exact=True).click()
    rows = list(csv.DictReader(wanted.value.path().read_text("utf-8-sig").splitlines()))
    ends = {row["recipient"]: row["state"] for row in rows}
    assert len(ends) == GOOD and {who: end for who, end in ends.items() if end != "Delivered"} == ENDS
    page.get_by_role("link", name="Report to print").click()
    table = page.get_by_role("table").filter(has_text="Share")
    for state, count in {"Delivered": GOOD - 2, "Came back": 1, "Failed": 1, "All": GOOD}.items():
        expect(table.get_by_role("row", name=state)).to_contain_text(str(count))
    for width in (1280, 390):
        ann.resize(width)
        ann.fits("story-report")
