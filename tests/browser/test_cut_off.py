"""Live pages whose session has ended, or whose server is away: a layer says since when and what to do."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from campaigns.models import Job
from tests import factories
from tests.browser.conftest import Browsing
from tests.campaigns.rows import family, in_doubt, logged

pytestmark = pytest.mark.django_db(transaction=True)
OPERATIONS, JOBS = "/admin/", "/admin/campaigns/job/"
NOTED = ("Failed to load resource", "Response Status Error Code", "htmx:")
SINCE = re.compile(r"of \d\d:\d\d:\d\d UTC")


@pytest.fixture
def job() -> Iterator[Job]:
    vendor = factories.at_work(factories.vendor("amazingmail", limits=[(5, 60)]))
    return factories.campaign_with_job(1000, of=factories.credential(vendor), status="DISPATCHED", messages=False)


@pytest.fixture(autouse=True)
def expected(window: Browsing) -> Iterator[None]:
    """The browser itself notes each poll that fails; nothing else may stand there."""
    yield
    window.console[:] = [one for one in window.console if not one.startswith(NOTED)]


def whole(page: Page) -> None:
    """What was there is still there, and nothing else."""
    expect(page.locator("td, th").get_by_text("amazingmail").first).to_be_visible()
    expect(page.locator("input[name=username]")).to_have_count(0)


@pytest.mark.parametrize(("path", "width", "other"), [(OPERATIONS, 1280, 390), (JOBS, 390, 1280)])
def test_a_page_whose_session_has_ended_is_frozen_and_goes_on_after_a_log_in(
    window: Browsing, job: Job, path: str, width: int, other: int
) -> None:
    window.resize(width)
    page = window.open(path)
    expect(page.locator("td, th").get_by_text("amazingmail").first).to_be_visible()
    cookies = page.context.cookies()
    page.context.clear_cookies()
    layer = page.locator("#cut-off")
    expect(layer).to_contain_text("You are logged out")
    expect(layer).to_contain_text(SINCE)
    expect(layer.get_by_role("link", name="Log in again")).to_be_focused()
    whole(page)
    window.fits("logged-out")
    window.resize(other)
    window.fits("logged-out-and-resized")
    page.context.add_cookies([{key: one[key] for key in ("name", "value", "domain", "path")} for one in cookies])  # type: ignore[misc, literal-required]
    window.come_back()
    expect(layer).to_have_count(0)
    whole(page)
    assert page.evaluate("!document.getElementById('container').inert")


def test_nothing_is_asked_while_nobody_is_logged_in_and_one_thing_when_somebody_comes_back(
    window: Browsing, job: Job
) -> None:
    for _ in range(3):
        family(parent="P_ASSIGNED", remaining=0, children=["LOGGED", "DISPATCHED"])
    page, asked = window.page, list[str]()
    page.clock.install()
    window.open(JOBS)
    page.context.clear_cookies()
    page.clock.run_for(5_000)
    expect(page.locator("#cut-off")).to_contain_text("You are logged out")
    page.wait_for_load_state("networkidle")
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(30_000)
    assert asked == []
    with page.expect_response(lambda answer: answer.status == 401):
        window.come_back()
        page.clock.run_for(30_000)
    assert len(asked) == 1 and "/parts/" not in asked[0]
    page.goto("about:blank")  # what the browser notes of the last question has come by then


def test_a_late_answer_from_before_the_session_ended_does_not_take_the_layer_away(window: Browsing, job: Job) -> None:
    page, held = window.page, list[Route]()
    page.clock.install()
    page.route("**/operations/halt/", lambda route: held.append(route))
    with page.expect_request("**/operations/halt/"):
        window.open(JOBS)
    page.context.clear_cookies()
    page.clock.run_for(5_000)
    expect(page.locator("#cut-off")).to_contain_text("You are logged out")
    late = "new Promise((seen) => document.addEventListener('htmx:afterOnLoad', () => seen(true), { once: true }))"
    page.evaluate(f"() => {{ window.late = {late}; }}")
    held[0].fulfill(status=200, body="")
    assert page.evaluate("() => window.late")
    assert page.locator("#cut-off").count() == 1


def test_closed_folds_ask_nothing_while_the_server_is_away(window: Browsing, job: Job) -> None:
    family(parent="P_ASSIGNED", remaining=0, children=["LOGGED", "DISPATCHED"])
    page, asked = window.page, list[str]()
    page.clock.install()
    window.open(JOBS)
    page.context.set_offline(True)
    page.clock.run_for(5_000)
    expect(page.locator("#cut-off")).to_contain_text("The server does not answer")
    page.on("request", lambda request: asked.append(request.url))
    with page.expect_event("requestfailed"):
        page.clock.run_for(30_000)
    assert asked and not [url for url in asked if "/parts/" in url]
    page.goto("about:blank")  # what the browser notes of the last questions has come by then


def test_the_link_leads_to_the_log_in_and_back_to_the_page(window: Browsing, job: Job) -> None:
    page = window.open(f"{JOBS}?status=Dispatched")
    page.context.clear_cookies()
    link = page.get_by_role("link", name="Log in again")
    with page.context.expect_page() as opened:
        link.click()
    expect(opened.value.locator("input[name=username]")).to_be_visible()
    assert opened.value.url.endswith("/admin/login/?next=%2Fadmin%2Fcampaigns%2Fjob%2F%3Fstatus%3DDispatched")


def test_a_server_that_is_away_is_told_and_noticed_when_it_is_back(window: Browsing, job: Job) -> None:
    window.resize(390)
    page = window.open(OPERATIONS)
    card = page.locator(".card", has_text="Needs attention").locator("b")
    expect(card).to_have_text("0")
    page.context.set_offline(True)
    layer = page.locator("#cut-off")
    expect(layer).to_contain_text("The server does not answer")
    expect(layer).to_contain_text(SINCE)
    whole(page)
    window.fits("away")
    logged(1, [in_doubt()])
    page.context.set_offline(False)
    expect(layer).to_have_count(0)
    expect(card).to_have_text("1")


def test_a_store_that_is_away_is_told_with_what_the_server_says(window: Browsing, job: Job) -> None:
    page = window.open(JOBS)
    page.locator("tr.job a").first.focus()
    page.route("**/*", lambda route: route.fulfill(status=503, body="no database"))
    layer = page.locator("#cut-off")
    expect(layer).to_contain_text("The server cannot answer")
    expect(layer).to_contain_text("503")
    whole(page)
    page.unroute("**/*")
    expect(layer).to_have_count(0)
