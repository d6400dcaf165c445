"""Lists, pages, commands and the API show the same obstacle to a job, and no end while there is one."""

import html
import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from campaigns.engine.dispatch import nightly
from campaigns.engine.dispatch.nightly import Run
from campaigns.engine.failover import guard
from campaigns.models import Campaign, DispatchRun, Job, Store
from tests import factories
from tests.campaigns.rows import family
from tests.front.program import Program, api_vendor, forget, fresh, letter
from vendors import redis_clients
from vendors.models import Credential, Mailcaster, RateLimit, Vendor

__all__ = ["fresh"]
pytestmark = pytest.mark.django_db
JOBS = "/admin/campaigns/job/"
HOUR = timedelta(hours=1)
SENTENCE = re.compile(r"</ul>\s*<p>(.*?)\.</p>", re.DOTALL)  # of a job's page


@pytest.fixture
def admin_user(db: None) -> User:
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


@pytest.fixture
def doors(admin_client: Client, capsys: pytest.CaptureFixture) -> Callable[[Job], dict[str, str]]:
    """What each interface says of a job, or of its vendor's queue."""

    def said(job: Job) -> dict[str, str]:
        capsys.readouterr()
        call_command("list_jobs", json=True)
        rows = {row["id"]: row["next"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
        call_command("forecast", job.vendor.slug)
        foretold = capsys.readouterr().out
        call_command("status", json=True)
        (status,) = [
            row for row in map(json.loads, capsys.readouterr().out.splitlines()) if row["vendor"] == job.vendor.slug
        ]
        (row,) = [row for row in admin_client.get(JOBS).context["cl"].result_list if row.pk == job.pk]
        page = admin_client.get(f"{JOBS}{job.pk}/change/").content.decode()
        sentence = SENTENCE.search(page)
        vendors = admin_client.get("/admin/").context["pulse"].vendors
        (vendor,) = [one for one in vendors if one.vendor == job.vendor]
        return {
            "list": f"{row.next}, {row.ends}",
            "page": html.unescape(sentence[1][0].lower() + sentence[1][1:]) if sentence else "",
            "list_jobs": rows[job.pk],
            "operations": "; ".join([vendor.ends, *vendor.apart, *vendor.notes]),
            "status": "; ".join([status["ends"], *status["apart"], *status["notes"]]),
            "forecast": foretold,
        }

    return said


def waiting(count: int = 10, limit: tuple[int, float] = (5, 60), **fields: Any) -> Job:
    """A job of a vendor without any obstacle."""
    vendor = factories.at_work(factories.vendor(limits=[limit]))
    return factories.campaign_with_job(
        count, status="DISPATCHED", of=factories.credential(vendor, "main"), messages=False, **fields
    )


END = re.compile(r"\d\d:\d\d \(")


def test_where_only_a_rate_limit_is_in_the_way_all_interfaces_show_the_same_end(doors: Any) -> None:
    said = doors(waiting(1000))
    ends = {re.search(r"\d\d:\d\d \(3 h \d+ min\)", text).group() for text in said.values() if END.search(text)}  # type: ignore[union-attr]
    assert all(END.search(text) for text in said.values()), said
    assert all("(3 h " in one for one in ends)


def to_vendor(job: Job, **fields: Any) -> None:
    Vendor.objects.filter(pk=job.vendor_id).update(**fields)


def to_login(job: Job, **fields: Any) -> None:
    Credential.objects.filter(pk=job.credential_id).update(**fields)


def to_campaign(job: Job, **fields: Any) -> None:
    Campaign.objects.filter(pk=job.campaign_id).update(**fields)


def unread(job: Job) -> None:
    for reader in redis_clients.registered_workers(settings.REDIS_URL):
        redis_clients.unregister_worker(settings.REDIS_URL, reader.name)


def busy(job: Job) -> None:
    """One sender for two vendors, which is busy for the other."""
    unread(job)
    other = factories.campaign_with_job(1, status="SENDING")
    both = frozenset([job.vendor.queue, other.vendor.queue])
    redis_clients.register_worker(settings.REDIS_URL, redis_clients.Worker("one", both, 1), seconds=3600)


def taken_over() -> None:
    """As after a failover: a promotion begins a new timeline."""
    Store.objects.update(timeline="000000AA")


def closed_now() -> dict[str, Any]:
    """Sending hours that begin in two hours and end in three."""
    now = timezone.now()
    return {"hours_from": (now + 2 * HOUR).time(), "hours_to": (now + 3 * HOUR).time(), "time_zone": "UTC"}


@pytest.mark.parametrize(
    ("lay", "of_job", "of_vendor"),
    [
        (lambda job: to_vendor(job, paused=True, paused_reason="invoice 4711"), "vendor paused: invoice 4711", None),
        (
            lambda job: to_login(job, paused=True, paused_reason="http 401: login or account refused"),
            "credential main paused: http 401: login or account refused",
            None,
        ),
        (lambda job: job.vendor.limits.update(units=0), "the vendor's limit is 0", None),
        (lambda job: Mailcaster.objects.update(enabled=False), "no mailcaster of the vendor is enabled", None),
        (unread, "no worker reads the queue vendor.", None),
        (busy, "all 1 senders are at work for other vendors", None),
        (lambda job: taken_over(), guard.TAKEN_OVER, None),
        (lambda job: Store.objects.update(tables=""), guard.MIGRATING, None),
        (lambda job: to_campaign(job, send_at=timezone.now() + 30 * HOUR), "waits until", "for a time of their own"),
        (lambda job: to_campaign(job, **closed_now()), "sending hours: from", "for a time of their own"),
    ],
    ids=["vendor", "credential", "limit", "caster", "process", "sender", "store", "tables", "send time", "hours"],
)
def test_every_interface_shows_an_obstacle_and_no_end_with_it(
    doors: Any, lay: Callable[[Job], Any], of_job: str, of_vendor: str | None
) -> None:
    job = waiting()
    lay(job)
    said = doors(job)
    for door, text in said.items():
        wanted = of_job if door in ("list", "page", "list_jobs") or of_vendor is None else of_vendor
        assert wanted in text.replace("&#x27;", "'"), (door, text)
        assert not END.search(text), (door, text)


@pytest.mark.parametrize("status", ["RENDERED", "READY", "ENQUEUED", "SENDING", "RECOVERING"])
def test_after_a_takeover_no_job_has_an_end_wherever_it_stands(doors: Any, status: str) -> None:
    job = waiting(1000)
    factories.campaign_with_job(5, status=status, of=job.credential, not_before=timezone.now() + HOUR)
    late = Job.objects.latest("id")
    taken_over()
    said = doors(late)
    assert all(guard.TAKEN_OVER in text and not END.search(text) for text in said.values()), said


def test_after_a_takeover_each_vendors_row_says_that_it_is_halted(
    admin_client: Client, capsys: pytest.CaptureFixture
) -> None:
    """Idle, busy or paused, with the text of the banner above them."""
    job, idle = waiting(1000), factories.vendor()
    paused = factories.vendor(paused=True, paused_reason="invoice 4711")
    taken_over()
    call_command("status", json=True)
    rows = {row["vendor"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    call_command("status")
    shown = capsys.readouterr().out
    page = admin_client.get("/admin/").content.decode()
    for vendor in (job.vendor, idle, paused):
        row = rows[vendor.slug]
        assert (row["accepting"], row["state"]) == (False, f"halted: {guard.TAKEN_OVER}")
        assert (
            f"halted: {guard.TAKEN_OVER}"
            in admin_client.get(f"/admin/operations/vendors/{vendor.pk}/").content.decode()
        )
    assert page.count(f"halted: {guard.TAKEN_OVER}") == 3 == shown.count("halted: the store")
    assert "Nothing is called: the store was taken over" in page and f"Nothing is called: {guard.TAKEN_OVER}" in shown


def test_after_a_takeover_the_api_gives_no_end_and_says_why() -> None:
    vendor = factories.at_work(api_vendor(limits=[(5, 60)]))
    program, later = Program(), (timezone.now() + HOUR).isoformat()

    def rows() -> list[dict[str, Any]]:
        forget()
        dry = "/api/v1/messages?dry_run=true"
        answers = [program.send(letter(vendor, **more), None, dry) for more in ({}, {"send_at": later})]
        (service,) = program.get("services").json()["data"]
        return [service["forecast"], *(answer.json()["forecast"] for answer in answers)]

    assert all(one["first_at"] and one["last_at"] for one in rows())
    taken_over()
    for one in rows():
        assert (one["first_at"], one["last_at"]) == (None, None) and one["basis"].endswith(f"; {guard.TAKEN_OVER}")


def test_what_waits_for_something_else_holds_nobody_up(doors: Any) -> None:
    """A thousand that wait for tomorrow, for their hours or for a paused credential do not delay the next ten."""
    first = waiting(1000)
    to_campaign(first, send_at=timezone.now() + 24 * HOUR)
    for fields in ({}, {"not_before": timezone.now() + HOUR}):
        factories.campaign_with_job(1000, status="DISPATCHED", of=first.credential, messages=False, **fields)
    late = Job.objects.filter(not_before=None).latest("id")
    to_campaign(late, **closed_now())
    for login in (factories.credential(first.vendor, "shut", paused=True), factories.credential(first.vendor, "at 0")):
        factories.campaign_with_job(1000, status="DISPATCHED", of=login, messages=False)
    RateLimit.objects.create(vendor=first.vendor, credential=login, units=0, seconds=60)
    job = factories.campaign_with_job(10, status="DISPATCHED", of=first.credential, messages=False)
    said = doors(job)
    for door, text in said.items():
        assert "(1 min)" in text, (door, text)
    assert (
        "3,000 wait for a time of their own" in said["operations"] and "1,000 wait: credential shut" in said["forecast"]
    )


@pytest.mark.parametrize(("status", "next_"), [("LOGGED", ""), ("SENT", "waits for the last answers")])
@pytest.mark.parametrize("paused", [False, True])
def test_a_job_with_nothing_left_to_call_says_nothing_of_those_that_wait_beside_it(
    doors: Any, status: str, next_: str, paused: bool
) -> None:
    beside = waiting()
    to_vendor(beside, paused=paused)
    over = factories.campaign_with_job(10, status=status, of=beside.credential, messages=False)
    said = doors(over)
    assert said["list"] == f"{next_}, "
    assert said["list_jobs"] == next_


def test_an_end_after_the_deadline_or_the_sending_hours_is_not_shown(doors: Any) -> None:
    job, now = waiting(1000), timezone.now()
    to_campaign(job, deadline=now + HOUR)
    said = doors(job)
    assert all("the rest expires" in said[door] for door in ("list", "page", "list_jobs")), said
    hours = {"hours_from": (now - HOUR).time(), "hours_to": (now + HOUR).time(), "time_zone": "UTC"}
    to_campaign(job, deadline=None, **hours)
    said = doors(job)
    assert all("when its sending hours end" in said[door] for door in ("list", "page", "list_jobs")), said
    assert all("sending hours of some end" in said[door] for door in ("operations", "status", "forecast")), said


def test_a_login_with_a_limit_of_its_own_holds_up_its_own_jobs_only(doors: Any) -> None:
    job = waiting(10)
    slow = factories.credential(job.vendor, "slow")
    job.vendor.limits.create(credential=slow, units=1, seconds=600)
    late = factories.campaign_with_job(10, status="DISPATCHED", of=slow, messages=False)
    assert "(1 min)" in doors(job)["list"]
    assert "(1 h 30 min)" in doors(late)["list"]


def test_a_parent_needs_a_caster_that_cuts_and_a_small_job_one_that_does_not(doors: Any) -> None:
    top, _ = family(parent="P_QUEUED", remaining=10, children=[])
    factories.at_work(top.vendor)
    Mailcaster.objects.update(kind="small-only")
    assert "no enabled mailcaster takes it" in doors(top)["list"]
    small = waiting(1)
    small.vendor.mailcasters.update(kind="large-only")
    assert "no enabled mailcaster takes it" in doors(small)["list"]


def test_what_the_vendors_last_bad_answer_said_is_on_the_operations_page(admin_client: Client) -> None:
    factories.condition(factories.credential(), failing=timedelta(hours=1), answer="http 503")
    assert "last answer: http 503" in admin_client.get("/admin/").content.decode()


class TestNights:
    NOW = datetime(2026, 3, 10, 19, 0, tzinfo=UTC)  # a Tuesday

    def vendor(self, **fields: Any) -> Vendor:
        fields = {"dispatch_at": time(20), "time_zone": "UTC", "weekdays": [1, 2, 3, 4, 5], **fields}
        return Vendor(slug="v", created_at=datetime(2026, 1, 1, tzinfo=UTC), catch_up=timedelta(hours=6), **fields)

    def test_tonight_unless_the_date_has_had_its_run(self) -> None:
        vendor, day = self.vendor(), date(2026, 3, 10)
        done = Run(day, self.NOW - HOUR, finished=True, missed=False)
        monday = Run(date(2026, 3, 9), self.NOW, finished=True, missed=False)
        assert nightly.find_next_night(vendor, [monday], self.NOW) == nightly.NextNight(
            day, datetime(2026, 3, 10, 20, tzinfo=UTC)
        )
        moved = nightly.find_next_night(vendor, [monday, done], self.NOW)
        assert moved == nightly.NextNight(date(2026, 3, 11), datetime(2026, 3, 11, 20, tzinfo=UTC), done)

    def test_a_night_that_was_missed_is_named(self) -> None:
        vendor = self.vendor(dispatch_at=time(1))
        missed = Run(date(2026, 3, 10), None, finished=False, missed=True)
        for known in ([missed], []):  # flagged, or about to be
            night = nightly.find_next_night(vendor, known, self.NOW)
            assert night and (night.day, night.lost) == (date(2026, 3, 11), missed)

    def test_what_is_due_and_not_over_is_the_next_one(self) -> None:
        vendor = self.vendor(dispatch_at=time(18))
        assert nightly.find_next_night(vendor, [], self.NOW) == nightly.NextNight(date(2026, 3, 10), self.NOW - HOUR)

    def test_days_without_a_night_are_left_out_and_a_vendor_may_have_none(self) -> None:
        friday = datetime(2026, 3, 13, 21, tzinfo=UTC)
        done = Run(date(2026, 3, 13), friday, finished=True, missed=False)
        assert nightly.find_next_night(self.vendor(), [done], friday) == nightly.NextNight(
            date(2026, 3, 16), datetime(2026, 3, 16, 20, tzinfo=UTC)
        )
        assert nightly.find_next_night(self.vendor(weekdays=[]), [], friday) is None

    def test_the_date_is_shown_where_the_hour_was_moved_or_missed(self, doors: Any) -> None:
        with time_machine.travel(timezone.now().replace(hour=12)):
            self.moved_or_missed(doors)

    def moved_or_missed(self, doors: Any) -> None:
        now = timezone.now()
        later = (now + timedelta(minutes=5)).time().replace(second=0, microsecond=0)
        vendor = factories.at_work(factories.vendor(dispatch_at=later, time_zone="UTC"))
        job = factories.campaign_with_job(3, status="RENDERED", of=factories.credential(vendor))
        assert f"nightly dispatch today, {now.day} {now:%b} {later:%H:%M} UTC" in doors(job)["list"]
        run = DispatchRun.objects.create(
            vendor=vendor, local_date=now.date(), due_at=now, started_at=now, finished_at=now
        )
        tomorrow = now + timedelta(days=1)
        night = f"nightly dispatch tomorrow, {tomorrow.day} {tomorrow:%b} {later:%H:%M} UTC"
        text = f"{night}; that of {now.day} {now:%b} has been"
        assert all(text in said for said in doors(job).values())
        DispatchRun.objects.filter(pk=run.pk).update(started_at=None, finished_at=None, missed=True)
        early = (now - timedelta(minutes=1)).time().replace(second=0, microsecond=0)
        to_vendor(job, dispatch_at=early, created_at=now - timedelta(days=3))
        assert "was missed" in doors(job)["list"]
