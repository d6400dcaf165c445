"""The pages of campaign owners in a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from campaigns.engine.finishing import finalizer
from campaigns.models import Campaign, Job, Message
from tests import factories
from tests.browser.conftest import PASSWORD, Browsing, LoggedIn
from tests.campaigns.rows import refused

pytestmark = pytest.mark.django_db(transaction=True)
BOXES = """rows => rows.map((row) => ["th", ".progress", ".next", ".state"].map(
  (one) => row.querySelector(one).getBoundingClientRect().toJSON()))"""


def shown(page: Page) -> str:
    """What the live part shows, as a digest; how often it is asked for depends on how busy the machine is."""
    digest, _, _ = (page.locator("#live").get_attribute("hx-vals") or "").partition("-")
    return digest


def test_a_campaign_is_followed_and_stopped(window: Browsing) -> None:
    """Its page follows what the sender does without being loaded again, and fits a telephone."""
    vendor = factories.vendor(limits=[(500, 60)], casters=["large-only"])  # no worker reads its queue: no time is shown
    job = factories.campaign_with_job(400, of=factories.credential(vendor), by=factories.sponsor("Velma"))
    Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
    page = window.open(f"/campaigns/{job.campaign_id}/")
    expect(page.get_by_text("Nothing has been sent yet.")).to_be_visible()
    first = shown(page)
    page.wait_for_event("response", lambda answer: "/live/" in answer.url and answer.status == 204)
    assert shown(page) == first, "what has not changed is the same"
    ended = Message.objects.filter(id__gte=job.first_message, id__lt=job.first_message + 3)
    ended.update(dequeued_at="2026-11-01T00:00:00Z", **refused() | {"error_code": "550", "error_sub_type": "5.1.1"})
    Job.objects.filter(pk=job.pk).update(refused=3, accepted=260, delivered=200)
    expect(page.get_by_text("There is no mailbox at this address.")).to_be_visible()
    for width in (1280, 390):
        window.resize(width)
        window.fits("owners-campaign")
    page.locator("#verb-stop").click()
    expect(page.get_by_label("Why? It is kept with the decision.")).to_be_visible()
    window.fits("owners-stop")
    page.get_by_label("Why? It is kept with the decision.").fill("wrong date")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Reason: wrong date")).to_be_visible()
    page.get_by_text("There is no mailbox at this address.").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    window.fits("owners-recipients")
    assert finalizer.finalise_job(job.pk)  # as the sweep does
    window.open(f"/campaigns/{job.campaign_id}/")
    page.get_by_role("link", name="Send to those who were not reached").click()
    page.get_by_label("Why? It is kept with the decision.").fill("it was the right date")
    page.get_by_role("button", name="Send to those who were not reached").click()
    expect(page.get_by_text("Reason: it was the right date")).to_have_count(1)
    assert Job.objects.get().status in ("DISPATCHED", "P_QUEUED")


def test_a_session_ends_while_a_campaign_is_followed(logged_in: LoggedIn) -> None:
    """The page is frozen and says since when; who logs in again in a new tab finds it going on by itself."""
    vendor = factories.at_work(factories.vendor("amazingmail"))
    sponsor = factories.sponsor("Velma")
    job = factories.campaign_with_job(400, of=factories.credential(vendor), by=sponsor, status="DISPATCHED")
    ann = logged_in("ann", "campaign owner", of=sponsor, page=f"/campaigns/{job.campaign_id}/")
    page, bar = ann.page, ann.page.locator("#live .bar")
    expect(bar).to_have_attribute("title", "nothing sent yet of 400")
    page.context.clear_cookies(name="sessionid")
    layer = page.locator("#cut-off")
    expect(layer).to_contain_text("You are logged out")
    Job.objects.filter(pk=job.pk).update(accepted=100)  # not before: a poll may have been on its way
    expect(layer).to_contain_text(re.compile(r"of \d\d:\d\d:\d\d\."))
    expect(bar).to_have_attribute("title", "nothing sent yet of 400")
    for width in (390, 1280):
        ann.resize(width)
        ann.fits("owners-logged-out")
    with page.context.expect_page() as opened:
        layer.get_by_role("link", name="Log in again").click()
    again = opened.value
    again.get_by_label("User name").fill("ann")
    again.get_by_label("Password").fill(PASSWORD)
    again.get_by_role("button", name="Log in").click()
    expect(again.locator("#live .bar")).to_have_attribute("title", "100 sent of 400")
    again.close()
    ann.come_back()
    expect(layer).to_have_count(0)
    expect(bar).to_have_attribute("title", "100 sent of 400")
    noted = ("Failed to load resource", "Response Status Error Code", "htmx:")
    ann.console[:] = [one for one in ann.console if not one.startswith(noted)]  # the browser's, of polls that failed


def test_on_a_phone_a_campaign_is_a_name_a_bar_and_one_line(window: Browsing) -> None:
    """However long its name and its reason are; the pages stand in one row, which shows the page that is open."""
    login = factories.credential(factories.vendor(), paused=True, paused_reason="http 401 " * 20)
    for name in ("Spring", "Donaudampfschifffahrtsgesellschaftskapitänsmützenverordnung " * 2):
        job = factories.campaign_with_job(40, status="DISPATCHED", of=login)
        Campaign.objects.filter(pk=job.campaign_id).update(name=name)
    page = window.open("/")
    window.resize(390)
    boxes = page.locator("table.campaigns tbody tr").evaluate_all(BOXES)
    assert len(boxes) == 2
    for name, bar, line, state in boxes:
        assert abs(name["y"] + name["height"] / 2 - bar["y"] - bar["height"] / 2) < 8, "the bar stands beside the name"
        assert name["height"] < 40 and line["height"] < 40 and state["left"] >= line["right"], (
            "nothing lies over another"
        )
    window.open("/find/")
    links = page.locator("header nav a").evaluate_all("all => all.map((one) => one.getBoundingClientRect().toJSON())")
    assert len({round(one["bottom"]) for one in links}) == 1
    expect(page.locator("header nav [aria-current]")).to_be_in_viewport()
