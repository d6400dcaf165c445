"""The nightly dispatch: one run per vendor and local date, whatever clocks and triggers do. Time is an argument."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta

import pytest
from django.db import connection

from campaigns.engine.dispatch import nightly
from campaigns.engine.dispatch.dispatcher import dispatch_in_batches
from campaigns.models import DispatchRun, Job
from campaigns.models.states import S
from tests import factories as make
from vendors.models import Credential, Vendor

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def evening(zone: str = "Europe/London", clock: str = "18:00", **fields: object) -> Vendor:
    """A vendor that is not stored."""
    return Vendor(slug="v", dispatch_at=time.fromisoformat(clock), time_zone=zone, **fields)


def known_since(when: datetime, **fields: object) -> Credential:
    """A credential of a stored vendor of London that was created then."""
    vendor = make.vendor(time_zone="Europe/London", **fields)
    Vendor.objects.filter(pk=vendor.pk).update(created_at=when)
    return make.credential(Vendor.objects.get(pk=vendor.pk))


def rendered(login: Credential, count: int, created: str) -> list[Job]:
    one = make.campaign(1, of=login)
    return [make.job(one, S.RENDERED, created_at=at(created)) for _ in range(count)]


@pytest.mark.parametrize(
    ("zone", "clock", "now", "day", "due_at"),
    [
        ("Europe/London", "18:00", "2026-01-15 18:00", "2026-01-15", "2026-01-15 18:00"),
        ("Europe/London", "18:00", "2026-07-15 17:00", "2026-07-15", "2026-07-15 17:00"),  # summer time
        ("Europe/London", "18:00", "2026-07-15 16:59", "2026-07-14", "2026-07-14 17:00"),
        ("Pacific/Auckland", "18:00", "2026-01-15 05:00", "2026-01-15", "2026-01-15 05:00"),
        ("America/New_York", "23:30", "2026-01-16 05:00", "2026-01-15", "2026-01-16 04:30"),
        # The hour that is left out: the first moment after the gap.
        ("America/New_York", "02:30", "2026-03-08 07:00", "2026-03-08", "2026-03-08 07:00"),
        ("America/New_York", "02:30", "2026-03-08 06:59", "2026-03-07", "2026-03-07 07:30"),
        ("Europe/London", "01:30", "2026-03-29 12:00", "2026-03-29", "2026-03-29 01:00"),
        # The hour that comes twice: the first one.
        ("America/New_York", "01:30", "2026-11-01 05:30", "2026-11-01", "2026-11-01 05:30"),
        ("America/New_York", "01:30", "2026-11-01 06:30", "2026-11-01", "2026-11-01 05:30"),
        ("Europe/London", "01:30", "2026-10-25 00:30", "2026-10-25", "2026-10-25 00:30"),
        # Apia went from the 29th to the 31st of December 2011.
        ("Pacific/Apia", "18:00", "2011-12-31 03:59", "2011-12-29", "2011-12-30 04:00"),
        ("Pacific/Apia", "18:00", "2011-12-31 04:00", "2011-12-31", "2011-12-31 04:00"),
        # Clocks that go back at midnight: Goose Bay, 00:01 to 23:01 of the day before.
        ("America/Goose_Bay", "00:00", "2010-11-07 03:30", "2010-11-07", "2010-11-07 03:00"),
    ],
)
def test_the_run_that_is_due(zone: str, clock: str, now: str, day: str, due_at: str) -> None:
    assert nightly.latest_due_run(evening(zone, clock), at(now)) == (date.fromisoformat(day), at(due_at))


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/London", "Australia/Lord_Howe", "America/Santiago"])
@pytest.mark.parametrize("clock", ["00:00", "00:30", "01:30", "02:30", "18:00", "23:45"])
def test_every_date_of_a_year_is_due_at_exactly_one_moment(zone: str, clock: str) -> None:
    vendor, moments = evening(zone, clock), defaultdict(set)
    for hour in range(367 * 24):
        now = at("2026-01-01") + timedelta(hours=hour, minutes=47)
        if hour % 24 == 0 or (now.month in (3, 4, 9, 10, 11) and (now.day <= 8 or now.day >= 24)):
            found = nightly.latest_due_run(vendor, now)
            assert found is not None and found[1] <= now
            moments[found[0]].add(found[1])
    assert all(len(found) == 1 for found in moments.values())
    days = sorted(moments)
    assert days == [days[0] + timedelta(days=n) for n in range(len(days))]


def test_a_vendor_that_works_on_weekdays_has_no_run_at_the_weekend() -> None:
    vendor = evening(weekdays=[1, 2, 3, 4, 5])
    assert nightly.latest_due_run(vendor, at("2026-01-18 20:00")) == (
        date(2026, 1, 16),
        at("2026-01-16 18:00"),
    )  # a Sunday
    assert nightly.latest_due_run(evening(weekdays=[]), at("2026-01-18 20:00")) is None


def test_what_was_due_before_the_vendor_was_known_is_not_due() -> None:
    vendor = evening(created_at=at("2026-01-15 18:01"))
    assert nightly.latest_due_run(vendor, at("2026-01-15 20:00")) is None
    assert nightly.latest_due_run(vendor, at("2026-01-16 18:00")) == (date(2026, 1, 16), at("2026-01-16 18:00"))


@pytest.mark.django_db
def test_the_night_takes_what_was_rendered_before_and_only_of_its_vendor() -> None:
    login, other = known_since(LONG_AGO), known_since(LONG_AGO)
    before, after = rendered(login, 3, "2026-01-15 17:00"), rendered(login, 1, "2026-01-15 18:00:01")
    elsewhere = rendered(other, 1, "2026-01-15 17:00")
    done = nightly.run_night(login.vendor, at("2026-01-15 18:00"), batch=2)
    assert (done.jobs, done.vendors) == (3, {login.vendor_id})
    run = DispatchRun.objects.get()
    assert (run.dispatched, run.local_date, run.missed) == (3, date(2026, 1, 15), False)
    assert run.started_at == run.finished_at == at("2026-01-15 18:00")
    assert set(run.jobs.values_list("pk", flat=True)) == {job.pk for job in before}
    assert not Job.objects.filter(pk__in=[after[0].pk, elsewhere[0].pk]).exclude(status=S.RENDERED).exists()


@pytest.mark.django_db
def test_however_often_it_is_triggered_there_is_one_run_a_night() -> None:
    login = known_since(LONG_AGO)
    for minute in range(0, 360, 30):
        rendered(login, 1, "2026-01-15 17:00")
        nightly.run_night(login.vendor, at("2026-01-15 18:00") + timedelta(minutes=minute))
    assert DispatchRun.objects.get().dispatched == 1
    assert nightly.run_night(login.vendor, at("2026-01-16 18:00")).jobs == 11
    assert DispatchRun.objects.count() == 2


@pytest.mark.django_db
def test_nothing_is_due_in_the_morning_of_a_vendor_that_has_had_its_night() -> None:
    login = known_since(at("2026-01-15 09:00"))
    rendered(login, 1, "2026-01-15 09:30")
    assert nightly.run_night(login.vendor, at("2026-01-15 17:59")).jobs == 0
    assert not DispatchRun.objects.exists()


@pytest.mark.django_db
def test_a_night_that_was_slept_through_is_caught_up_within_six_hours() -> None:
    login = known_since(LONG_AGO)
    rendered(login, 1, "2026-01-15 19:00")  # after the time, before the late start
    assert nightly.run_night(login.vendor, at("2026-01-16 00:00")).jobs == 1
    run = DispatchRun.objects.get()
    assert (run.due_at, run.started_at) == (at("2026-01-15 18:00"), at("2026-01-16 00:00"))


@pytest.mark.django_db
def test_a_night_missed_for_longer_is_flagged_once_and_the_next_one_takes_its_jobs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    login = known_since(LONG_AGO)
    rendered(login, 1, "2026-01-15 17:00")
    for second in (1, 2):
        assert nightly.run_night(login.vendor, at(f"2026-01-16 00:00:0{second}")).jobs == 0
    run = DispatchRun.objects.get()
    assert run.missed and run.started_at is None and run.dispatched == 0
    assert len([line for line in caplog.messages if "was missed" in line]) == 1
    assert nightly.run_night(login.vendor, at("2026-01-16 18:00")).jobs == 1


@pytest.mark.django_db
def test_a_run_that_was_cut_short_goes_on_even_after_its_catch_up_time() -> None:
    login = known_since(LONG_AGO)
    jobs = rendered(login, 5, "2026-01-15 17:00")
    begun = nightly.start_due_run(login.vendor, at("2026-01-15 18:00"))
    assert begun is not None
    waiting = Job.objects.filter(status=S.RENDERED)
    next(dispatch_in_batches(waiting, login.vendor, at("2026-01-15 18:00"), 2, begun))  # and then its process dies
    begun.refresh_from_db()
    assert begun.dispatched == 2 == begun.jobs.count() and begun.finished_at is None
    assert nightly.run_night(login.vendor, at("2026-01-16 09:00")).jobs == 3
    begun.refresh_from_db()
    assert begun.dispatched == 5 == begun.jobs.count() and begun.finished_at == at("2026-01-16 09:00")
    assert not Job.objects.filter(pk__in=[job.pk for job in jobs]).exclude(status=S.DISPATCHED).exists()


@pytest.mark.django_db
def test_a_run_that_died_a_night_ago_is_finished_before_tonights() -> None:
    login = known_since(LONG_AGO)
    assert nightly.start_due_run(login.vendor, at("2026-01-15 18:00"))
    rendered(login, 1, "2026-01-15 17:00")
    rendered(login, 1, "2026-01-16 17:00")
    assert nightly.run_night(login.vendor, at("2026-01-16 18:00")).jobs == 2
    runs = DispatchRun.objects.order_by("local_date")
    assert [(run.dispatched, run.finished_at) for run in runs] == [(1, at("2026-01-16 18:00"))] * 2


@pytest.mark.django_db(transaction=True)
def test_of_many_triggers_at_once_every_job_is_dispatched_and_counted_once() -> None:
    login = known_since(LONG_AGO)
    rendered(login, 50, "2026-01-15 17:00")

    def trigger(_: int) -> int:
        try:
            return nightly.run_night(login.vendor, at("2026-01-15 18:00"), batch=7).jobs
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(trigger, range(6))) == 50
    run = DispatchRun.objects.get()
    assert run.dispatched == 50 == run.jobs.filter(status=S.DISPATCHED).count()
    assert run.finished_at is not None
