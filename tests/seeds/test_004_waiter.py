"""Document 004, Shoryuken::Waiter, sentence by sentence: what it says and what mailhub does."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings
from django_celery_beat.models import PeriodicTask

from mailhub import installation
from tests.celery_tasks import arguments, in_broker, note
from tests.factories import unique
from waiter import parking
from waiter import release as releasing
from waiter.models import ParkedTask

pytestmark = pytest.mark.django_db
MINUTES_15 = timedelta(minutes=15)


@pytest.fixture
def queue() -> str:
    return unique("queue")


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """The waiter's clock stands still, so that exactly 15 minutes are exactly 15 minutes."""
    at = parking.now()
    monkeypatch.setattr(parking, "now", lambda: at)
    return at


def call(queue: str, due: datetime, *values: Any, **options: Any) -> None:
    note.apply_async([queue, *values], queue=queue, eta=due, **options)


def test_jobs_can_be_scheduled_arbitrarily_far_into_the_future(queue: str, now: datetime) -> None:
    """Allows for jobs to be scheduled arbitrarily far into the future (here: whatever a date can be)."""
    call(queue, now + timedelta(days=36500))

    assert ParkedTask.waiting.filter(queue=queue).exists()


@pytest.mark.parametrize(
    ("delay", "parked"),
    [
        (timedelta(0), False),
        (MINUTES_15, False),
        (MINUTES_15 + timedelta(microseconds=1), True),
        (timedelta(days=1), True),
    ],
)
def test_more_than_15_minutes_is_captured_to_the_table(
    queue: str, now: datetime, delay: timedelta, parked: bool
) -> None:
    """If a job is created with a delay of more than 15 minutes ... 15 minutes or less the native adapter handles it."""
    call(queue, now + delay)

    assert ParkedTask.waiting.filter(queue=queue).exists() is parked
    assert bool(in_broker(queue)) is not parked


def test_a_queue_without_a_table_goes_to_the_native_adapter(queue: str, now: datetime) -> None:
    """If a matching table can't be found ... the native Shoryuken adapters handles it."""
    with override_settings(WAITER_EXCLUDED_QUEUES=[queue]):
        call(queue, now + timedelta(hours=1))

    assert not ParkedTask.objects.filter(queue=queue).exists()
    assert len(in_broker(queue)) == 1


def test_the_poller_looks_every_five_minutes_by_default_and_every_thirty_seconds_if_told(queue: str) -> None:
    """The frequency that tables are queried for scheduleable jobs is 5.minutes by default; delay: 30 # seconds."""
    sweep = PeriodicTask.objects.filter(task="waiter.release")
    installation.sync_beat()
    assert sweep.get().schedule.run_every == timedelta(minutes=5)

    with override_settings(WAITER_SWEEP=timedelta(seconds=30)):
        installation.sync_beat()
    assert sweep.get().schedule.run_every == timedelta(seconds=30)


def test_one_table_serves_all_queues_and_each_message_returns_to_its_own(queue: str, now: datetime) -> None:
    """It would be more cost effective to put all jobs into a single table; the queue is recreated from its name."""
    other = unique("queue")
    call(queue, now + timedelta(hours=1), "here")
    call(other, now + timedelta(hours=1), "there")

    assert releasing.release(now + timedelta(hours=1)) == 2

    assert [arguments(message)[1] for message in in_broker(queue)] == ["here"]
    assert [arguments(message)[1] for message in in_broker(other)] == ["there"]


def test_the_delay_becomes_a_time_and_a_delay_again(queue: str, now: datetime) -> None:
    """delay_seconds is transformed into a timestamp, relative to when the job was created ... and back."""
    note.apply_async([queue], queue=queue, countdown=3600)
    row = ParkedTask.waiting.get(queue=queue)
    assert abs(row.due_at - now - timedelta(hours=1)) < timedelta(minutes=5)  # Celery counts by its own clock

    releasing.release(row.due_at - timedelta(minutes=10))

    assert datetime.fromisoformat(in_broker(queue)[0]["headers"]["eta"]) == row.due_at


def test_only_what_is_due_within_15_minutes_of_the_query_is_found(queue: str, now: datetime) -> None:
    """Any item scheduled no later than 15 minutes from now."""
    due = now + timedelta(hours=1)
    call(queue, due)
    call(queue, due + timedelta(microseconds=1))

    assert releasing.release(due - MINUTES_15) == 1


def test_jobs_of_one_and_the_same_time_do_not_collide(queue: str, now: datetime) -> None:
    """More than one job may be scheduled for the same time; no risk of collision."""
    for number in range(25):
        call(queue, now + timedelta(hours=1), number)

    assert releasing.release(now + timedelta(hours=1)) == 25
    assert [arguments(message)[1] for message in in_broker(queue)] == list(range(25))


def test_they_are_released_in_batches(queue: str, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query returns sets of items, processed into batches of messages (SQS can be sent at most 10)."""
    monkeypatch.setattr(releasing, "BATCH", 10)
    for number in range(25):
        call(queue, now + timedelta(hours=1), number)
    first = parking.claim(now + timedelta(hours=1), now, releasing.BATCH)

    assert [row.pk for row in first] == list(ParkedTask.objects.values_list("pk", flat=True)[:10])
    assert releasing.release(now + timedelta(hours=1, seconds=30)) == 25


def test_two_pollers_that_find_the_same_job_send_it_once(queue: str, now: datetime) -> None:
    """Where the original deletes without a condition and sends from both, a claim is had by one."""
    call(queue, now + timedelta(hours=1))
    due = now + timedelta(hours=1)

    assert len(parking.claim(due, now, limit=10)) == 1
    assert not parking.claim(due, now, limit=10)


def test_the_defaults_are_the_documents() -> None:
    assert settings.WAITER_HORIZON == MINUTES_15
    assert timedelta(minutes=5) == settings.WAITER_SWEEP
