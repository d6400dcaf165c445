"""The operations page and a vendor's page in a real browser."""

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.utils import timezone
from playwright.sync_api import expect

from campaigns.models import Store
from tests import factories
from tests.browser.conftest import WIDTHS, Browsing
from tests.campaigns.rows import in_doubt, logged
from vendors.models import Credential, Minute, RateLimit, Vendor

pytestmark = pytest.mark.django_db(transaction=True)
PRESSED_AS_SOON_AS_IT_IS_THERE = """document.addEventListener("htmx:afterSwap", () => setTimeout(() => {
  const button = document.querySelector("#audit button");
  if (button && !window.pressed) { window.pressed = true; button.click(); }
}))"""
CUT_OFF = """[...document.querySelectorAll(".lines summary .badge")].filter((badge) =>
  badge.scrollWidth > badge.clientWidth || badge.getBoundingClientRect().right >
  badge.closest("summary").getBoundingClientRect().right).map((badge) => badge.textContent)"""


@pytest.fixture
def evening() -> Vendor:
    vendor = factories.vendor("amazingmail", limits=[(5, 60)], casters=["large-only", "small-only"])
    other = factories.vendor("a-vendor-with-quite-a-long-name-for-a-slug", limits=[(200, 1), (50_000, 86_400)])
    login = factories.credential(factories.at_work(vendor))
    caster = vendor.mailcasters.first()
    factories.campaign_with_job(1000, of=login, status="DISPATCHED", messages=False)
    factories.campaign_with_job(30, of=login, status="SENDING", mailcaster=caster, accepted=12)
    logged(2, [in_doubt()])
    minute = timezone.now().replace(second=0, microsecond=0)
    for ago in range(1, 50):
        at = minute - timedelta(minutes=ago)
        Minute.objects.create(vendor=vendor, at=at, share=0, accepted=5 - ago % 2, refused=ago % 9 == 0)
        Minute.objects.create(vendor=other, at=at, share=0, accepted=20 + ago % 13)
    return vendor


@WIDTHS
def test_the_operations_page_fits_its_window(window: Browsing, evening: Vendor, width: int) -> None:
    window.resize(width)
    page = window.open("/admin/")
    expect(page.locator(".canvas figure canvas")).to_have_count(2)
    expect(page.get_by_text("no worker reads")).to_be_visible()
    expect(page.get_by_role("cell", name="(3 h").first).to_be_visible()
    page.get_by_role("button", name="Ask all rows now").click()
    expect(page.locator("#audit .badge").first).to_be_visible()
    window.fits("operations")


def test_what_has_just_come_knows_its_scripts(window: Browsing, evening: Vendor) -> None:
    """Not some milliseconds later: its form would be sent as one without scripts, and lead away."""
    window.page.add_init_script(PRESSED_AS_SOON_AS_IT_IS_THERE)
    page = window.open("/admin/")
    expect(page.locator("#audit .badge").first).to_be_visible()
    expect(page).to_have_url(f"{window.home}/admin/")


def test_each_vendor_has_a_small_plot_with_its_limit_as_a_label(window: Browsing, evening: Vendor) -> None:
    page = window.open("/admin/")
    own, other = page.locator(".canvas figure").nth(0), page.locator(".canvas figure").nth(1)
    labels = {one.locator("b").inner_text(): one.locator("small") for one in (own, other)}
    expect(labels["amazingmail"]).to_have_text("most 6 a minute, limit 5 a minute")
    expect(labels["a-vendor-with-quite-a-long-name-for-a-slug"]).to_have_text("most 32 a minute, limit 34 a minute")
    page.get_by_role("button", name="Deutsch").click()
    expect(page.locator(".canvas figcaption small").first).to_contain_text("je Minute")


@WIDTHS
def test_the_condition_of_a_vendor_is_whole_beside_its_way_on(window: Browsing, evening: Vendor, width: int) -> None:
    """In German, whose words are longer."""
    Credential.objects.filter(vendor=evening).update(paused=True, paused_reason="http 401")
    window.resize(width)
    page = window.open("/admin/")
    page.get_by_role("button", name="Deutsch").click()
    expect(page.locator(".lines .state > a")).to_have_count(1)
    assert page.evaluate(CUT_OFF) == []


def test_the_numbers_follow_without_a_reload(window: Browsing, evening: Vendor) -> None:
    page = window.open("/admin/")
    card = page.locator(".card", has_text="Needs attention").locator("b")
    expect(card).to_have_text("1")
    logged(1, [in_doubt()])
    expect(card).to_have_text("2")


@WIDTHS
def test_a_limit_is_edited_live_with_its_forecast(window: Browsing, evening: Vendor, width: int) -> None:
    window.resize(width)
    page = window.open(f"/admin/vendors/vendor/{evening.pk}/change/")
    expect(page.locator(".cells i")).to_have_count(5)
    units = page.locator("#id_limits-0-units")
    units.fill("10")
    expect(page.locator("#forecast")).to_contain_text("waiting:")
    expect(page.locator("#forecast")).to_contain_text("(1 h")
    window.fits("vendor")
    assert RateLimit.objects.get(vendor=evening).units == 5


def test_a_saved_limit_is_in_force_and_on_record(window: Browsing, evening: Vendor) -> None:
    Vendor.objects.filter(pk=evening.pk).update(settings={"url": "https://vendor.example/"})
    page = window.open(f"/admin/vendors/vendor/{evening.pk}/change/")
    page.locator("#id_limits-0-units").fill("8")
    page.locator("input[name=_continue]").click()
    expect(page.get_by_text("units 5 → 8").first).to_be_visible()
    assert RateLimit.objects.get(vendor=evening).units == 8
    page.get_by_role("link", name="Pause…").click()
    page.get_by_label("Reason").fill("they are moving house")
    page.get_by_role("button", name="Pause amazingmail").click()
    expect(page.get_by_text("paused. Reason: they are moving house")).to_be_visible()
    expect(page.get_by_role("link", name="Resume…")).to_be_visible()
    assert LogEntry.objects.count() == 2


@WIDTHS
def test_a_store_that_was_taken_over_is_seen_at_once_and_recovered_on_its_page(
    window: Browsing, evening: Vendor, width: int
) -> None:
    window.resize(width)
    page = window.open("/admin/")
    expect(page.locator("#pulse")).to_be_visible()
    Store.objects.update(timeline="000000AA", noticed_at=timezone.now())
    expect(page.locator("#halt")).to_contain_text("the store was taken over")  # without a reload
    row = page.locator("table.vendors tr", has_text="amazingmail")
    expect(row.locator(".ends")).to_have_text("no end")
    expect(row.locator(".badge.bad")).to_have_text("halted")
    row.locator("summary").click()
    expect(row.get_by_text("halted: the store was taken over")).to_be_visible()
    window.fits("taken-over")
    page = window.open("/admin/campaigns/job/")
    expect(page.get_by_text("First seen on")).to_be_visible()
    window.fits("taken-over-jobs")
    page.get_by_role("link", name="See what may be missing").click()
    expect(page.get_by_text("The record of calls is not complete")).to_be_visible()
    window.fits("recover")
    page.get_by_label("Reason").fill("the primary's disk died")
    page.get_by_role("button", name="in doubt and call again").click()
    expect(page.get_by_text("Reason: the primary's disk died")).to_be_visible()
    window.fits("recovered")
    window.open("/admin/campaigns/job/")
    expect(page.get_by_text("Nothing is called")).to_have_count(0)
