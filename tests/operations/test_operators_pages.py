"""The look of the operators' lists and pages: people's words, badges, searches that are kept, a page of a job."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.utils import timezone

from campaigns.models import Campaign, Job, ReportKind
from campaigns.reporting import campaign_names
from mailhub.models import SavedLook
from tests import factories
from tests.campaigns.rows import accepted, expired, family, in_doubt, logged, messages, refused

pytestmark = pytest.mark.django_db
JOBS, CAMPAIGNS, MESSAGES = (f"/admin/campaigns/{name}/" for name in ("job", "campaign", "message"))
TICKS = ("icon-no.svg", "icon-yes.svg")


class TestAJob:
    def test_its_page_says_how_far_it_is_and_leads_to_its_messages(self, admin_client: Client) -> None:
        job = logged(6, [accepted(), accepted() | _reported(ReportKind.DELIVERED), refused(), expired(), in_doubt()])
        page = admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        assert f"<h1>Job {job.pk}</h1>" in page and 'class="bar"' in page and "Finished" in page
        assert 'class="messagelist"' not in page
        assert "First message" not in page and "Next message" not in page, "no raw form"
        for state in ("Sent", "Delivered", "Failed", "Expired", "Needs+attention"):
            link = f"{MESSAGES}?job={job.pk}&amp;state={state}"
            assert link in page, state
            found = admin_client.get(link.replace("&amp;", "&")).context["cl"].result_list
            assert len(found) == 1, state
        assert f"/admin/campaigns/message/attention/?job={job.pk}" in page
        assert f"{JOBS}{job.pk}/history/" in page

    def test_its_bar_is_red_where_letters_came_back(self, admin_client: Client) -> None:
        back = accepted() | _reported(ReportKind.BOUNCED)
        job = logged(6, [accepted(), accepted(), accepted(), back, back, refused()])
        page = admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        assert '<i class="good" style="flex:3 0 0"></i><i class="bad" style="flex:3 0 0"></i>' in page
        assert "5 sent, 1 failed of 6" in page and "2 bounced" in page

    def test_its_bar_tells_what_was_delivered_from_what_was_sent(self, admin_client: Client) -> None:
        got = accepted() | _reported(ReportKind.DELIVERED)
        job = logged(6, [got, got, accepted(), accepted(), accepted(), refused()])
        page = admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        bar = ("delivered", 2), ("good", 3), ("bad", 1)
        assert "".join(f'<i class="{look}" style="flex:{count} 0 0"></i>' for look, count in bar) in page
        assert "5 sent, 1 failed of 6" in page and "2 delivered" in page

    def test_each_reason_of_its_failures_leads_to_its_messages(self, admin_client: Client) -> None:
        full = refused() | {"error_code": "552", "error_sub_type": "5.2.2 mailbox full"}
        job, _other = logged(4, [accepted(), full, full, expired()]), logged(1, [full])
        page = admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        assert "<b>2</b> The mailbox is full." in page
        link = f"{MESSAGES}?job={job.pk}&amp;reason=full"
        assert link in page
        found = admin_client.get(link.replace("&amp;", "&")).context["cl"].result_list
        assert sorted(row.pk for row in found) == [job.first_message + 1, job.first_message + 2]
        assert "The mailbox is full." in admin_client.get(f"{MESSAGES}{found[0].pk}/change/").content.decode()

    def test_it_follows_by_itself(self, admin_client: Client) -> None:
        job = factories.campaign_with_job(30, status="DISPATCHED", messages=False)
        live = f"{JOBS}{job.pk}/live/"
        assert live in admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        first = admin_client.get(live, headers={"HX-Request": "true"})
        known = {"HX-Request": "true", "If-None-Match": first["ETag"]}
        assert admin_client.get(live, headers=known).status_code == 304
        Job.objects.filter(pk=job.pk).update(accepted=7)
        assert "7 of 30" in admin_client.get(live, headers=known).content.decode()

    def test_a_parent_shows_its_parts_and_a_part_its_parent(self, admin_client: Client) -> None:
        parent, children = family(parent="P_ASSIGNING", remaining=10, children=["LOGGED", "SENDING"])
        assert f"{JOBS}{parent.pk}/parts/" in admin_client.get(f"{JOBS}{parent.pk}/change/").content.decode()
        assert f"job {parent.pk}</a>" in admin_client.get(f"{JOBS}{children[0].pk}/change/").content.decode()

    def test_of_another_sponsor_there_is_none(self, client: Client) -> None:
        job = factories.campaign_with_job(3)
        user = User.objects.create(username="vera", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=["view_job", "view_message"]))
        client.force_login(user)
        assert client.get(f"{JOBS}{job.pk}/live/").status_code == 404
        assert client.get(MESSAGES, {"job": job.pk}, follow=True).context["cl"].result_count == 0


class TestAMessage:
    def test_what_was_only_answered_is_not_delivered(self, admin_client: Client) -> None:
        job = logged(2, [accepted(), accepted() | _reported(ReportKind.DELIVERED)])
        answered, delivered = messages(job)
        page = admin_client.get(MESSAGES, {"job": job.pk}).content.decode()
        assert ">Answered<" in page.replace("<span>Answered</span>", ">Answered<") and "Delivered at" not in page
        shown = [admin_client.get(f"{MESSAGES}{row.pk}/change/").content.decode() for row in (answered, delivered)]
        assert ["Delivered:" in one for one in shown] == [False, True] and all("Answered:" in one for one in shown)

    def test_its_page_has_no_columns_of_the_database(self, admin_client: Client) -> None:
        job = logged(1, [refused()])
        page = admin_client.get(f"{MESSAGES}{job.first_message}/change/").content.decode()
        for name in ("Resend no", "Dequeued at", "Settle at", "Report no", "Delivered at", "Error sub type"):
            assert name not in page
        assert "Answered:" in page and "Vendor&#x27;s code:" in page


def _reported(kind: str) -> dict[str, Any]:
    return {"report": kind, "report_at": timezone.now(), "report_no": 0}


class TestLists:
    @pytest.mark.parametrize(
        "path",
        ["campaigns/campaign", "campaigns/suppression", "campaigns/identity", "vendors/vendor", "vendors/credential"],
    )
    def test_nothing_is_told_by_a_cross_or_a_tick_or_counted_whole(self, admin_client: Client, path: str) -> None:
        login = factories.credential(factories.at_work(factories.vendor("amazingmail", limits=[(200_000, 86_400)])))
        factories.campaign_with_job(20_000, of=login, messages=False)
        page = admin_client.get(f"/admin/{path}/").content.decode()
        assert not any(icon in page for icon in TICKS)
        assert "Show counts" not in page and " a.m." not in page and " p.m." not in page
        assert not any(script in page for script in ("jquery", "xregexp"))
        if path == "campaigns/campaign":
            assert "20,000" in page and 'class="badge' in page
        if path == "vendors/vendor":
            assert "200,000 per day" in page and ">not called yet</span>" in page

    def test_a_paused_vendor_is_called_paused(self, admin_client: Client) -> None:
        vendor = factories.credential(factories.vendor("old-print")).vendor
        type(vendor).objects.filter(pk=vendor.pk).update(paused=True, paused_reason="invoice 4711")
        assert (
            '<span class="badge bad">shut</span> <span>vendor paused: invoice 4711</span>'
            in admin_client.get("/admin/vendors/vendor/").content.decode()
        )

    def test_the_sidebar_has_what_people_work_with(self, admin_client: Client, client: Client) -> None:
        page = admin_client.get(JOBS).content.decode()
        sidebar = page.split('id="nav-sidebar"', 1)[1].split("</nav>", 1)[0]
        assert "Campaigns" in sidebar and "Vendors" in sidebar and 'aria-current="page"' in sidebar
        assert not any(word in sidebar for word in ("Claims", "Usages", "Dispatch runs", "Rate limits", "Periodic"))
        user = User.objects.create(username="vera", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename="view_job"))
        client.force_login(user)
        sidebar = client.get(JOBS).content.decode().split('id="nav-sidebar"', 1)[1].split("</nav>", 1)[0]
        assert "Jobs" in sidebar and "Vendors" not in sidebar and "Needs attention" not in sidebar


def test_who_thinks_better_of_it_comes_back_to_the_list_as_it_was(admin_client: Client) -> None:
    job = factories.campaign_with_job(3, status="RENDERED")
    address = f"{JOBS}?status=Rendered&date=7"
    page = admin_client.post(address, {"action": "stop", "_selected_action": [job.pk]}).content.decode()
    assert f'href="{address.replace("&", "&amp;")}" class="button cancel-link"' in page


def test_a_vendor_without_a_login_that_it_takes_does_not_work(admin_client: Client) -> None:
    vendor = factories.vendor("print")
    shut = {"paused": True, "paused_reason": "http 401"}
    factories.credential(vendor, "one", **shut)
    other = factories.credential(vendor, "two")

    def state() -> str:
        return admin_client.get("/admin/vendors/vendor/").content.decode()

    assert ">not called yet<" in state() and "http 401" not in state()
    factories.condition(other)
    assert ">works<" in state() and "http 401" not in state()
    type(other).objects.filter(pk=other.pk).update(**shut)
    assert ">works<" not in state() and ">shut</span> <span>credential two paused: http 401</span>" in state()


class TestSavedLooks:
    def test_a_look_is_saved_shown_and_forgotten(self, admin_client: Client) -> None:
        address = f"{JOBS}?status=Failed&date=7"
        answer = admin_client.post("/admin/looks/", {"name": "My failures", "address": address}, follow=True)
        assert answer.redirect_chain == [(address, 302)] and "Saved as “My failures”" in answer.content.decode()
        assert f'href="{address.replace("&", "&amp;")}"' in admin_client.get(JOBS).content.decode()
        assert "My failures" not in admin_client.get(CAMPAIGNS).content.decode()
        admin_client.post("/admin/looks/", {"name": "My failures", "address": f"{JOBS}?status=Sending"})
        look = SavedLook.objects.get()
        assert look.address == f"{JOBS}?status=Sending", "the same name stands for the new one"
        admin_client.post(f"/admin/looks/{look.pk}/forget/")
        assert not SavedLook.objects.exists()

    @pytest.mark.parametrize("address", ["https://evil.example/?q=1", "//evil.example/admin/?q", "/logout/?q=1", ""])
    def test_it_leads_nowhere_else(self, admin_client: Client, address: str) -> None:
        answer = admin_client.post("/admin/looks/", {"name": "x", "address": address})
        assert answer["Location"] == "/admin/" and not SavedLook.objects.exists()

    def test_it_is_nobody_elses(self, admin_client: Client, client: Client) -> None:
        admin_client.post("/admin/looks/", {"name": "mine", "address": f"{JOBS}?q=1"})
        vera = User.objects.create(username="vera", is_staff=True)
        vera.user_permissions.set(Permission.objects.filter(codename="view_job"))
        client.force_login(vera)
        assert "mine" not in client.get(JOBS).content.decode()
        assert client.post(f"/admin/looks/{SavedLook.objects.get().pk}/forget/").status_code == 404
        assert client.get("/admin/looks/").status_code == 405


class TestSearch:
    @pytest.fixture
    def summer(self) -> Job:
        made = factories.campaign(30, name="Summer 100%_News")
        factories.campaign_with_job(30)
        return factories.job(made, "RENDERED")

    @pytest.mark.parametrize("typed", ["Summer", "summer 100%", "SUMMER 100%_n"])
    def test_capitals_make_no_difference(self, admin_client: Client, summer: Job, typed: str) -> None:
        assert [row.pk for row in admin_client.get(JOBS, {"q": typed}).context["cl"].result_list] == [summer.pk]
        found = admin_client.get(CAMPAIGNS, {"q": typed}).context["cl"].result_list
        assert [row.pk for row in found] == [summer.campaign_id]

    @pytest.mark.parametrize("typed", ["summer 100%%", "_ummer", "summer\\\\"])
    def test_signs_of_patterns_mean_themselves(self, summer: Job, typed: str) -> None:
        assert campaign_names.newest_campaigns(typed, None, 10).ids == []

    def test_tabs_count_within_the_search_and_keep_it(self, admin_client: Client, summer: Job) -> None:
        page = admin_client.get(JOBS, {"q": "summer"})
        tabs = {tab.name: tab for tab in page.context["cl"].paginator.tabs}
        assert (tabs["All"].count, tabs["Rendered"].count, tabs["Sending"].count) == ("1", "1", "0")
        assert "q=summer" in tabs["Rendered"].query
        kept = admin_client.get(f"{JOBS}{tabs['Rendered'].query}")
        assert [row.pk for row in kept.context["cl"].result_list] == [summer.pk]
        number = admin_client.get(JOBS, {"q": str(summer.pk)}).context["cl"].paginator.tabs
        assert {tab.name: tab.count for tab in number}["All"] == "1"

    def test_tabs_of_two_users_count_each_their_own(self, client: Client, admin_client: Client, summer: Job) -> None:
        other = factories.campaign_with_job(1, status="RENDERED", messages=False)
        vera = User.objects.create(username="vera", is_staff=True)
        vera.user_permissions.set(Permission.objects.filter(codename="view_job"))
        vera.sponsors.add(other.sponsor)
        client.force_login(vera)
        for typed, seen in (({}, ("3", "1")), ({"q": "summer"}, ("1", "0")), ({"q": str(summer.pk)}, ("1", "0"))):
            for _ in range(2):  # the second time by the statement of the first
                pages = [one.get(JOBS, typed).context["cl"].paginator for one in (admin_client, client)]
                counts = [{tab.name: tab.count for tab in page.tabs}["All"] for page in pages]
                assert tuple(counts) == seen, typed
                assert tuple(str(page.count) for page in pages) == seen, typed

    @pytest.mark.usefixtures("frozen_clock")
    def test_tabs_follow_the_day(self, admin_client: Client, summer: Job, monkeypatch: pytest.MonkeyPatch) -> None:
        def today() -> str:
            tabs = admin_client.get(JOBS, {"date": "today"}).context["cl"].paginator.tabs
            return {tab.name: tab.count for tab in tabs}["All"]

        assert today() == "2"
        tomorrow = timezone.localdate() + timedelta(days=1)
        monkeypatch.setattr(timezone, "localdate", lambda *_: tomorrow)
        assert today() == "0"

    def test_the_tab_of_the_stopped_ones_has_those_whose_last_calls_are_answered(
        self, admin_client: Client, summer: Job
    ) -> None:
        Job.objects.filter(pk=summer.pk).update(status="LOGGED", stopped_at=timezone.now(), finished_at=timezone.now())
        shown = admin_client.get(JOBS, {"status": "Stopped"})
        tabs = {tab.name: tab.count for tab in shown.context["cl"].paginator.tabs}
        assert (tabs["Stopped"], tabs["Sent"]) == ("1", "0")
        assert [row.word for row in shown.context["cl"].result_list] == ["Stopped"]
        number = admin_client.get(JOBS, {"q": str(factories.campaign_with_job(1).pk), "status": "Stopped"})
        assert number.context["cl"].paginator.count == 1 == len(number.context["cl"].result_list)
        by_end = admin_client.get(JOBS, {"status": "Stopped", "by": "sent"})
        assert [row.pk for row in by_end.context["cl"].result_list] == [summer.pk]

    def test_the_index_serves_it(self, summer: Job) -> None:
        asked = {"sponsors": None, "like": "summer%", "named": 5001}
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {campaign_names.BY_NAME}", asked)
            assert "campaign_lower_name" in str(cursor.fetchall())

    def test_of_a_common_beginning_the_newest_are_looked_through(
        self, admin_client: Client, summer: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(campaign_names, "MOST_NAMED", 1)
        monkeypatch.setattr(campaign_names, "LOOKED_THROUGH", 2)
        monkeypatch.setattr(campaign_names, "OF_SPONSORS", 4)
        third, second = (factories.campaign(1, name=f"summer {number}").pk for number in (3, 2))
        sponsors = [*Campaign.objects.values_list("sponsor_id", flat=True)]
        found = [campaign_names.newest_campaigns("summer", mine, 2) for mine in (None, sponsors)]
        assert [one.ids for one in found] == [[second, third]] * 2 and [one.common for one in found] == [False, True]
        assert campaign_names.newest_campaigns("summer", None, 3).common
        assert campaign_names.newest_campaigns("summer", [], 3).ids == []
        assert [one.ids[0] for one in (campaign_names.newest_campaigns("summer", None, 2, second),)] == [third]
        said = str(campaign_names.COMMON)
        assert said in admin_client.get(JOBS, {"q": "sum"}).content.decode()
        monkeypatch.setattr("campaigns.lists.admin.MOST_FOUND", 5)
        assert said in admin_client.get(CAMPAIGNS, {"q": "sum"}).content.decode()
        assert said in admin_client.get("/", {"q": "sum"}).content.decode()

    def test_whether_a_beginning_is_common_is_a_matter_of_ones_own_campaigns(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(campaign_names, "MOST_NAMED", 2)
        monkeypatch.setattr(campaign_names, "OF_SPONSORS", 1)
        mine, others = factories.sponsor(), factories.sponsor()
        own = [factories.campaign(1, by=mine, name=f"Summer {number}").pk for number in range(2)]
        alone = campaign_names.newest_campaigns("summer", [mine.pk], 10)
        for number in range(3):
            factories.campaign(1, by=others, name=f"Summer {number} of others")
        assert campaign_names.newest_campaigns("summer", [mine.pk], 10) == alone
        assert alone == campaign_names.CampaignsNamed(own[::-1], common=False)
        assert campaign_names.newest_campaigns("summer", [others.pk], 10).common

    def test_a_reversed_range_says_so(self, admin_client: Client, summer: Job) -> None:
        page = admin_client.get(JOBS, {"from": "2026-11-05", "to": "2026-11-01"}).content.decode()
        assert "the first day, 2026-11-05, is after the last, 2026-11-01" in page
