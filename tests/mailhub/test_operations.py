"""The operations page: what goes on now, from rows and from Redis, in a fixed number of statements."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from campaigns import tasks
from campaigns.models import Job, SponsorTurn
from campaigns.reporting.forecast import kept_totals, queues
from mailhub.models import MomentFound
from mailhub.operations import charts, dashboard, outcomes
from tests import factories
from tests.campaigns.rows import family, in_doubt, logged, manage
from tests.terminal import Terminal
from tests.waiting import wait_until
from tests.workers import worker
from vendors import redis_clients
from vendors.models import Credential, Minute, RateLimit, Unreadable, Vendor

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_user(db: None) -> User:
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


class TestPulse:
    def test_the_first_page_of_the_admin_shows_what_goes_on(self, admin_client: Client) -> None:
        vendor = factories.at_work(factories.vendor(limits=[(5, 60)]))
        factories.campaign_with_job(1000, of=factories.credential(vendor), status="DISPATCHED", messages=False)
        logged(1, [in_doubt()])
        page = " ".join(admin_client.get("/admin/").content.decode().split())
        assert vendor.slug in page and "5 per 60 s" in page
        assert "(3 h " in page  # 1,000 at 5 in 60 seconds (document 000)
        assert "<span>Needs attention</span><b>1</b>" in page

    def test_of_a_parent_what_is_not_cut_waits_once(self) -> None:
        top, _ = family(parent="P_ASSIGNING", remaining=30, children=["DISPATCHED", "LOGGED"], each=10)
        queue = queues.queues_of_vendors([top.vendor_id], timezone.now())[top.vendor_id]
        assert (queue.jobs, queue.waiting, queue.mine, queue.count_in_queue) == (1, 40, 40, 40)

    def test_calls_in_flight_do_not_wait_unless_too_many_streams_run_to_look_for_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        login = factories.credential()

        def waiting_after_one_more() -> int:
            job = factories.campaign_with_job(5, of=login, status="SENDING")
            factories.claim(job, [0])
            return queues.queues_of_vendors([login.vendor_id], timezone.now())[login.vendor_id].waiting

        monkeypatch.setattr(queues, "FEW", 2)
        assert [waiting_after_one_more() for _ in range(3)] == [4, 8, 15]

    def test_a_vendor_that_is_closed_or_paused_says_so(self) -> None:
        closed = factories.credential(retry_after_until=timezone.now() + timedelta(hours=1)).vendor
        paused = factories.vendor(paused=True, paused_reason="the contract ended")
        rows = {row.vendor.pk: row for row in dashboard.read_dashboard().vendors}
        assert rows[closed.pk].state.startswith("silent until") and not rows[closed.pk].open
        assert rows[paused.pk].state == "vendor paused: the contract ended"

    def test_a_vendor_that_is_silent_after_a_rebuild_says_so_and_until_when(self) -> None:
        """By the time that its sender was told: it is longer than a full window ever makes one wait."""
        now = timezone.now()
        until = now + timedelta(seconds=600)
        vendor = factories.vendor(limits=[(5, 60)])
        silent = factories.credential(vendor, rate_limited_until=until)
        factories.campaign_with_job(5, of=silent, status="DISPATCHED")

        def row() -> dashboard.VendorRow:
            [found] = [one for one in dashboard.read_dashboard().vendors if one.vendor == vendor]
            return found

        at = f"{timezone.localtime(until):%H:%M}"
        assert row().state == f"silent until {at}, because its windows were rebuilt and calls may still be open"
        assert not row().open
        out = io.StringIO()
        call_command("status", stdout=out)
        assert f"silent until {at}" in " ".join(out.getvalue().split())
        Credential.objects.filter(pk=silent.pk).update(rate_limited_until=now + timedelta(seconds=60))
        assert row().state == "not called yet" and row().open, "full, as it often is"
        Credential.objects.filter(pk=silent.pk).update(rate_limited_until=until)
        other = factories.credential(vendor)
        factories.campaign_with_job(5, of=other, status="DISPATCHED")
        factories.condition(other)
        assert row().state == "works" and at in row().notes[0], "the other one's mail goes out"

    def test_the_page_tells_what_a_crash_would_take_and_what_a_clock_did(
        self, admin_client: Client, settings: Any
    ) -> None:
        def page() -> str:
            return " ".join(admin_client.get("/admin/operations/audit/").content.decode().split())

        badge = '<span class="badge warn">told</span> fsync is off: a crash of the machine loses commits'
        assert badge in page() and "Set fsync = on." in page(), "the tests' own server"
        settings.STORES_MAY_LOSE = False
        assert badge.replace("warn", "bad").replace("told", "wrong") in page()
        MomentFound.objects.create(moment="vendors.Credential.retry_after_until", number=3, ahead=timedelta(hours=1))
        assert "A clock was wrong: 3 × vendors.Credential.retry_after_until lay up to 1:00:00 ahead" in page()

    def test_more_jobs_cost_no_more_statements(self, admin_client: Client) -> None:
        def statements() -> int:
            with CaptureQueriesContext(connection) as seen:
                admin_client.get("/admin/operations/pulse/")
            return len(seen)

        login = factories.credential()
        factories.campaign_with_job(2, of=login, status="SENDING")
        few = statements()
        for _ in range(4):
            factories.campaign_with_job(2, of=login, status="SENDING")
        assert statements() == few

    def test_whoever_may_not_look_at_jobs_gets_djangos_own_page(self, client: Client) -> None:
        client.force_login(User.objects.create(username="bob", is_staff=True))
        assert "You don’t have permission" in client.get("/admin/").content.decode()
        assert client.get("/admin/operations/pulse/").status_code == 403

    def test_an_installation_without_anything_has_its_page_too(self, admin_client: Client) -> None:
        assert "There is no vendor yet" in admin_client.get("/admin/").content.decode()

    def test_the_promises_are_shown_as_beat_found_them_and_asked_on_demand(self, admin_client: Client) -> None:
        assert "No audit yet" in admin_client.get("/admin/operations/audit/").content.decode()
        tasks.audit()
        assert "no breach" in admin_client.get("/admin/operations/audit/").content.decode()
        job = logged(1, [in_doubt()])
        Job.objects.filter(pk=job.pk).update(in_doubt=0)
        assert "no breach" in admin_client.get("/admin/operations/audit/").content.decode()
        assert "broken" in admin_client.post("/admin/operations/audit/").content.decode()

    def test_a_person_of_one_sponsor_is_told_of_that_sponsors_mail_alone(self, client: Client) -> None:
        vendor = factories.at_work(factories.vendor(limits=[(5, 60)]))
        login, caster = factories.credential(vendor), factories.caster(vendor, "MC1")
        velma = factories.sponsor("Velma")
        factories.campaign_with_job(10, of=login, by=velma, status="DISPATCHED")
        factories.campaign_with_job(1000, of=login, status="DISPATCHED", messages=False)
        theirs = factories.campaign_with_job(5, of=login, status="SENDING", mailcaster=caster)
        logged(1, [in_doubt()])
        minute = timezone.now().replace(second=0, microsecond=0)
        Minute.objects.create(vendor=vendor, at=minute, share=0, sponsor=velma.pk, accepted=7)
        Minute.objects.create(vendor=vendor, at=minute, share=0, sponsor=theirs.sponsor_id, accepted=90)
        bob = User.objects.create(username="bob", is_staff=True)
        bob.user_permissions.set(Permission.objects.filter(codename__in=("view_job", "view_message")))
        velma.users.add(bob)
        client.force_login(bob)
        seen = client.get("/admin/").context["pulse"]
        assert (seen.waiting, seen.attention, seen.running) == (10, 0, [])
        today, _ = outcomes.outcomes_of_today(minute, [velma.pk])
        assert today[vendor.pk]["accepted"] == 7
        (row,) = [row for row in seen.vendors if row.vendor == vendor]
        assert "(3 h " in row.ends, "the line is as long as it is"
        assert client.get("/admin/operations/audit/").status_code == 403
        (line,) = charts.throughput_series(minute + timedelta(minutes=1), 60, [velma.pk])["vendors"]
        assert sum(line["values"]) == 7
        assert dashboard.read_dashboard().waiting == 1015


@pytest.mark.parametrize("path", ["operations/pulse/", "operations/throughput/", "campaigns/job/"])
def test_a_poll_without_a_session_hears_401_and_a_person_the_log_in_page(client: Client, path: str) -> None:
    poll = client.get(f"/admin/{path}", headers={"HX-Request": "true"})
    assert (poll.status_code, poll.headers["X-Login"]) == (401, "/admin/login/")
    person = client.get(f"/admin/{path}")
    assert person.status_code == 302 and person.headers["Location"].startswith("/admin/login/?next=")


class TestPlot:
    def test_a_minute_is_the_sum_of_its_shares(self, admin_client: Client) -> None:
        vendor = factories.vendor(limits=[(5, 60), (1000, 86_400)])
        now = timezone.now()
        at = now.replace(second=0, microsecond=0) - timedelta(minutes=3)
        for share, count in enumerate((4, 5)):
            Minute.objects.create(vendor=vendor, at=at, share=share, accepted=count)
        plotted = charts.throughput_series(now, 60)
        assert len(plotted["times"]) == 60
        (line,) = plotted["vendors"]
        assert sum(line["values"]) == 9 == line["values"][plotted["times"].index(int(at.timestamp()))]
        assert line["limit"] == pytest.approx(1000 / 1440)
        assert (
            admin_client.get("/admin/operations/throughput/?minutes=1440").json()["vendors"][0]["name"] == vendor.slug
        )


class TestWorkers:
    @pytest.mark.django_db(transaction=True)
    @pytest.mark.slow("processes")
    def test_a_queue_that_nobody_reads_is_named(self) -> None:
        read, unread = factories.vendor(), factories.vendor()
        with worker("hub", "webhooks", read.queue) as running:
            found = running.until(lambda: (seen := dashboard.ask_workers()).names and seen)
        assert found.unread == (unread.queue,)

    def test_without_any_worker_all_queues_are_named(self) -> None:
        assert wait_until(lambda: dashboard.ask_workers(0.1), "an answer").unread == ("hub", "webhooks")


class TestVendorPage:
    def test_the_forecast_says_what_other_limits_would_change(self, admin_client: Client) -> None:
        vendor = factories.at_work(factories.vendor(limits=[(5, 60)]))
        factories.campaign_with_job(1000, of=factories.credential(vendor), status="DISPATCHED", messages=False)
        forecast = f"/admin/operations/vendors/{vendor.pk}/forecast/"
        page = admin_client.get(forecast, {"limit": "10/60"}).content.decode()
        assert "<b>1,000</b> waiting" in page and "(3 h " in page and "(1 h " in page
        assert "limit is 0" in admin_client.get(forecast, {"limit": "0/60"}).content.decode()
        assert "no limit" in admin_client.get(forecast).content.decode()
        for typed in ("x/60", "5/0", "-1/60", "5"):
            assert "how many calls" in admin_client.get(forecast, {"limit": typed}).content.decode()
        assert RateLimit.objects.get(vendor=vendor).units == 5

    def test_a_pause_asks_for_a_reason_and_is_on_record(self, admin_client: Client) -> None:
        vendor = factories.vendor()
        pause = f"/admin/vendors/vendor/{vendor.pk}/pause/"
        assert "Reason" in admin_client.get(pause).content.decode()
        admin_client.get(pause, {"confirmed": "Yes", "was": "going", "reason": "a link"})
        admin_client.post(pause)
        assert not Vendor.objects.get().paused
        decided = {"confirmed": "Yes", "was": "going", "reason": "their office burns"}
        admin_client.post(pause, decided)
        assert Vendor.objects.get().paused_reason == "their office burns"
        page = admin_client.post(pause, decided, follow=True).content.decode()  # an old page
        assert "somebody else has paused or resumed" in page and "paused. Reason: their office burns" in page
        assert Vendor.objects.get().paused

    @pytest.mark.parametrize("kind", ["vendor", "credential"])
    def test_a_late_pause_does_not_take_the_place_of_another_one(self, admin_client: Client, kind: str) -> None:
        login = factories.credential(factories.vendor())
        row: Any = login if kind == "credential" else login.vendor
        pause = f"/admin/vendors/{kind}/{row.pk}/pause/"
        name = (login.vendor.slug, login.name) if row is login else (row.slug,)
        manage(kind, "pause", *name, "--reason", "Ann knows why")
        decided = {"confirmed": "Yes", "was": "going", "reason": "an old page"}
        page = admin_client.post(pause, decided, follow=True).content.decode()
        row.refresh_from_db()
        assert "somebody else has paused or resumed" in page and row.paused_reason == "Ann knows why"

    def test_the_history_tells_old_and_new(self, admin_client: Client) -> None:
        vendor = factories.vendor(limits=[(5, 60)], adapter="http", settings={"url": "https://vendor.example/"})
        page = f"/admin/vendors/vendor/{vendor.pk}/change/"
        form = admin_client.get(page).context["adminform"].form
        data = {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}
        limit = RateLimit.objects.get()
        inlines = {
            "limits-TOTAL_FORMS": 1, "limits-INITIAL_FORMS": 1, "limits-0-id": limit.pk, "limits-0-vendor": vendor.pk,
            "limits-0-units": 8, "limits-0-seconds": 60, "mailcasters-TOTAL_FORMS": 0, "mailcasters-INITIAL_FORMS": 0,
        }  # fmt: skip
        response = admin_client.post(page, {**data, **inlines, "catch_up": "06:00:00", "_continue": "1"}, follow=True)
        assert "units 5 → 8" in response.content.decode(), response.context["errors"]


class TestKeys:
    def test_secrets_are_encrypted_anew_and_the_old_key_can_go(self, settings, capsys) -> None:
        login = factories.credential(secret={"token": "t"})
        old, settings.SECRET_KEY = settings.SECRET_KEY, "another key"
        with pytest.raises(Unreadable):
            Credential.objects.get(pk=login.pk)
        settings.SECRET_KEY_FALLBACKS = [old]
        call_command("rotate_keys")
        assert "1 secret is" in capsys.readouterr().out
        settings.SECRET_KEY_FALLBACKS = []
        assert Credential.objects.get(pk=login.pk).secret == {"token": "t"}


class TestStatus:
    def test_the_terminal_shows_the_vendors_and_who_is_missing(self, capsys) -> None:
        vendor = factories.at_work(factories.vendor(limits=[(5, 60)]))
        factories.campaign_with_job(1000, of=factories.credential(vendor), status="DISPATCHED", messages=False)
        call_command("status")
        said = capsys.readouterr().out
        assert vendor.slug in said and "0 of 5" in said and "1,000" in said and "(3 h " in said
        assert "0 workers" in said

    @pytest.mark.parametrize("width", [80, 120, 160])
    def test_on_a_terminal_no_word_is_broken_and_the_newest_minutes_are_shown(
        self, width: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vendor = factories.at_work(
            factories.vendor("print-and-mail-house-of-the-north", limits=[(5, 60), (200_000, 86_400)])
        )
        factories.campaign_with_job(1000, of=factories.credential(vendor), status="DISPATCHED", messages=False)
        minute = timezone.now().replace(second=0, microsecond=0)
        for ago in range(1, 30):
            at = minute - timedelta(minutes=ago)
            Minute.objects.create(vendor=vendor, at=at, share=0, accepted=900 if ago == 1 else 1, refused=0)
        monkeypatch.setenv("COLUMNS", str(width))
        screen = Terminal()
        call_command("status", stdout=screen)
        lines = screen.lines()
        assert max(map(len, lines)) <= width
        seen = {word.strip(",()") for word in " ".join(lines).replace("-", " ").split()}
        assert {*vendor.slug.split("-"), "1,000", "200,000", "day", "called", "condition", "min"} <= seen, (
            screen.getvalue()
        )
        assert "…" not in screen.getvalue()
        if width > 80:
            assert "█" in screen.getvalue(), "the last minute is the highest"

    def test_an_obstacle_is_said_once_and_the_totals_break_between_sentences(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vendor = factories.at_work(factories.vendor("print", limits=[(5, 60)]))
        login = factories.credential(vendor, "main", paused=True, paused_reason="refused")
        factories.campaign_with_job(1000, of=login, status="DISPATCHED", messages=False)
        monkeypatch.setenv("COLUMNS", "80")
        screen = Terminal()
        call_command("status", stdout=screen)
        lines = [line.strip() for line in screen.lines()]
        assert lines[0].endswith("0 streams, 1,000 messages wait; 0 need attention; 0 workers (no worker"), lines
        assert "today 0 sent, 0 failed" in lines, "on a line of its own"
        assert " ".join(screen.getvalue().split()).count("refused") == 1, screen.getvalue()

    def test_programs_read_one_object_a_vendor(self, capsys) -> None:
        vendor = factories.vendor(limits=[(5, 60)], paused=True)
        call_command("status", json=True)
        (line,) = capsys.readouterr().out.splitlines()
        row = json.loads(line)
        assert (row["vendor"], row["accepting"], row["waiting"]) == (vendor.slug, False, 0)


class TestKeptTotals:
    """Sums of many waiting jobs are kept for a moment; the page says when they were counted."""

    def waiting(self, *, recent: bool) -> tuple[int, bool]:
        seen = dashboard.read_dashboard(recent=recent)
        return seen.waiting, seen.counted_at is not None

    def test_few_are_counted_at_each_look(self) -> None:
        login = factories.credential()
        for number in (5, 10):
            factories.campaign_with_job(5, of=login, status="DISPATCHED", messages=False)
            assert self.waiting(recent=True) == (number, False)

    def test_many_are_kept_for_many_times_as_long_as_they_took(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kept_totals, "MANY", 0)
        monkeypatch.setattr(kept_totals, "SHARE", 1e9)  # so that it is LONGEST
        login = factories.credential()
        factories.campaign_with_job(5, of=login, status="DISPATCHED", messages=False)
        assert self.waiting(recent=True) == (5, False)
        factories.campaign_with_job(5, of=login, status="DISPATCHED", messages=False)
        assert self.waiting(recent=True) == (5, True)
        assert self.waiting(recent=False) == (10, False)  # commands count
        assert [one.counted_at for one in dashboard.read_dashboard([0], recent=True).vendors] == [
            None
        ]  # another question
        login.vendor.paused = True
        login.vendor.save()  # all else is as it is now
        assert [one.state for one in dashboard.read_dashboard(recent=True).vendors] == ["vendor paused"]

    def test_what_follows_from_kept_totals_follows_all_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sums are worked out once in a process, but not without the credentials that were open then."""
        monkeypatch.setattr(kept_totals, "MANY", 0)
        monkeypatch.setattr(kept_totals, "SHARE", 1e9)
        login = factories.credential()
        factories.campaign_with_job(5, of=login, by=factories.sponsor("Anton"), status="DISPATCHED", messages=False)

        def look() -> tuple[int, int, list[int]]:
            seen = queues.queues_of_vendors([login.vendor_id], timezone.now(), recent=True)[login.vendor_id]
            return seen.count_in_queue, seen.waiting, [one.weight for one in seen.sponsors.values()]

        first = look()
        assert first == look() == look() == (5, 5, [1]), "the same, however often it is looked at"
        Credential.objects.update(paused=True)
        assert look() == (0, 5, []), "it waits, but it is not queued"
        Credential.objects.update(paused=False)
        assert look() == first
        SponsorTurn.objects.create(sponsor=Job.objects.get().sponsor, vendor=login.vendor, weight=3)
        assert look() == (5, 5, [3])

    def test_without_redis_they_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kept_totals, "MANY", 0)
        monkeypatch.setattr(
            redis_clients, "_registry_client", lambda _url: redis_clients.make_client("redis://127.0.0.1:1", 0.1)
        )
        factories.campaign_with_job(5, status="DISPATCHED", messages=False)
        assert self.waiting(recent=True) == self.waiting(recent=True) == (5, False)
