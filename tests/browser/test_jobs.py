"""The operators' list of jobs in a real browser."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Route, expect

from campaigns.models import Job, Resolution
from tests import factories
from tests.browser.conftest import WIDTHS, Browsing
from tests.browser.test_every_page import SEND
from tests.campaigns.rows import accepted, family, in_doubt, logged, refused

pytestmark = pytest.mark.django_db(transaction=True)
SHOWN_COLUMNS = """() => {
  const table = document.querySelector("table.jobs")
  const places = (row) => [...row.children].flatMap((one, place) => (one.offsetWidth > 1 ? [place] : []))
  return [table.tHead.rows[0], table.querySelector("tbody tr.job")].map(places)
}"""
JOBS = "/admin/campaigns/job/"
# A dialog that was closed keeps the focus until the browser draws the next frame.
CLOSED_AND_J_AT_ONCE = """
document.getElementById("keys").close();
document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
"""


@pytest.fixture
def night() -> None:
    """An evening as operators see it: all states, long names, a parent in parts."""
    vendor = factories.vendor("amazingmail", limits=[(5, 60)], casters=["large-only"])
    vendor.refresh_from_db()
    login = factories.credential(vendor)
    velma, hooli = factories.sponsor("Velma"), factories.sponsor("Hooli and Sons of the Very Long Name, Incorporated")
    for status in ("RENDERED", "DISPATCHED", "SENDING", "STOPPED"):
        factories.campaign_with_job(30, of=login, by=velma, status=status)
    logged(8, [accepted()] * 5 + [refused(), refused(), in_doubt()])
    long = factories.campaign(1000, of=login, by=hooli, name="Appointmentreminderwithoutanyspaceinit" * 3)
    factories.job(long, "READY")
    factories.campaign_with_job(9, of=login, by=hooli, created_at=timezone.now() - timedelta(days=30))
    family(parent="P_ASSIGNING", remaining=40, children=["LOGGED", "SENDING", "DISPATCHED"], each=20)


class TestLookingUp:
    @WIDTHS
    def test_the_list_fits_its_window(self, window: Browsing, night: None, width: int) -> None:
        window.resize(width)
        page = window.open(JOBS)
        expect(page.locator("tr.job")).to_have_count(7)
        page.get_by_text("3 parts of job").click()
        expect(page.locator(".cut a")).to_have_count(3)
        window.fits("jobs")

    def test_the_three_look_ups_with_a_custom_range(self, window: Browsing, night: None) -> None:
        page = window.open(JOBS)
        page.get_by_label("Sponsor").select_option(label="Velma")
        expect(page.locator("tr.job")).to_have_count(4)
        page.get_by_role("link", name="Sending").click()
        expect(page.locator("tr.job")).to_have_count(1)
        page.get_by_role("link", name="Reset").click()
        expect(page.locator("tr.job")).to_have_count(7)
        page.locator("select[name=date]").select_option(label="Custom range")
        old = timezone.localdate() - timedelta(days=30)
        page.get_by_label("From").fill(str(old - timedelta(days=1)))
        page.get_by_label("To", exact=True).fill(str(old + timedelta(days=1)))
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tr.job")).to_have_count(1)
        expect(page.locator("select[name=date]")).to_have_value("range")
        window.screenshot("jobs-custom-range")

    def test_a_range_that_was_chosen_before_the_script_has_come_can_be_typed(self, window: Browsing) -> None:
        page, held = window.page, list[Route]()
        page.route("**/mailhub/admin.js", lambda route: held.append(route))
        with page.expect_request("**/mailhub/admin.js"):
            page.goto(window.home + JOBS, wait_until="commit")
        page.locator("select[name=date]").select_option(label="Custom range")
        expect(page.get_by_label("From")).to_be_hidden()
        held[0].continue_()
        page.get_by_label("From").fill("2026-11-01")

    def test_nothing_found_says_so(self, window: Browsing, night: None) -> None:
        page = window.open(f"{JOBS}?status=RECOVERING&date=yesterday")
        expect(page.get_by_text("No job matches in this period.")).to_be_visible()
        window.screenshot("jobs-empty")

    def test_the_list_follows_without_a_reload_and_keeps_what_is_chosen(self, window: Browsing, night: None) -> None:
        page = window.open(f"{JOBS}?status=RENDERED")
        job = Job.objects.get(status="RENDERED")
        expect(page.locator("tr.job")).to_contain_text("Waiting")
        Job.objects.filter(pk=job.pk).update(waits_for="", accepted=29)
        expect(page.locator("tr.job")).to_contain_text("29 of 30")
        page.get_by_label(f"Select job {job.pk}").check()
        expect(page.locator("tr.job.selected")).to_have_count(1)


class TestQuietPolling:
    def test_a_poll_disturbs_nobody(self, window: Browsing, night: None) -> None:
        """Scroll, focus and selected text stay while a row changes; where nothing changes nothing is sent."""
        window.resize(820)
        page = window.open(JOBS)
        link, box = page.locator("tr.job a").last, page.locator("#job-rows")
        link.focus()
        page.evaluate("getSelection().selectAllChildren(document.querySelector('td.name span'))")
        selected = page.evaluate("String(getSelection())")
        page.add_style_tag(content="#result_list { min-width: 60rem }")
        box.evaluate("one => { one.scrollLeft = 90; window.scrollTo(0, 150); window.table = one.firstElementChild; }")
        places = "[document.querySelector('#job-rows').scrollLeft, window.scrollY]"
        before = page.evaluate(places)
        assert before[0] > 0
        with page.expect_response(lambda answer: answer.status == 304 and "/job/" in answer.url):
            pass
        job = Job.objects.get(status="STOPPED")
        Job.objects.filter(pk=job.pk).update(accepted=7)
        expect(page.locator(f"#row-{job.pk}")).to_contain_text("7 of 30")
        assert page.evaluate(places) == before
        assert selected and page.evaluate("String(getSelection())") == selected
        expect(link).to_be_focused()
        assert page.evaluate("[rest(0), rest(64), rest(10000)]") == [1000, 1000, 24000]

    def test_the_list_is_worked_by_keys_and_says_when_it_is_held(self, window: Browsing, night: None) -> None:
        page = window.open(JOBS)
        keys = page.keyboard
        keys.press("?")
        expect(page.get_by_role("heading", name="Keys")).to_be_visible()
        window.fits("keys")
        keys.press("Escape")
        expect(page.locator("#keys")).to_be_hidden()  # until then keys are the dialog's
        keys.press("?")
        page.evaluate(CLOSED_AND_J_AT_ONCE)
        for row in range(2):
            expect(page.locator("tr.job a").nth(row)).to_be_focused()
            keys.press("x")
            expect(page.locator("tr.job .pick").nth(row)).to_be_checked()
            keys.press("j")
        expect(page.locator("#held")).to_have_text("2 of 7 chosen; updates are held meanwhile.")
        keys.press("k")
        expect(page.locator("tr.job a").nth(1)).to_be_focused()
        keys.press("/")
        expect(page.get_by_placeholder("Number or campaign")).to_be_focused()
        keys.type("j?x")
        expect(page.get_by_placeholder("Number or campaign")).to_have_value("j?x")


class TestDeciding:
    def test_a_job_is_stopped_by_keyboard_and_sent_again(self, window: Browsing, night: None) -> None:
        job = Job.objects.get(status="SENDING", parent=None)
        page = window.open(JOBS)
        window.choose("stop", page.get_by_label("Action:"))
        window.tab_to(page.get_by_label(f"Select job {job.pk}"))
        page.keyboard.press("Space")
        window.screenshot("jobs-keyboard")
        window.tab_to(page.get_by_role("button", name="Go"), back=True)
        page.keyboard.press("Enter")
        expect(page.locator(".numbers")).to_contain_text("1 job: 30 messages will not be called any more.")
        window.screenshot("stop-confirm")
        window.tab_to(page.get_by_label("Reason"))
        page.keyboard.type("the letter names the wrong year")
        window.tab_to(page.get_by_role("button", name="Stop: 1 job"))
        window.screenshot("stop-confirm-keyboard")
        page.keyboard.press("Enter")
        expect(page.get_by_text(f"job {job.pk} stopped: no new call starts")).to_be_visible()
        assert Job.objects.get(pk=job.pk).status == "STOPPED"

    def test_a_retry_splits_what_was_chosen_in_numbers(self, window: Browsing, night: None) -> None:
        job = Job.objects.get(status="LOGGED", parent=None)
        page = window.open(f"{JOBS}{job.pk}/change/")
        page.get_by_role("button", name="Send the rest again").click()
        numbers = page.locator(".numbers")
        expect(numbers).to_contain_text("2 refused and 0 never called messages will be sent. 5 were already sent")
        expect(numbers).to_contain_text("1 needs attention: the vendor may have it")
        window.screenshot("retry-confirm")
        page.get_by_label("Reason").fill("their server is back")
        page.get_by_role("button", name="Send the rest again: 1 job").click()
        expect(page.get_by_text(f"job {job.pk} sends 2 messages")).to_be_visible()

    def test_the_doubts_of_a_job_are_settled_together(self, window: Browsing, night: None) -> None:
        job = Job.objects.get(status="LOGGED", parent=None)
        page = window.open(f"{JOBS}{job.pk}/change/")
        window.fits("job")
        page.get_by_role("button", name="Send again those in doubt").click()
        numbers = page.locator(".numbers")
        expect(numbers).to_contain_text("1 message in doubt will be sent again.")
        expect(numbers).to_contain_text("5 were already sent and are left alone, as are 2 refused.")
        window.fits("resend-confirm")
        page.get_by_label("Reason").fill("they have never seen it")
        page.get_by_role("button", name="Send again those in doubt: 1 job").click()
        expect(page.get_by_text(f"job {job.pk}: 1 message in doubt settled as send again")).to_be_visible()
        assert Resolution.objects.get().decided_by == "ann"

    @pytest.mark.parametrize("path", ["/admin/campaigns/message/attention/", "/admin/campaigns/job/?date=any"])
    def test_at_no_width_stands_a_cell_under_the_heading_of_another(
        self, window: Browsing, night: None, path: str
    ) -> None:
        for width in (700, 768, 1023, 1280):
            window.resize(width)
            heads, cells = window.open(path).evaluate(SHOWN_COLUMNS)
            assert heads == cells and len(heads) > 3, width

    def test_what_ends_a_job_has_the_colour_of_danger(self, window: Browsing, night: None) -> None:
        job, colours = Job.objects.get(status="DISPATCHED", campaign__size=30), {}
        for action in ("pause", "stop"):
            page = window.open(JOBS)
            with page.expect_navigation():
                page.evaluate(SEND, [JOBS, {"action": action, "_selected_action": job.pk}])
            colours[action] = page.locator("[name=confirmed]").evaluate("one => getComputedStyle(one).backgroundColor")
        assert colours["stop"] == "rgb(186, 33, 33)" != colours["pause"]

    @WIDTHS
    def test_a_doubt_is_settled_after_a_warning(self, window: Browsing, night: None, width: int) -> None:
        window.resize(width)
        page = window.open("/admin/campaigns/message/attention/")
        window.fits("attention")
        page.locator(".pick").first.check()
        page.get_by_role("button", name="It was sent").click()
        expect(page.locator(".numbers")).to_contain_text("are never sent again")
        page.get_by_label("Reason").fill("it is in their web interface")
        page.get_by_role("button", name="It was sent: 1 message").click()
        expect(page.get_by_text("Nothing needs attention.")).to_be_visible()
        assert Resolution.objects.get().decided_by == "ann"


def test_a_person_logs_in_through_the_form(window: Browsing) -> None:
    User.objects.create_superuser("eve", password="a long pass phrase")
    window.page.context.clear_cookies()
    page = window.open("/admin/")
    page.get_by_label("Username").fill("eve")
    page.get_by_label("Password").fill("a long pass phrase")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Operations")).to_be_visible()
    window.screenshot("operations-empty")
