"""The admin: look-ups of document 000, numbers before deeds, nothing that counts millions of rows."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns.models import Campaign, Job, Message
from campaigns.operations.admin import jobs
from tests import factories
from tests.campaigns.rows import accepted, expired, family, in_doubt, logged, messages, refused, statuses

pytestmark = pytest.mark.django_db
JOBS, MESSAGES = "/admin/campaigns/job/", "/admin/campaigns/message/"


@pytest.fixture
def admin_user(db: None) -> User:
    """A user without a password, because hashing one takes longer than a test."""
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


def ids(response: Any) -> list[int]:
    return sorted(row.pk for row in response.context["cl"].result_list)


def statements(call: Callable[[], Any]) -> int:
    call()  # fills the caches of this process
    with CaptureQueriesContext(
        connection,
    ) as seen:
        call()
    return len(seen)


def press(client: Client, action: str, *jobs: Job, **data: Any) -> Any:
    """Chooses jobs and an action in the list."""
    chosen = {"action": action, "_selected_action": [job.pk for job in jobs]}
    return client.post(JOBS, {**chosen, **data}, follow=True)


def confirm(client: Client, action: str, *jobs: Job, **data: Any) -> list[str]:
    """Confirms a decision about the jobs as they were shown; returns the messages on the page."""
    shown = [f"{job.pk}:{job.revision}" for job in jobs]
    response = press(client, action, *jobs, confirmed="Yes", shown=shown, **data)
    return [str(message) for message in response.context["messages"]]


@pytest.mark.parametrize(
    "model",
    [
        "campaigns/sponsor", "campaigns/campaign", "campaigns/message", "campaigns/claim", "campaigns/job",
        "campaigns/dispatchrun", "campaigns/resolution", "campaigns/suppression", "vendors/vendor",
        "vendors/credential", "vendors/ratelimit", "vendors/mailcaster", "vendors/usage",
    ],
)  # fmt: skip
def test_every_model_has_its_page(admin_client: Client, model: str) -> None:
    job = factories.campaign_with_job(2, status="SENDING")
    factories.caster(job.vendor)
    assert admin_client.get(f"/admin/{model}/").status_code == 200


class TestJobs:
    def test_a_job_shows_how_far_it_is(self, admin_client: Client) -> None:
        job = logged(1200, [accepted(), accepted(), refused(), in_doubt()])
        page = admin_client.get(JOBS).content.decode()
        assert "4 of 1,200" in page and "2 sent, 1 need attention, 1 failed of 1,200" in page
        assert "Needs attention" in page and job.campaign.sponsor.name in page

    def test_more_jobs_cost_no_more_statements(self, admin_client: Client) -> None:
        family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "SENDING"], each=2)
        few = statements(lambda: admin_client.get(JOBS))
        for _ in range(3):
            family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "SENDING"], each=2)
        assert statements(lambda: admin_client.get(JOBS)) == few

    def test_whatever_is_looked_for_takes_at_most_twelve_statements(self, admin_client: Client) -> None:
        login = factories.credential(exclusive=True)
        for status in ("DISPATCHED", "SENDING", "RENDERED"):
            factories.campaign_with_job(2, of=login, status=status)
        family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "SENDING"], each=2)
        look = {"sponsor": "1", "vendor": "1", "channel": "email", "date": "7", "by": "dispatched"}
        for query in ({}, {"status": "Dispatched"}, {"status": "Failed", **look}):
            assert statements(lambda query=query: admin_client.get(JOBS, query)) <= 12

    def test_a_job_waits_for_the_one_that_uses_its_exclusive_credential(self, admin_client: Client) -> None:
        login = factories.credential(exclusive=True)
        holder = factories.campaign_with_job(2, of=login, status="SENDING")
        waiting = factories.campaign_with_job(2, of=login, status="DISPATCHED")
        rows = {row.pk: row.next for row in admin_client.get(JOBS).context["cl"].result_list}
        assert rows == {holder.pk: "being sent", waiting.pk: f"credential busy with job {holder.pk}"}

    @pytest.mark.parametrize(
        ("group", "expected"),
        [("Rendered", {"RENDERED"}), ("Dispatched", {"READY", "DISPATCHED"}), ("Sending", {"ENQUEUED", "SENDING"})],
    )
    def test_the_look_ups_by_status(self, admin_client: Client, group: str, expected: set[str]) -> None:
        login = factories.credential()
        for status in ("RENDERED", "READY", "DISPATCHED", "ENQUEUED", "SENDING", "SENT", "LOGGED", "STOPPED"):
            factories.campaign_with_job(1, of=login, status=status)
        response = admin_client.get(JOBS, {"status": group})
        assert {job.status for job in response.context["cl"].result_list} == expected

    def test_the_look_ups_by_sponsor_and_vendor_and_text(self, admin_client: Client) -> None:
        mine, other = factories.job(factories.campaign(1, name="Renewal notice")), factories.campaign_with_job(1)
        sponsor = mine.campaign.sponsor
        assert ids(admin_client.get(JOBS, {"sponsor": sponsor.pk})) == [mine.pk]
        assert ids(admin_client.get(JOBS, {"vendor": other.vendor.pk})) == [other.pk]
        assert ids(admin_client.get(JOBS, {"q": "Renewal"})) == [mine.pk]
        assert ids(admin_client.get(JOBS, {"q": str(other.pk)})) == [other.pk]

    def test_a_channel_has_all_of_its_vendors_however_many_sponsors_there_are(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, "MOST_CHOICES", 2)
        job = logged(1, [accepted()])
        for name in "abc":
            factories.sponsor(name=name)
        assert ids(admin_client.get(f"{JOBS}?channel={job.vendor.channel}")) == [job.pk]

    def test_a_search_is_not_crowded_out_by_other_sponsors_campaigns(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, "MOST_CAMPAIGNS", 1)
        mine, _ = logged(1, [accepted()]), logged(1, [accepted()])
        Campaign.objects.update(name="March")
        assert ids(admin_client.get(f"{JOBS}?q=March&sponsor={mine.sponsor_id}")) == [mine.pk]
        viewer = User.objects.create(username="viewer", is_staff=True)
        viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
        mine.sponsor.users.add(viewer)
        admin_client.force_login(viewer)
        assert ids(admin_client.get(f"{JOBS}?q=March")) == [mine.pk]

    def test_a_custom_range_of_days_holds_both_its_ends(self, admin_client: Client) -> None:
        days = [datetime(2026, 3, day, 12, tzinfo=UTC) for day in (1, 2, 3)]
        jobs = [factories.campaign_with_job(1, created_at=day) for day in days]
        vendor = jobs[1].vendor_id
        both = {"from": "2026-03-02", "to": "2026-03-03"}
        assert ids(admin_client.get(JOBS, both)) == [jobs[1].pk, jobs[2].pk]
        assert ids(admin_client.get(JOBS, {"to": "2026-03-01"})) == [jobs[0].pk]
        response = admin_client.get(JOBS, {**both, "vendor": vendor, "q": "campaign"})
        assert ids(response) == [jobs[1].pk]
        page = response.content.decode()  # the bar shows what was asked for
        assert f'<option value="{vendor}" selected>' in page
        assert 'name="q" value="campaign"' in page
        assert '<input type="date" name="from" value="2026-03-02">' in page

    @pytest.mark.usefixtures("frozen_clock")
    def test_without_a_date_the_list_looks_back_three_days(self, admin_client: Client) -> None:
        today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
        new, old = (factories.campaign_with_job(1, created_at=today - timedelta(days=days)) for days in (2, 3))
        assert ids(admin_client.get(JOBS)) == [new.pk]
        assert ids(admin_client.get(JOBS, {"date": "any"})) == [new.pk, old.pk]
        assert ids(admin_client.get(JOBS, {"q": str(old.pk)})) == [old.pk]

    def test_a_bad_date_is_reported(self, admin_client: Client) -> None:
        page = admin_client.get(JOBS, {"from": "soon"}).content.decode()
        assert "&#x27;soon&#x27; is not a date" in page

    @pytest.mark.parametrize("zone", ["America/Los_Angeles", "UTC", "Pacific/Kiritimati"])
    @pytest.mark.parametrize("last", ["9999-12-31", "9999-12-30", "9999-12-31T23:59:59-16:00"])
    def test_until_the_last_day_is_no_bad_date(self, admin_client: Client, zone: str, last: str) -> None:
        job = factories.campaign_with_job(1)
        with timezone.override(zone):
            for page, names in ((JOBS, ("from", "to")), ("/admin/campaigns/campaign/", ("created_from", "created_to"))):
                answer = admin_client.get(page, dict(zip(names, ("0001-01-01", last), strict=True)))
                assert "out of range" not in answer.content.decode()
                assert ids(answer) == [job.pk if page == JOBS else job.campaign_id]
            attention = admin_client.get(f"{MESSAGES}attention/", {"from": "0001-01-01", "to": last})
        assert attention.status_code == 200 and "out of range" not in attention.content.decode()

    def test_a_job_itself_can_be_looked_at_but_not_changed(self, admin_client: Client) -> None:
        job = logged(1, [accepted()])
        page = admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        assert "1 of 1" in page
        assert 'name="_save"' not in page
        assert admin_client.post(f"{JOBS}{job.pk}/change/", {"status": "READY"}).status_code == 403
        assert statuses(job) == ["LOGGED"]


class TestStopAndRetry:
    def test_stop_first_shows_the_numbers_and_changes_nothing(self, admin_client: Client) -> None:
        job = factories.campaign_with_job(5, status="SENDING")
        factories.claim(job, [0])
        page = " ".join(press(admin_client, "stop", job).content.decode().split())
        assert "1 job: <b>4</b> messages will not be called any more. <b>1</b> call in flight will be finished" in page
        assert statuses(job) == ["SENDING"]

    def test_stop_once_confirmed_is_signed_by_the_user(self, admin_client: Client) -> None:
        job, other = factories.campaign_with_job(1), factories.campaign_with_job(1)
        assert confirm(admin_client, "stop", job) == [f"job {job.pk} stopped: no new call starts"]
        assert (statuses(job, other), Job.objects.get(pk=job.pk).stopped_by) == (["STOPPED", "READY"], "admin")

    def test_of_two_users_with_the_same_page_the_second_reads_that_it_is_stale(self, admin_client: Client) -> None:
        top, _ = family(parent="P_STOPPED", remaining=3, children=["LOGGED"], each=2)
        assert confirm(admin_client, "retry", top) == [f"job {top.pk} sends 5 messages"]
        assert confirm(admin_client, "stop", top) == [f"somebody else has just decided about job {top.pk}: look again"]
        assert statuses(top) == ["P_ASSIGNING"]

    def test_retry_shows_what_it_would_send_and_asks_about_the_expired_ones(self, admin_client: Client) -> None:
        job = logged(4, [accepted(), refused(), in_doubt(), expired()])
        page = " ".join(press(admin_client, "retry", job).content.decode().split())
        assert "<b>1</b> refused and <b>0</b> never called messages will be sent. <b>1</b> was already sent" in page
        assert "also the 1 that expired" in page
        assert confirm(admin_client, "retry", job, expired="on") == [f"job {job.pk} sends 2 messages"]
        assert statuses(job) == ["DISPATCHED"]
        assert [row.error_code for row in messages(job)] == [None] * 4

    def test_a_decision_that_is_not_possible_yet_says_so(self, admin_client: Client) -> None:
        job = factories.campaign_with_job(1, status="STOPPED")
        assert confirm(admin_client, "retry", job) == [f"job {job.pk} is still being finalised; try again in a moment"]

    def test_whoever_may_only_look_finds_no_actions(self, client: Client) -> None:
        job = factories.campaign_with_job(1)
        reader = User.objects.create(username="reader", is_staff=True)
        reader.user_permissions.set(Permission.objects.filter(codename__in=("view_job", "all_sponsors")))
        client.force_login(reader)
        page = client.get(JOBS).content.decode()
        assert 'value="stop"' not in page and str(job.pk) in page
        confirm(client, "stop", job)
        assert statuses(job) == ["READY"]


class TestCampaigns:
    def test_a_campaign_leads_to_its_jobs_and_messages_alone_however_old_they_are(self, admin_client: Client) -> None:
        old = factories.campaign_with_job(2, status="LOGGED", created_at=timezone.now() - timedelta(days=90))
        factories.campaign_with_job(3, status="DISPATCHED")
        page = admin_client.get(f"/admin/campaigns/campaign/{old.campaign_id}/change/").content.decode()
        to_jobs, to_messages = re.findall(r'href="([^"]+campaign=\d+)"', page)
        jobs = admin_client.get(to_jobs)
        assert ids(jobs) == [old.pk]
        tabs = jobs.context["cl"].paginator.tabs
        assert {tab.name: tab.count for tab in tabs}["All"] == "1"
        assert all(f"campaign={old.campaign_id}" in tab.query for tab in tabs)
        assert ids(admin_client.get(to_messages)) == [old.first_message, old.first_message + 1]

    def test_a_campaign_is_sent_only_when_the_sum_says_so(self, admin_client: Client) -> None:
        job = logged(2, [accepted(), in_doubt()])
        listed = "/admin/campaigns/campaign/"
        assert "Needs attention" in admin_client.get(listed).content.decode()
        Job.objects.filter(pk=job.pk).update(accepted=2, in_doubt=0)
        page = admin_client.get(listed).content.decode()
        assert ">Sent<" in page and f'href="{MESSAGES}?campaign={job.campaign_id}"' in page

    def test_more_campaigns_cost_no_more_statements(self, admin_client: Client) -> None:
        listed = "/admin/campaigns/campaign/"
        family(parent="P_ASSIGNING", remaining=5, children=["SENDING"], each=2)
        few = statements(lambda: admin_client.get(listed))
        for _ in range(3):
            family(parent="P_ASSIGNING", remaining=5, children=["SENDING"], each=2)
        assert statements(lambda: admin_client.get(listed)) == few


class TestMessages:
    def test_labels_tell_calls_in_flight_and_what_was_stopped_before_its_call(self, admin_client: Client) -> None:
        sending = factories.campaign_with_job(2, status="SENDING")
        factories.claim(sending, [0])
        stopped = logged(2, [accepted()])
        rows = admin_client.get(MESSAGES).context["cl"].result_list
        assert {row.pk: row.word for row in rows} == {
            sending.first_message: "Sending",
            sending.first_message + 1: "Waiting",
            stopped.first_message: "Sent",
            stopped.first_message + 1: "Stopped",
        }

    def test_one_campaign_and_one_state_at_a_time(self, admin_client: Client) -> None:
        job, _ = logged(3, [accepted(), in_doubt()]), logged(1, [in_doubt()])
        mine = {"campaign": job.campaign_id}
        assert ids(admin_client.get(MESSAGES, mine)) == [job.first_message + n for n in range(3)]
        assert ids(admin_client.get(MESSAGES, {**mine, "state": "Needs attention"})) == [job.first_message + 1]
        assert ids(admin_client.get(MESSAGES, {**mine, "q": "r3@"})) == [job.first_message + 2]
        assert admin_client.get(MESSAGES, {"campaign": "999999999"}, follow=True).redirect_chain

    def test_delivery_reports_are_shown_as_labels(self, admin_client: Client) -> None:
        report = {"report_at": timezone.now(), "report_no": 0}
        shapes = [{**accepted(), **report, "report": kind} for kind in ("delivered", "bounced")]
        job = logged(3, [*shapes, accepted()])
        rows = admin_client.get(MESSAGES).context["cl"].result_list
        assert [row.word for row in sorted(rows, key=lambda row: row.pk)] == ["Delivered", "Bounced", "Sent"]
        for number, word in enumerate(("Delivered", "Bounced", "Sent")):
            assert ids(admin_client.get(MESSAGES, {"state": word})) == [job.first_message + number]
        listed = admin_client.get("/admin/campaigns/campaign/").content.decode()
        assert 'Sent</span> <small class="muted">1 delivered, 1 bounced<' in listed
        page = admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        assert "3 of 3" in page and ">1 delivered, 1 bounced</small>" in page
        rows = admin_client.get(JOBS).content.decode()
        assert ">1 delivered, 1 bounced</small>" in rows and f">{job.vendor.get_channel_display()}</small>" in rows

    def test_one_cause_within_a_campaign_or_a_job(self, admin_client: Client) -> None:
        job = logged(3, [refused() | {"cause": "us"}, refused() | {"cause": "recipient"}, refused()])
        for within in ({"campaign": job.campaign_id}, {"job": job.pk}):
            assert ids(admin_client.get(MESSAGES, {**within, "cause": "us"})) == [job.first_message]
            page = admin_client.get(MESSAGES, within).content.decode()
            assert "cause=capacity" in page and "A limit" in page
        assert "cause=capacity" not in admin_client.get(MESSAGES).content.decode()
        assert admin_client.get(MESSAGES, {"cause": "us"}, follow=True).redirect_chain, "it would read all messages"
        assert "Our account" in admin_client.get(f"{MESSAGES}{job.first_message}/change/").content.decode()

    def test_no_search_goes_over_all_messages(self, admin_client: Client) -> None:
        job = logged(2, [])
        response = admin_client.get(MESSAGES, {"q": "r1@"})
        assert ids(response) == []
        assert "Choose a campaign first" in response.content.decode()
        assert ids(admin_client.get(MESSAGES, {"q": str(job.first_message)})) == [job.first_message]

    def test_nothing_counts_the_whole_table_and_more_rows_cost_no_more_statements(self, admin_client: Client) -> None:
        logged(1, [])
        few = statements(lambda: admin_client.get(MESSAGES))
        logged(5, [accepted()])
        with CaptureQueriesContext(connection) as seen:
            admin_client.get(MESSAGES)
        assert len(seen) == few
        counts = [query["sql"] for query in seen if "COUNT(" in query["sql"] and "campaigns_message" in query["sql"]]
        assert counts and all("LIMIT 10001" in sql for sql in counts)

    def test_a_message_can_be_looked_at_but_not_changed(self, admin_client: Client) -> None:
        job = logged(1, [in_doubt()])
        page = admin_client.get(f"{MESSAGES}{job.first_message}/change/").content.decode()
        assert Message.objects.get(pk=job.first_message).reference in page and "Needs attention" in page
        assert 'name="_save"' not in page


class TestParts:
    def test_a_parent_unfolds_into_its_children_with_their_casters_and_slices(self, admin_client: Client) -> None:
        top, children = family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "DISPATCHED"], each=2)
        Job.objects.filter(pk=children[0].pk).update(mailcaster=factories.caster(top.vendor, "MC7"))
        assert ids(admin_client.get(JOBS)) == [top.pk]
        response = admin_client.get(f"{JOBS}{top.pk}/parts/")
        page = response.content.decode()
        assert response.status_code == 200
        assert "MC7" in page and "1–2" in page and "3–4" in page and "5 not cut yet" in page

    def test_a_finished_parent_asks_to_be_polled_no_more(self, admin_client: Client) -> None:
        top, _ = family(parent="P_FINISHED", remaining=0, children=["LOGGED"], each=2)
        assert admin_client.get(f"{JOBS}{top.pk}/parts/").status_code == 286
