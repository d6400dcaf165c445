"""A campaign owner makes a campaign from a list with three bad rows, by the browser alone; clicks are counted."""

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from campaigns.models import Campaign, Draft, Entitlement, Sponsor
from tests import factories
from tests.browser.conftest import PASSWORD, LoggedIn

pytestmark = pytest.mark.django_db(transaction=True)
GOOD = 200
ROWS = [f"r{n}@sandbox.example,Reader {n}" for n in range(GOOD)]
BAD = ["no address,Cy", "r0@sandbox.example,Again", "zed@sandbox.example,"]


def test_from_an_upload_with_three_bad_rows_to_a_campaign(window, tmp_path):
    sponsor = factories.sponsor("Acme")
    login = factories.credential(factories.vendor(casters=None))
    assert Entitlement.objects.filter(sponsor=sponsor, vendor=login.vendor).exists()
    assert Sponsor.objects.count() == 1
    file = tmp_path / "may.csv"
    file.write_text("\n".join(["email,first_name", *ROWS, *BAD]) + "\n")
    clicks: list[str] = []

    def click(button) -> None:
        clicks.append(button.inner_text())
        window.follow(button)

    page = window.open("/")
    click(page.get_by_role("link", name="New campaign").first)
    page.get_by_label("Name of the campaign").fill("May")
    page.get_by_label("Subject").fill("Hello")
    page.get_by_label("Text", exact=True).fill("Good day ")
    page.get_by_role("button", name="{{ recipient }}").click()  # a help, not needed
    expect(page.get_by_label("Text", exact=True)).to_have_value("Good day {{ recipient }}")
    page.get_by_label("Text", exact=True).fill("Good day {{ first_name }}")
    window.fits("wizard-message")
    click(page.get_by_role("button", name="Keep, and go on"))

    page.get_by_label("A spreadsheet").set_input_files(file)
    clicks.append("choose the file")
    expect(page.get_by_role("heading", name="Rows that cannot be sent")).to_be_visible()
    for width in (390, 1280):
        window.resize(width)
        window.fits("wizard-recipients")
    click(page.get_by_role("button", name="Leave these 3 rows out, and go on"))

    expect(page.get_by_role("button", name=f"Send {GOOD} e-mails")).to_be_enabled()
    frame = page.frame_locator("iframe")
    expect(frame.get_by_text("Good day Reader 0")).to_be_visible()
    for width in (390, 1280):
        window.resize(width)
        window.fits("wizard-check")
    draft = Draft.objects.get()
    for step, name in (("message", "fields"), ("preview", "preview")):
        window.open(reverse(f"draft_{step}", args=[draft.pk, *([1] if step == "preview" else [])]))
        for width in (390, 1280):
            window.resize(width)
            window.fits(f"wizard-{name}")
        if name == "preview":
            tops = page.locator(".pair h2").evaluate_all("all => all.map((one) => one.getBoundingClientRect().top)")
            assert len(tops) == 2 and tops[0] == tops[1], "neighbours begin at one height"
    window.open(reverse("draft_check", args=[draft.pk]))
    click(page.get_by_role("button", name=f"Send {GOOD} e-mails"))
    expect(page.get_by_role("status")).to_contain_text(f"stored, for {GOOD} recipients")
    assert Campaign.objects.get().size == GOOD
    assert len(clicks) <= 5, clicks


def test_what_was_typed_is_not_lost_with_the_session(logged_in: LoggedIn) -> None:
    """Neither of a new campaign nor of a draft, nor when somebody logs in in another window meanwhile."""
    sponsor = factories.sponsor("Acme")
    factories.credential(factories.vendor(casters=None))
    ann = logged_in("ann", "campaign owner", of=sponsor, page="/campaigns/new/")
    page, kept = ann.page, ann.page.locator("[data-kept]")
    page.get_by_label("Name of the campaign").fill("May")
    page.get_by_label("Subject").fill("Hello")
    page.get_by_label("Text", exact=True).fill("Good day\n\nAnn")
    expect(kept).to_be_hidden()
    page.context.clear_cookies(name="sessionid")
    page.get_by_role("button", name="Keep", exact=True).click()
    log_in(page)
    expect(kept).to_be_visible()
    expect(page.get_by_label("Text", exact=True)).to_have_value("Good day\n\nAnn")
    for width in (390, 1280):
        ann.resize(width)
        ann.fits("wizard-typed")
    page.get_by_role("button", name="Keep", exact=True).click()
    page.wait_for_url("**/drafts/*/message/")
    expect(kept).to_be_hidden()
    assert Draft.objects.get().text == "Good day\n\nAnn"

    page.get_by_label("Text", exact=True).fill("Good evening")
    page.context.clear_cookies(name="sessionid")
    again = page.context.new_page()
    again.goto(f"{ann.home}/login/")
    log_in(again)
    expect(again.get_by_role("link", name="New campaign").first).to_be_visible()
    again.close()
    page.get_by_role("button", name="Keep", exact=True).click()  # its form is of the earlier log-in
    expect(page.get_by_text("This form could not be accepted")).to_be_visible()
    page.go_back()
    expect(kept).to_be_visible()
    expect(page.get_by_label("Text", exact=True)).to_have_value("Good evening")
    page.get_by_role("button", name="Keep", exact=True).click()
    expect(page.locator("[data-kept]:visible")).to_have_count(0)
    page.reload()
    expect(page.get_by_label("Text", exact=True)).to_have_value("Good evening")
    assert Draft.objects.get().text == "Good evening"
    ann.console[:] = [one for one in ann.console if "403" not in one]  # the browser's own word on the refused form


def log_in(page: Page) -> None:
    page.get_by_label("User name").fill("ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
