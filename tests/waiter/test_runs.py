"""Tasks released by the waiter, run by a real worker: once each, despite kills, retries or chains."""

import os
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from celery import chord

from mailhub.celery import app
from tests import forks
from tests.celery_tasks import again_in_an_hour, again_soon, collect, in_broker, note, notes
from tests.factories import unique
from tests.workers import DEADLINE, Process, environment, worker
from waiter import parking
from waiter import release as releasing
from waiter.models import ParkedTask

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
QUEUE = unique("runs")


@pytest.fixture(scope="module")
def runner(django_db_setup: Any) -> Iterator[Process]:
    with worker(QUEUE) as process:
        yield process


@pytest.fixture
def page() -> str:
    return unique("page")


def release(hours: float) -> int:
    """A sweep at that time."""
    return releasing.release(at=parking.now() + timedelta(hours=hours))


def test_a_task_whose_sweep_was_killed_after_publishing_runs_once(page: str, runner: Process) -> None:
    aside = unique("queue")  # nobody reads it until both publications are there
    note.apply_async([page, "parked"], queue=aside, countdown=3600)

    sweep = parking.now() + timedelta(hours=2)
    assert sweep_and_die(sweep, published=True) == -signal.SIGKILL
    assert releasing.release(sweep + timedelta(seconds=59)) == 0, "the lease of the dead sweep holds"
    assert releasing.release(sweep + timedelta(seconds=61)) == 1
    assert len(in_broker(aside)) == 2
    note.apply_async([page, "last"], queue=aside)

    with worker(aside) as reader:
        reader.until(lambda: "last" in notes(page))
        assert notes(page) == ["parked", "last"]
        assert "published twice" in reader.log()


def test_a_task_whose_sweep_was_killed_before_publishing_runs_once(page: str, runner: Process) -> None:
    note.apply_async([page, "parked"], queue=QUEUE, countdown=3600)

    sweep = parking.now() + timedelta(hours=2)
    assert sweep_and_die(sweep, published=False) == -signal.SIGKILL
    assert releasing.release(sweep + timedelta(seconds=61)) == 1
    note.apply_async([page, "last"], queue=QUEUE)

    runner.until(lambda: "last" in notes(page))
    assert notes(page) == ["parked", "last"]


def test_a_released_task_that_retries_soon_is_not_taken_for_a_double(page: str, runner: Process) -> None:
    again_soon.apply_async([page], queue=QUEUE, countdown=3600)

    release(hours=2)

    runner.until(lambda: len(notes(page)) == 2)
    assert notes(page) == [0, 1]


def test_a_retry_in_an_hour_outlives_the_transaction_that_it_ends(page: str, runner: Process) -> None:
    first = again_in_an_hour.apply_async([page], queue=QUEUE)
    row = runner.until(lambda: ParkedTask.waiting.first())

    assert (row.task_id, row.queue, notes(page)) == (first.id, QUEUE, [0])
    release(hours=2)

    runner.until(lambda: len(notes(page)) == 2)
    assert notes(page) == [0, 1]
    assert not ParkedTask.objects.exists()


def test_a_chord_whose_header_and_body_are_parked_runs_to_its_end(page: str, runner: Process) -> None:
    header = [note.si(page, number).set(queue=QUEUE, ignore_result=False) for number in range(3)]
    # Later than the first sweep asks for, which may still run when the header has ended.
    body = collect.s(page).set(queue=QUEUE, ignore_result=False, countdown=10_800)
    chord(header, body).apply_async(countdown=3600)

    assert release(hours=2) == 3
    runner.until(lambda: ParkedTask.waiting.filter(task=collect.name).exists())
    assert sorted(notes(page)) == [0, 1, 2]

    release(hours=4)
    runner.until(lambda: len(notes(page)) == 4)
    assert sorted(notes(page)[3]) == [0, 1, 2]


def test_a_released_task_goes_back_to_the_queue_while_its_worker_has_no_database(page: str) -> None:
    aside = unique("queue")
    note.apply_async([page, "parked"], queue=aside, countdown=3600)
    release(hours=2)

    with worker(aside, DATABASE_URL="postgres://mailhub@/mailhub?host=/nowhere") as blind:
        blind.until(lambda: "reject requeue=True" in blind.log())
        blind.end()
    assert (len(in_broker(aside)), notes(page)) == (1, [])

    with worker(aside) as reader:
        reader.until(lambda: notes(page))
    assert notes(page) == ["parked"]


def sweep_and_die(time: datetime, published: bool) -> int:
    """A sweep at that time by a process that is killed before its messages go, or before it notes that they went; the
    exit code."""
    die = "die = lambda *_, **__: os.kill(os.getpid(), 9);"
    moment = "parking.published = die;" if published else "after_task_publish.connect(die, weak=False);"
    script = (
        "import django; django.setup(); import os; from celery.signals import after_task_publish;"
        f"from datetime import datetime; from waiter import parking, release; {die} {moment}"
        f"release.release(datetime.fromisoformat('{time.isoformat()}'))"
    )
    variables = environment(DJANGO_SETTINGS_MODULE=os.environ["DJANGO_SETTINGS_MODULE"])
    return forks.run(["-c", script], env=variables, timeout=2 * DEADLINE).returncode


# Revoked


def soon() -> datetime:
    """Within the horizon, so that the broker holds it, and long enough that no worker has begun it."""
    return parking.now() + timedelta(seconds=4)


def ran_last(page: str, queue: str) -> None:
    """A worker that nobody has told of a revoke runs what waits in the queue, and then the last one."""
    note.apply_async([page, "last"], queue=queue, eta=soon() + timedelta(seconds=2))
    with worker(queue) as reader:
        reader.until(lambda: "last" in notes(page))


@pytest.mark.parametrize("by_header", [False, True])
def test_a_task_within_the_horizon_that_is_revoked_while_no_worker_is_up_never_runs(page: str, by_header: bool) -> None:
    queue, stamp = unique("queue"), unique("stamp")
    task = note.si(page, "revoked").set(queue=queue, ignore_result=False)
    task.stamp(batch=stamp)
    result = task.apply_async(eta=soon())
    if by_header:
        app.control.revoke_by_stamped_headers({"batch": [stamp]})
    else:
        result.revoke()
    ran_last(page, queue)
    assert notes(page) == ["last"]
    assert result.state == "REVOKED"


@pytest.mark.parametrize("by_header", [False, True])
def test_a_released_task_that_is_revoked_never_runs_on_a_worker_that_was_not_there_to_hear_it(
    page: str, by_header: bool
) -> None:
    queue, stamp = unique("queue"), unique("stamp")
    task = note.si(page, "revoked").set(queue=queue)
    task.stamp(batch=stamp)
    result = task.apply_async(countdown=3600)
    assert release(hours=2) == 1
    if by_header:
        app.control.revoke_by_stamped_headers({"batch": stamp})
    else:
        result.revoke()
    ran_last(page, queue)
    assert notes(page) == ["last"]


def test_a_stamp_revokes_what_is_parked_and_nothing_else(page: str) -> None:
    mine, other = unique("stamp"), unique("stamp")
    for stamp in (mine, other):
        task = note.si(page, stamp).set(queue=QUEUE)
        task.stamp(batch=stamp)
        task.apply_async(countdown=3600)
    note.apply_async([page, "plain"], queue=QUEUE, countdown=3600)
    app.control.revoke_by_stamped_headers({"batch": [mine], "another": "x"})
    assert ParkedTask.waiting.count() == 2
    app.control.revoke_by_stamped_headers({"batch": other})
    assert [row.task_id for row in ParkedTask.waiting.all()] == [ParkedTask.waiting.get().task_id]


def test_a_revoke_is_forgotten_after_thirty_days() -> None:
    app.control.revoke("a-task")
    parking.forget(parking.now() + timedelta(days=29))
    assert parking.is_revoked([("a-task", "")])
    parking.forget(parking.now() + timedelta(days=31))
    assert not parking.is_revoked([("a-task", "")])


def test_a_lease_of_a_wrong_clock_holds_up_no_release(page: str) -> None:
    note.apply_async([page, "parked"], queue=QUEUE, countdown=3600)
    ParkedTask.objects.update(claimed_until=parking.now() + timedelta(days=400))
    assert release(hours=2) == 1
