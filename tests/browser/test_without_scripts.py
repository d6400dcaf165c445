"""Real browsers that run no scripts: an owner, an approver and an operator do all that they have to by links and forms.

Each verb by itself: tests/owners/test_without_scripts.py and tests/mailhub/test_operations_without_scripts.py.
"""

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from campaigns.engine.finishing import finalizer
from campaigns.models import Approval, Job
from tests import factories
from tests.browser.conftest import Browsing, LoggedIn

pytestmark = pytest.mark.django_db(transaction=True)
GOOD = 5
ROWS = [f"r{n}@sandbox.example,Reader {n}" for n in range(GOOD)]
BAD = ["no address,Cy", "r0@sandbox.example,Again", "zed@sandbox.example,"]


def test_a_campaign_is_made_approved_stopped_and_goes_on(logged_in: LoggedIn, tmp_path: Path) -> None:
    factories.credential(factories.at_work(factories.vendor("amazingmail")))
    sponsor = factories.sponsor("Acme")
    sponsor.approval_above = 2
    sponsor.save()
    file = tmp_path / "may.csv"
    file.write_text("\n".join(["email,first_name", *ROWS, *BAD]) + "\n")
    ann = logged_in("ann", "campaign owner", of=sponsor, scripts=False)
    address = the_wizard(ann, file)
    bob = logged_in("bob", "campaign approver", of=sponsor, scripts=False)
    the_approval(bob)
    olga = logged_in("olga", "operator", of=sponsor, page="/admin/", scripts=False)
    the_campaign(ann.page)
    the_operator(olga)
    the_recipient(ann.page)
    for window in (ann, bob, olga):
        window.page.get_by_role("button", name="Log out").click()
        expect(window.page.get_by_text("Log in").or_(window.page.get_by_text("Logged out")).first).to_be_visible()
    ann.open(address)
    expect(ann.page.get_by_label("Password")).to_be_visible()


def the_wizard(ann: Browsing, file: Path) -> str:
    """Answers the path of the campaign's page."""
    page = ann.page
    page.get_by_role("link", name="New campaign").first.click()
    page.get_by_label("Name of the campaign").fill("May")
    page.get_by_label("Subject").fill("Hello")
    page.get_by_label("Text", exact=True).fill("Good day {{ first_name }}")
    page.get_by_role("button", name="Keep, and go on").click()
    page.get_by_label("A spreadsheet").set_input_files(file)
    page.get_by_role("button", name="Upload and check").click()
    expect(page.get_by_role("heading", name="Rows that cannot be sent")).to_be_visible()
    ann.screenshot("plain-recipients")
    with page.expect_download() as wanted:
        page.get_by_role("link", name="Download all of them").click()
    assert len(list(csv.reader(wanted.value.path().read_text("utf-8-sig").splitlines()))) == 1 + len(BAD)
    page.get_by_role("button", name="Leave these 3 rows out, and go on").click()
    expect(page.frame_locator("iframe").get_by_text("Good day Reader 0")).to_be_visible()
    ann.screenshot("plain-check")
    page.get_by_role("button", name=f"Send {GOOD} e-mails").click()
    expect(page.get_by_role("status")).to_contain_text("It waits")
    ann.screenshot("plain-waits")
    return page.url.removeprefix(ann.home)


def the_approval(bob: Browsing) -> None:
    page = bob.page
    page.get_by_role("link", name="Approvals 1").click()
    page.get_by_role("link", name="May").click()
    expect(page.get_by_text("Good day Reader 0")).to_be_visible()
    page.get_by_label("Remark").fill("as agreed")
    page.get_by_role("button", name=f"Approve: it goes to {GOOD} recipients").click()
    expect(page.get_by_text("Approved by bob")).to_be_visible()
    assert Approval.objects.get().decided_by == "bob"


def the_campaign(page: Page) -> None:
    """She stops it, and sends it to those who were not reached: all of them."""
    page.reload()
    expect(page.locator(".as-of noscript")).to_be_visible()
    expect(page.get_by_text("this page follows by itself")).to_be_hidden()
    decide(page, page.get_by_role("link", name="Stop"), "Stop", "a wrong date")
    expect(page.get_by_text("Reason: a wrong date")).to_be_visible()
    ended()
    decide(page, page.get_by_role("link", name="Send to those"), "Send to those who were not reached", "it was right")
    expect(page.get_by_text("Reason: it was right")).to_be_visible()
    assert Job.objects.get().status == "DISPATCHED"


def decide(page: Page, verb: Locator, button: str, reason: str) -> None:
    page.reload()
    verb.click()
    page.get_by_label("Why? It is kept with the decision.").fill(reason)
    page.get_by_role("button", name=button).click()


def the_operator(olga: Browsing) -> None:
    """Stopped on the jobs' list, and sent on from the job's page."""
    page, job = olga.page, Job.objects.get()
    page.get_by_role("link", name="Jobs", exact=True).first.click()
    olga.screenshot("plain-jobs")
    page.get_by_label(f"Select job {job.pk}").check()
    page.get_by_label("Action:").select_option(label="Stop")
    olga.screenshot("plain-jobs")
    page.get_by_role("button", name="Go", exact=True).click()
    page.get_by_label("Reason").fill("their server is away")
    page.get_by_role("button", name="Stop: 1 job").click()
    expect(page.get_by_text(f"job {job.pk} stopped: no new call starts")).to_be_visible()
    ended()
    page.get_by_role("link", name=str(job.pk), exact=True).click()
    page.get_by_role("button", name="Send the rest again").click()
    page.get_by_label("Reason").fill("it is back")
    page.get_by_role("button", name="Send the rest again: 1 job").click()
    expect(page.get_by_text(f"job {job.pk} sends {GOOD} messages")).to_be_visible()
    olga.screenshot("plain-job")


def the_recipient(page: Page) -> None:
    page.get_by_role("link", name="Find").click()
    page.get_by_role("searchbox").fill("r3@sandbox.example")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("heading", name="May")).to_be_visible()


def ended() -> None:
    """As the sweep does with a job that was stopped."""
    for job_id in finalizer.jobs_to_finalise():
        assert finalizer.finalise_job(job_id)
