"""What a review of the operators' desk found, once more in a real browser: each finding by its name there (B, M, m)."""

import re
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from playwright.sync_api import Page, expect

from campaigns.models import Job, Message
from tests import factories
from tests.browser.conftest import PATIENCE, Browsing, LoggedIn
from tests.campaigns.rows import accepted, family, in_doubt, logged, recount, refused
from vendors import health
from vendors.models import Credential, Minute, Vendor
from waiter.models import ParkedTask

pytestmark = pytest.mark.django_db(transaction=True)
JOBS, CAMPAIGNS, MESSAGES = ("/admin/campaigns/" + name for name in ("job/", "campaign/", "message/"))
ATTENTION = f"{MESSAGES}attention/"
LONG = "Appointmentreminderwithoutanyspaceinit" * 3
CUT = """(box) => [...box.querySelectorAll("tbody td, tbody th")].filter((cell) => {
  const [one, all] = [cell.getBoundingClientRect(), box.getBoundingClientRect()]
  return one.width && one.right > all.right + 1
}).map((cell) => cell.innerText)"""

LINES_OF_THE_UNIT = """(badge) => {
  const [text, range] = [badge.firstChild, document.createRange()];
  range.setStart(text, text.data.trimEnd().length - 3);
  range.setEnd(text, text.data.trimEnd().length);
  return range.getClientRects().length;
}"""


@pytest.fixture
def vendor() -> Vendor:
    return factories.at_work(factories.vendor("amazingmail", limits=[(5, 60)], casters=["large-only", "small-only"]))


@pytest.fixture
def login(vendor: Vendor) -> Credential:
    return factories.credential(vendor)


@pytest.fixture
def minute(login: Credential) -> Job:
    """A bad minute: of nine messages four have lost their answers, one is delivered, one was refused."""
    shapes = [accepted(), accepted("v-2"), refused(), *[in_doubt()] * 4]
    job = logged(9, shapes, of=login, by=factories.sponsor("Velma"))
    delivered = Message.objects.filter(id=job.first_message)
    delivered.update(report="delivered", report_at=timezone.now(), report_no=0)
    return recount(job)


def row(page: Page, name: str) -> str:
    return page.locator("table.vendors tr", has_text=name).inner_text()


class TestTruth:
    def test_a_number_of_seconds_is_not_parted_from_its_unit(self, window: Browsing, vendor: Vendor) -> None:
        """The note wraps, as its column is narrow; a lone "s" on its second line says nothing."""
        health.health_store(settings.REDIS_URL).note(vendor.pk, health.HealthPolicy.of(vendor), 0, 50)
        page = window.open("/admin/")
        note = page.locator("table.vendors small.alarm")
        expect(note).to_contain_text("503, retry after")
        parted = []
        for width in range(1040, 1180, 10):
            window.resize(width)
            parted += [width] if note.evaluate(LINES_OF_THE_UNIT) > 1 else []
        health.health_store(settings.REDIS_URL).reset(vendor.pk)
        assert parted == []

    def test_a_refused_login_is_told_and_no_end_with_it(self, window: Browsing, login: Credential) -> None:
        """B1, B2: the word of the vendor stands on every page, and nothing that only waits has an end."""
        job = factories.campaign_with_job(10, of=login, status="DISPATCHED")
        said = "http 401: login or account refused"
        Credential.objects.filter(pk=login.pk).update(paused=True, paused_reason=said)
        page = window.open("/admin/")
        expect(page.locator("table.vendors")).to_contain_text(said)
        assert "no end" in row(page, "amazingmail") and not re.search(r"\d\d:\d\d \(", row(page, "amazingmail"))
        page = window.open(JOBS)
        expect(page.locator("tr.group")).to_contain_text(f"{login.name} paused")
        assert "ends about" not in page.locator(f"#row-{job.pk} .next").inner_text()

    def test_what_was_only_accepted_is_not_delivered(self, window: Browsing, minute: Job) -> None:
        """M5: and no column is called as in the database."""
        page = window.open(f"{MESSAGES}?job={minute.pk}")
        heads = [text.strip() for text in page.locator("#result_list thead th").all_inner_texts()]
        assert not {"Error code", "Message id", "Fence", "Resend no"} & set(heads)
        delivered = page.locator("#result_list td.field-delivered").all_inner_texts()
        assert sum(text != "-" for text in delivered) == 1
        expect(page.locator("#result_list")).to_contain_text("nobody knows yet whether it was sent")

    def test_a_reader_in_new_york_sees_one_zone_that_is_named(self, window: Browsing, vendor: Vendor) -> None:
        """M10."""
        browser = window.page.context.browser
        assert browser
        away = browser.new_context(timezone_id="America/New_York", locale="en-GB")
        away.set_default_timeout(PATIENCE)
        away.add_cookies(window.page.context.cookies())  # type: ignore[arg-type]
        minute = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
        Minute.objects.create(vendor=vendor, at=minute, share=0, accepted=5)
        page = away.new_page()
        page.goto(f"{window.home}/admin/")
        expect(page.locator(".plot h2")).to_contain_text("(UTC)")
        expect(page.locator("#as-of")).to_contain_text(re.compile(r"As of \d\d:\d\d:\d\d UTC"))
        page.get_by_text("As a table").click()
        expect(page.locator(".plot details")).to_contain_text(f"{minute:%H:%M}")
        expect(page.locator("#footer")).to_contain_text("All times are in the zone UTC")
        away.close()


class TestLists:
    @pytest.mark.parametrize("width", [1440, 1024, 390])
    def test_nothing_of_a_row_is_cut_off(self, window: Browsing, login: Credential, minute: Job, width: int) -> None:
        """M2, M4, m11: neither the state of a campaign nor what a job waits for; no crosses (M9), no capitals (m9)."""
        long = factories.sponsor("Hooli and Sons of the Very Long Name, Incorporated")
        factories.job(factories.campaign(20_000, of=login, by=long, name=LONG, messages=False), "READY")
        window.resize(width)
        for path in (JOBS, CAMPAIGNS, "/admin/vendors/vendor/", "/admin/vendors/credential/"):
            page = window.open(path)
            expect(page.locator("#result_list tbody tr").first).to_be_visible()
            assert page.locator(".results:has(#result_list)").evaluate(CUT) == [], path
            assert page.locator("#result_list img").count() == 0, path
            assert page.locator("#result_list thead").evaluate("one => getComputedStyle(one).textTransform") == "none"
        page = window.open(CAMPAIGNS)
        expect(page.locator("#result_list")).to_contain_text("20,000")
        expect(page.locator(".badge").get_by_text("Needs attention")).to_be_visible()
        if width == 390:
            window.open(JOBS)
            heights = "[...document.querySelectorAll('tr.job')].map((one) => one.getBoundingClientRect().height)"
            assert max(page.evaluate(heights)) < 240

    def test_a_campaign_leads_to_its_jobs_and_the_tabs_keep_to_it(self, window: Browsing, minute: Job) -> None:
        """M3."""
        factories.campaign_with_job(3)
        page = window.open(f"{CAMPAIGNS}?q={minute.campaign_id}")
        page.get_by_role("link", name="jobs", exact=True).click()
        expect(page.locator("tr.job")).to_have_count(1)
        expect(page.locator("#job-tabs")).to_contain_text("All 1")
        page.locator("#job-tabs").get_by_role("link", name="Needs attention").click()
        assert f"campaign={minute.campaign_id}" in page.url

    def test_a_search_without_capitals_is_kept_by_tabs_and_saved(self, window: Browsing, login: Credential) -> None:
        """M12, m6."""
        factories.job(factories.campaign(3, of=login, name="Summer news"), "STOPPED")
        logged(2, [accepted(), refused()], of=login)
        page = window.open(JOBS)
        page.get_by_placeholder("Number or campaign").fill("summer")
        page.keyboard.press("Enter")
        expect(page.locator("tr.job")).to_have_count(1)
        page.locator("#job-tabs").get_by_role("link", name="Stopped").click()
        expect(page.locator("tr.job")).to_have_count(1)
        assert "q=summer" in page.url and "status=Stopped" in page.url
        page.get_by_text("Saved look-ups").click()
        page.get_by_label("Name for what is shown now").fill("Summer, stopped")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("link", name="Summer, stopped")).to_be_visible()
        page = window.open(JOBS)
        page.get_by_label("Status").select_option(label="Partly sent")
        expect(page.locator("tr.job")).to_have_count(1)
        page.locator("#job-tabs").get_by_role("link", name=re.compile("^Sent")).click()
        expect(page.locator("tr.job")).to_have_count(1)

    def test_days_the_wrong_way_round_are_told(self, window: Browsing, minute: Job) -> None:
        """m4."""
        days = {"from": "2026-11-05", "to": "2026-11-01"}
        for path, prefix in ((JOBS, ""), (CAMPAIGNS, "created_"), (ATTENTION, "")):
            page = window.open(f"{path}?{prefix}from={days['from']}&{prefix}to={days['to']}")
            expect(page.get_by_role("alert")).to_contain_text("the first day")

    def test_who_may_only_look_sees_whole_tables_and_a_friendly_no(self, logged_in: LoggedIn, minute: Job) -> None:
        """M13, m7, m8, m10: no empty column, the sidebar of his own, nothing that says "change"."""
        window = logged_in("vera", of=minute.sponsor, page="/admin/password_change/")
        seen = Permission.objects.filter(codename__in=["view_job", "view_vendor"])
        User.objects.get(username="vera").user_permissions.set(seen)
        parent = family(parent="P_ASSIGNING", remaining=40, children=["LOGGED"], each=20)[0]
        parent.sponsor.users.add(User.objects.get(username="vera"))
        Vendor.objects.filter(pk=minute.vendor_id).update(owner=minute.sponsor)  # of others he sees nothing
        page = window.open(JOBS)
        heads = page.locator("#result_list thead th").count()
        assert page.locator(f"#fold-{parent.pk} td").get_attribute("colspan") == str(heads)
        expect(page.locator("#nav-sidebar")).to_contain_text("Vendors")
        expect(page.locator("#nav-sidebar")).not_to_contain_text("Campaigns")
        page = window.open(f"/admin/vendors/vendor/{minute.vendor_id}/change/")
        expect(page.get_by_text("no", exact=True).first).to_be_visible()
        expect(page.locator("#forecast")).to_have_count(0)
        page = window.open("/admin/auth/user/")
        expect(page.get_by_role("link", name="To the operators' pages")).to_be_visible()
        expect(page.locator("main")).to_contain_text("vera")
        window.console.clear()  # 403 is meant


class TestDeciding:
    def test_from_the_card_to_why_in_two_clicks(self, window: Browsing, minute: Job) -> None:
        """M6, M7: the job's page says why, and leads to the messages of each reason."""
        page = window.open("/admin/")
        page.get_by_role("link", name="Failed today").click()
        page.locator(f"#job-{minute.pk}").click()
        expect(page.get_by_role("heading", name=f"Job {minute.pk}")).to_be_visible()
        expect(page.locator("body")).not_to_contain_text("First message")
        page.locator(".reasons").get_by_role("link", name="refused it").click()
        expect(page.locator("#result_list tbody tr")).to_have_count(1)

    def test_a_bad_minute_is_one_row_and_keeps_its_filters(self, window: Browsing, minute: Job) -> None:
        """M8, m4: its number stands in the head, the buttons stay in sight, the confirmation knows the vendor."""
        here = f"{ATTENTION}?vendor={minute.vendor_id}"
        page = window.open(here)
        expect(page.get_by_role("heading", name="Needs attention: 4")).to_be_visible()
        expect(page.locator("tr.job")).to_have_count(1)
        assert page.locator(".sticky-verbs").evaluate("one => getComputedStyle(one).position") == "sticky"
        page.locator(".pick").check()
        expect(page.locator("#held")).to_have_text("1 of 1 rows chosen")
        page.get_by_role("button", name="Give up").click()
        expect(page.get_by_text("amazingmail now:")).to_contain_text("not called yet")
        page.get_by_role("link", name="No, take me back").click()
        expect(page).to_have_url(window.home + here)
        page.locator(".pick").check()
        page.get_by_role("button", name="Give up").click()
        page.get_by_label("Reason").fill("they say no")
        page.get_by_role("button", name="Give up: 4 messages").click()
        expect(page.get_by_text("Nothing of this needs attention.")).to_be_visible()
        expect(page).to_have_url(window.home + here)

    def test_verbs_that_no_chosen_job_allows_are_not_offered(self, window: Browsing, login: Credential) -> None:
        """m5: and each row has a Stop of its own, from which one comes back to the list as it was."""
        ready = factories.campaign_with_job(3, of=login, status="READY")
        over = logged(2, [refused(), accepted()], of=login)
        page = window.open(f"{JOBS}?vendor={login.vendor_id}")
        page.get_by_label(f"Select job {over.pk}").check()
        allowed = "[...document.querySelectorAll('select[name=action] option:enabled')].map((one) => one.value)"
        assert page.evaluate(allowed) == ["", "retry"]
        page.get_by_label(f"Select job {ready.pk}").check()
        assert {"stop", "dispatch_now", "retry"} <= set(page.evaluate(allowed))
        assert page.locator(".sticky-actions").evaluate("one => getComputedStyle(one).position") == "sticky"
        expect(page.get_by_role("button", name=f"Stop job {over.pk}")).to_have_count(0)
        page.get_by_role("button", name=f"Stop job {ready.pk}").click()
        expect(page.locator(".numbers")).to_contain_text("1 job:")
        page.get_by_role("link", name="No, take me back").click()
        expect(page).to_have_url(f"{window.home}{JOBS}?vendor={login.vendor_id}")
        page.get_by_role("button", name=f"Stop job {ready.pk}").click()
        page.get_by_label("Reason").fill("the wrong year")
        page.get_by_role("button", name="Stop: 1 job").click()
        expect(page.locator(f"#row-{ready.pk}")).to_contain_text("Stopped")

    def test_a_decision_on_a_jobs_page_comes_back_to_it(self, window: Browsing, login: Credential) -> None:
        """m4."""
        job = factories.campaign_with_job(3, of=login, status="READY")
        here = f"{JOBS}{job.pk}/change/"
        page = window.open(here)
        page.get_by_role("button", name="Stop").click()
        page.get_by_role("link", name="No, take me back").click()
        expect(page).to_have_url(window.home + here)
        page.get_by_role("button", name="Stop").click()
        page.get_by_label("Reason").fill("the wrong year")
        page.get_by_role("button", name="Stop: 1 job").click()
        expect(page).to_have_url(window.home + here)

    def test_parts_are_patched_in_place(self, window: Browsing) -> None:
        """M4, m7: what is selected in them stays so; what nobody has is a dash; numbers stand under their head."""
        children = family(parent="P_ASSIGNING", remaining=40, children=["LOGGED", "DISPATCHED"], each=20)[1]
        page = window.open(f"{JOBS}{children[0].parent_id}/change/")
        parts = page.locator("table.parts")
        expect(parts.get_by_role("link", name=str(children[0].pk))).to_be_visible()
        expect(parts.get_by_text("–", exact=True).first).to_be_visible()
        assert parts.locator("th").first.evaluate("one => getComputedStyle(one).textAlign") == "right"
        parts.evaluate(
            "one => { window.kept = one; getSelection().selectAllChildren(one.querySelector('tbody tr a')) }"
        )
        Job.objects.filter(pk=children[1].pk).update(accepted=7)
        expect(parts).to_contain_text("7 of 20")
        assert page.evaluate("document.querySelector('table.parts') === window.kept")
        assert page.evaluate("String(getSelection())").strip() == str(children[0].pk)

    def test_a_vendors_form_begins_with_its_limits(self, window: Browsing, vendor: Vendor) -> None:
        """m10, M9: the time of the page is not covered; its state is in words; no document is quoted."""
        Vendor.objects.filter(pk=vendor.pk).update(settings={"url": "https://vendor.example/"})
        page = window.open(f"/admin/vendors/vendor/{vendor.pk}/change/")
        tops = [page.locator(one).bounding_box()["y"] for one in ("#limits-group", ".field-slug", "#id_settings")]  # type: ignore[index]
        assert tops == sorted(tops)
        box = page.locator("#as-of").bounding_box()
        assert box
        seen = "([x, y]) => document.elementFromPoint(x, y).closest('#as-of') !== null"
        assert page.evaluate(seen, [box["x"] + box["width"] - 5, box["y"] + 5])
        assert page.locator("#content-main img[src*=icon-no]").count() == 0
        expect(page.locator(".standing .badge")).to_have_text("the vendor has no credential")
        expect(page.locator("#vendor_form")).not_to_contain_text("(document 0")
        assert page.locator("#id_settings").input_value() == '{\n  "url": "https://vendor.example/"\n}'
        page = window.open(f"{CAMPAIGNS}{factories.campaign(1, name='spring news').pk}/change/")
        expect(page.get_by_role("heading", name="spring news", exact=True)).to_be_visible()
        assert page.locator("#content-main img").count() == 0

    def test_keys_choose_rows_of_every_list_and_their_number_is_true(self, window: Browsing) -> None:
        """m13, m5."""
        for number in range(2):
            ParkedTask.objects.create(
                due_at=timezone.now() + timedelta(days=2), task="campaigns.tasks.send", task_id=f"t{number}",
                queue="casters", message="{}", parked_at=timezone.now(),
            )  # fmt: skip
        page = window.open("/admin/waiter/parkedtask/")
        expect(page.get_by_text("0 of 2 selected")).to_be_hidden()
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(page.locator("#held")).to_have_text("1 of 2 rows chosen")
        expect(page.locator("tr.selected")).to_have_count(1)
