"""Beat's table: rows that mailhub keeps, rows that people keep, and one night a vendor."""

import json
from datetime import time, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.test import override_settings
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask, PeriodicTasks

from mailhub import installation
from mailhub.celery import app
from tests.celery_tasks import in_broker
from tests.factories import vendor
from tests.workers import celery
from vendors.models import Vendor

pytestmark = pytest.mark.django_db


def night_of(one: Vendor) -> PeriodicTask:
    return PeriodicTask.objects.get(task="campaigns.tasks.dispatch_night", args=json.dumps([one.pk]))


def table() -> list[Any]:
    return list(PeriodicTask.objects.order_by("name").values_list("name", "date_changed", "enabled"))


def test_a_migrated_database_has_the_sweeps() -> None:
    installation.sync_beat()

    every = {row.task: row.schedule.run_every for row in PeriodicTask.objects.filter(interval__isnull=False)}

    assert {name: span.total_seconds() for name, span in every.items()} == {
        "campaigns.tasks.sweep": 10,
        "campaigns.tasks.pause_campaigns": 3,
        "campaigns.tasks.settle_doubts": 30,
        "mailhub.tasks.fetch_reports": 60,
        "mailhub.tasks.sweep_drafts": 30,
        "mailhub.tasks.tell_unread_answers": 3600,
        "campaigns.tasks.sweep_sessions": 30,
        "campaigns.tasks.audit": 600,
        "waiter.release": 300,
    }


def test_sessions_of_the_web_that_have_expired_go_every_night() -> None:
    installation.sync_beat()
    for key, age in (("over", timedelta(days=-1)), ("open", timedelta(days=1))):
        Session.objects.create(session_key=key, session_data="", expire_date=timezone.now() + age)

    app.loader.import_default_modules()  # as a worker does when it starts
    night = PeriodicTask.objects.get(task="mailhub.tasks.clear_sessions")
    app.tasks[night.task].apply(throw=True)

    assert (night.crontab.minute, night.crontab.hour) == ("30", "3")
    assert str(night.crontab.timezone) == settings.TIME_ZONE
    assert [row.session_key for row in Session.objects.all()] == ["open"]


def test_a_second_sync_writes_nothing() -> None:
    vendor(dispatch_at=time(9, 30))
    installation.sync_beat()
    before, notified = table(), PeriodicTasks.last_change()

    installation.sync_beat()

    assert table() == before
    assert PeriodicTasks.last_change() == notified


def test_a_sync_that_finds_all_as_it_should_be_takes_no_statement_for_each_row(django_assert_num_queries: Any) -> None:
    """It is made whenever a vendor is saved. Two read, one has others wait, two are the transaction's."""
    for _ in range(3):
        vendor(dispatch_at=time(9, 30))
    installation.sync_beat()

    with django_assert_num_queries(5):
        installation.sync_beat()


def test_beat_is_notified_once_of_all_that_a_sync_writes(django_assert_max_num_queries: Any) -> None:
    """Whoever saves a vendor waits for it."""
    vendor(dispatch_at=time(4, 17))

    with django_assert_max_num_queries(13) as statements:
        installation.sync_beat()

    writes = [one["sql"].split('"')[1] for one in statements if one["sql"].startswith(("INSERT", "UPDATE"))]
    tables = ("crontabschedule", "periodictask", "periodictasks")
    assert sorted(writes) == [f"django_celery_beat_{name}" for name in tables]


def test_a_vendor_has_its_night_at_its_own_local_time_and_weekdays() -> None:
    one = vendor(dispatch_at=time(18, 5), time_zone="Asia/Kathmandu", weekdays=[1, 5, 7])
    installation.sync_beat()

    crontab = night_of(one).crontab

    assert (crontab.minute, crontab.hour, crontab.day_of_week) == ("5", "18", "0,1,5")
    assert str(crontab.timezone) == "Asia/Kathmandu"
    assert str(night_of(one).schedule.tz) == "Asia/Kathmandu"


def test_saving_and_deleting_a_vendor_moves_its_night_and_tells_beat(
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        one = vendor(dispatch_at=time(18))
    notified = PeriodicTasks.last_change()
    with django_capture_on_commit_callbacks(execute=True):
        one.dispatch_at, one.slug = time(19), f"renamed-{one.slug}"
        one.save()

    assert night_of(one).crontab.hour == "19"
    assert one.slug in night_of(one).name
    assert PeriodicTasks.last_change() > notified

    pk = one.pk
    with django_capture_on_commit_callbacks(execute=True):
        one.delete()
    assert not PeriodicTask.objects.filter(args=f"[{pk}]").exists()


def test_a_vendor_that_is_only_paused_leaves_the_table_alone(django_capture_on_commit_callbacks: Any) -> None:
    one = vendor()

    with django_capture_on_commit_callbacks() as callbacks:
        one.save(update_fields=["paused"])

    assert not callbacks


def test_a_person_who_disables_a_row_is_not_overruled() -> None:
    one = vendor()
    installation.sync_beat()
    PeriodicTask.objects.filter(pk=night_of(one).pk).update(enabled=False)

    one.dispatch_at = time(3)
    one.save()
    installation.sync_beat()

    assert not night_of(one).enabled
    assert night_of(one).crontab.hour == "3"


def test_the_rows_of_users_are_left_alone() -> None:
    interval = IntervalSchedule.objects.create(every=10, period="seconds")
    crontab = CrontabSchedule.objects.create(hour="18", minute="0")
    PeriodicTask.objects.create(name="my sweep", task="campaigns.tasks.sweep", interval=interval)
    PeriodicTask.objects.create(name="my night", task="campaigns.tasks.dispatch_night", args="[0]", crontab=crontab)
    mine = PeriodicTask.objects.filter(name__startswith="my ")
    before = list(mine.values())

    installation.sync_beat()

    assert list(mine.values()) == before


def test_what_was_changed_or_deleted_by_hand_is_mended() -> None:
    one = vendor()
    installation.sync_beat()
    PeriodicTask.objects.filter(task="campaigns.tasks.audit").delete()
    wrong = IntervalSchedule.objects.create(every=1, period="days")
    PeriodicTask.objects.filter(pk=night_of(one).pk).update(crontab=None, interval=wrong)

    installation.sync_beat()

    assert PeriodicTask.objects.filter(task="campaigns.tasks.audit").exists()
    assert night_of(one).crontab.hour == "18"
    assert night_of(one).interval is None


def test_a_vendor_without_a_known_time_zone_costs_no_other_vendor_its_night(caplog: Any) -> None:
    wrong, right = vendor(time_zone="Mars/Olympus"), vendor()

    installation.sync_beat()

    assert night_of(right)
    assert wrong.slug in caplog.text


def test_a_vendor_without_weekdays_has_no_night() -> None:
    one = vendor(weekdays=[])
    installation.sync_beat()

    assert not PeriodicTask.objects.filter(args=f"[{one.pk}]").exists()


@override_settings(SWEEP_SECONDS=0.5)
def test_a_sweep_of_half_a_second_stays_one() -> None:
    installation.sync_beat()

    assert PeriodicTask.objects.get(task="campaigns.tasks.sweep").schedule.run_every.total_seconds() == 0.5


def test_migrating_brings_the_table_up_to_date() -> None:
    PeriodicTask.objects.all().delete()

    call_command("migrate", verbosity=0)

    assert PeriodicTask.objects.filter(task="waiter.release").exists()


@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
@override_settings(SWEEP_SECONDS=0.2)
@pytest.mark.slow("processes")
def test_beat_sends_the_tasks_of_these_rows() -> None:
    installation.sync_beat()

    with celery("beat", "--pidfile=", "--loglevel=INFO") as beat:
        beat.until(lambda: "campaigns.tasks.sweep" in {one["headers"]["task"] for one in in_broker("hub")})
