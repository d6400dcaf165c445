"""The waiter (document 004): parked tasks, their return, and failures in between."""

import asyncio
import os
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Barrier
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import Reject
from django.db import connection, transaction
from django.test import override_settings
from kombu.exceptions import EncodeError

from mailhub.celery import app
from tests import forks
from tests.celery_tasks import again_soon, arguments, collect, in_broker, note
from tests.factories import unique
from tests.ports import free_port
from tests.private_redis import PrivateRedis
from tests.waiting import result_of
from tests.workers import DEADLINE, environment
from vendors.redis_addresses import celery_url
from waiter import parking
from waiter.models import ParkedTask
from waiter.publisher import MARK, BadTime
from waiter.release import release

HOUR = timedelta(hours=1)
SWEEP = "from datetime import timedelta; from waiter import parking; from waiter.release import release;"


@pytest.fixture
def queue() -> str:
    return unique("queue")


def later(**spans: float) -> datetime:
    return parking.now() + timedelta(**spans)


def parked(queue: str) -> list[ParkedTask]:
    return list(ParkedTask.waiting.filter(queue=queue))


def park(queue: str, count: int = 1, due: datetime | None = None) -> list[ParkedTask]:
    for number in range(count):
        note.apply_async([queue, number], queue=queue, eta=due or later(hours=1))
    return parked(queue)


# What is parked


@pytest.mark.django_db
def test_a_message_comes_out_word_for_word_as_the_broker_would_have_had_it(queue: str) -> None:
    due = later(hours=2)
    odd = [datetime(2026, 1, 2, tzinfo=UTC), Decimal("1e2"), uuid.UUID(int=7), b"\x00\xff", "\u0000 ☃", 1e22, 1.0]
    call: dict[str, Any] = {
        "args": odd,
        "kwargs": {"deep": [{"b": (1, 2), "a": None}]},
        "task_id": "the-same",
        "eta": due,
        "expires": due + HOUR,
        "queue": queue,
        "priority": 3,
        "headers": {"x-tenant": "velma"},
        "link": note.s("linked").set(countdown=5),
        "link_error": [note.si("failed")],
        "group_id": "a-group",
        "group_index": 4,
        "chord": note.s("body"),
        "chain": [note.s("next")],
        "time_limit": 30,
        "soft_time_limit": 20,
        "shadow": "known-as",
        "root_id": "root",
        "parent_id": "parent",
        "retries": 2,
        "compression": "zlib",
        "ignore_result": True,
    }
    app.send_task("somebody.elses", **call)
    release(at=due - timedelta(minutes=10))
    with override_settings(WAITER_EXCLUDED_QUEUES=[queue]):
        app.send_task("somebody.elses", **call)

    released, direct = in_broker(queue)

    assert released["headers"].pop(MARK)
    for message in (released, direct):
        del message["properties"]["delivery_tag"]
        assert message["properties"]["priority"] == 3
    assert released["properties"].pop("expiration") == str(70 * 60 * 1000)
    assert direct["properties"].pop("expiration")
    assert released == direct


@pytest.mark.django_db
@pytest.mark.parametrize(
    "call",
    [
        lambda queue: note.apply_async([queue], queue=queue, countdown=3600),
        lambda queue: note.s(queue).set(queue=queue).apply_async(eta=later(hours=1)),
        lambda queue: app.send_task(note.name, [queue], queue=queue, countdown=3600),
        lambda queue: app.send_task("not.of.this.project", [queue], queue=queue, countdown=3600),
        lambda queue: group(note.si(queue)).apply_async(queue=queue, countdown=3600),
        lambda queue: chain(note.si(queue), note.si(queue)).apply_async(queue=queue, countdown=3600),
        lambda queue: chord([note.si(queue).set(queue=queue)], collect.s(queue)).apply_async(countdown=3600),
    ],
    ids=["apply_async", "signature", "by name", "unknown task", "group", "chain", "chord"],
)
def test_every_way_of_calling_a_task_goes_through_the_waiter(queue: str, call: Any) -> None:
    call(queue)

    assert len(parked(queue)) == 1
    assert not in_broker(queue)


@pytest.mark.django_db
def test_the_caller_gets_the_result_of_the_id_that_it_chose(queue: str) -> None:
    result = note.apply_async([queue], queue=queue, countdown=3600, task_id=queue)

    assert result.id == queue == parked(queue)[0].task_id


@pytest.mark.django_db
def test_a_call_whose_transaction_is_rolled_back_was_never_made(queue: str) -> None:
    with transaction.atomic():
        note.apply_async([queue], queue=queue, countdown=3600)
        transaction.set_rollback(True)

    assert not parked(queue)


class Unserialisable:
    pass


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"countdown": float("nan")}, ValueError, "NaN"),
        ({"countdown": float("inf")}, OverflowError, "infinity"),
        ({"eta": "tomorrow"}, BadTime, "'tomorrow' is no time that Celery can read"),
        ({"countdown": 3600, "args": [Unserialisable()]}, EncodeError, "Unserialisable"),
        ({"countdown": 3600, "serializer": "pickle"}, EncodeError, "pickle"),
        ({"countdown": 2 * 86400, "chord": {"task": "body"}}, BadTime, "chord"),
    ],
)
def test_a_wrong_call_is_an_error_at_once_and_leaves_nothing(
    queue: str, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        note.apply_async(**{"args": [queue], "queue": queue, **options})

    assert not parked(queue)
    assert not in_broker(queue)


@pytest.mark.django_db
@pytest.mark.parametrize("eta", [datetime(2090, 1, 1), "2090-01-01T00:00", "20900101T00", "2090-01-01T02:00+02:00"])  # noqa: DTZ001
def test_an_eta_without_a_time_zone_is_utc_as_it_is_for_celery(queue: str, eta: Any) -> None:
    note.apply_async([queue], queue=queue, eta=eta)

    assert [row.due_at for row in parked(queue)] == [datetime(2090, 1, 1, tzinfo=UTC)]


@pytest.mark.django_db
@pytest.mark.parametrize("when", [{"countdown": -3600}, {"eta": datetime(2020, 1, 1)}, {"eta": "2020-01-01"}])  # noqa: DTZ001
def test_what_was_due_before_the_call_goes_at_once_as_it_does_without_the_waiter(queue: str, when: Any) -> None:
    note.apply_async([queue], queue=queue, **when)

    (message,) = in_broker(queue)
    assert datetime.fromisoformat(message["headers"]["eta"]).replace(tzinfo=UTC) < parking.now()
    assert not parked(queue)


@pytest.mark.django_db
def test_a_message_that_expires_at_a_time_without_a_time_zone_comes_back(queue: str) -> None:
    due = later(hours=1)
    note.apply_async([queue], queue=queue, eta=due, expires=(due + HOUR).replace(tzinfo=None))

    assert release(at=due) == 1
    assert in_broker(queue)[0]["properties"]["expiration"] == str(60 * 60 * 1000)


# How it comes back


@pytest.mark.django_db
def test_the_oldest_goes_first_and_all_that_is_due_goes_in_one_sweep(queue: str) -> None:
    start = later(hours=1)
    order = [(number * 7) % 211 for number in range(211)]
    for minute in order:
        note.apply_async([queue, minute], queue=queue, eta=start + timedelta(minutes=minute))

    count = release(at=start + timedelta(minutes=200))

    assert count == 211
    assert [arguments(message)[1] for message in in_broker(queue)] == list(range(211))
    assert not ParkedTask.objects.filter(queue=queue).exists()


@pytest.mark.django_db
def test_what_is_not_due_within_the_horizon_stays(queue: str) -> None:
    due = park(queue)[0].due_at

    assert release(at=due - timedelta(minutes=15, microseconds=1)) == 0
    assert release(at=due - timedelta(minutes=15)) == 1


@pytest.mark.django_db
def test_a_late_message_goes_at_once_and_any_other_keeps_its_time(queue: str) -> None:
    now = later(hours=2)
    park(queue, due=now - timedelta(hours=1))
    park(queue, due=now + timedelta(seconds=1))

    release(at=now)

    late, other = (message["headers"]["eta"] for message in in_broker(queue))
    assert late is None
    assert datetime.fromisoformat(other) == now + timedelta(seconds=1)


@pytest.mark.django_db(transaction=True)
def test_sweeps_that_overlap_share_the_work(queue: str) -> None:
    due = park(queue, count=250)[0].due_at
    together = Barrier(3)

    def sweep() -> int:
        together.wait(DEADLINE)
        try:
            return release(at=due + HOUR)
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as threads:
        counts = [result_of(sweep, "the sweep ends") for sweep in [threads.submit(sweep) for _ in range(3)]]

    assert sum(counts) == 250
    assert sorted(arguments(message)[1] for message in in_broker(queue)) == list(range(250))


@pytest.mark.django_db
def test_a_message_that_cannot_be_published_holds_up_no_other(queue: str) -> None:
    broken, _ = park(queue, count=2)
    ParkedTask.objects.filter(pk=broken.pk).update(message="{")

    assert release(at=later(hours=2)) == 1

    assert parked(queue) == [broken]


@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("processes")
def test_while_the_broker_is_away_everything_is_kept_and_the_next_sweep_publishes_it_once(queue: str) -> None:
    park(queue, count=3, due=later(hours=1))
    script = f"{SWEEP} release(parking.now() + timedelta(hours=2))"
    nowhere = environment(BROKER_URL=f"redis+socket:///nowhere/{queue}", RESULT_BACKEND="disabled://")
    sweep = run(script, nowhere)

    assert "OperationalError" in sweep.stderr
    assert [row.publications for row in parked(queue)] == [0, 0, 0], "none of them went"
    assert release(at=later(hours=3)) == 3
    assert len(in_broker(queue)) == 3


@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("servers")
def test_when_the_broker_dies_while_it_takes_a_batch_nobody_knows_and_all_of_it_is_published_again(queue: str) -> None:
    park(queue, count=3, due=later(hours=1))
    broker = PrivateRedis()
    try:
        with broker.client() as client:
            number = client.info("server")["process_id"]
        script = (
            f"import os; from celery.signals import after_task_publish; {SWEEP} die = lambda **_: os.kill({number}, 9);"
            "after_task_publish.connect(die, weak=False); release(parking.now() + timedelta(hours=2))"
        )
        address = celery_url(broker.url)
        sweep = run(script, environment(BROKER_URL=address, RESULT_BACKEND="disabled://"))
    finally:
        broker.end()

    assert "OperationalError: the broker was lost while it took messages" in sweep.stderr
    assert [row.publications for row in parked(queue)] == [1, 1, 1]
    assert release(at=later(hours=3)) == 3
    assert len(in_broker(queue)) == 3


@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("transport", ["kombu.transport.redis:Transport", "mailhub.broker:TellingTransport"])
@pytest.mark.slow("servers")
def test_while_the_broker_only_reads_everything_is_kept_and_the_next_sweep_publishes_it_once(
    queue: str, transport: str
) -> None:
    """By kombu's transport, as in other projects, and by mailhub's."""
    park(queue, count=3, due=later(hours=1))
    broker = PrivateRedis()
    try:
        with broker.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", str(free_port()))
        ours = f"from kombu import transport; transport.TRANSPORT_ALIASES['redis'] = '{transport}';"
        script = f"{ours} {SWEEP} release(parking.now() + timedelta(hours=2))"
        sweep = run(script, environment(BROKER_URL=celery_url(broker.url), RESULT_BACKEND="disabled://"))
    finally:
        broker.end()

    assert "OperationalError" in sweep.stderr
    assert release(at=later(hours=3)) == 3
    assert len(in_broker(queue)) == 3


@pytest.mark.django_db(transaction=True)
def test_a_released_task_goes_back_to_the_queue_while_the_database_only_reads(queue: str) -> None:
    (row,) = park(queue)
    mark = claim(row)
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            with pytest.raises(Reject) as rejected:
                run_as_received(row, mark)
        finally:
            cursor.execute("SET default_transaction_read_only = off")
    assert rejected.value.requeue
    run_as_received(row, mark)  # it raises nothing once the database takes writes


# What people and programs think better of


@pytest.mark.django_db
def test_a_parked_task_that_is_revoked_never_runs(queue: str) -> None:
    first, second, third = (note.apply_async([queue, n], queue=queue, countdown=3600) for n in range(3))
    first.revoke()
    app.control.revoke([third.id, "nobody-knows"])

    assert [row.task_id for row in parked(queue)] == [second.id]
    assert release(at=later(hours=2)) == 1


@pytest.mark.django_db(transaction=True)
def test_a_task_can_be_parked_out_of_a_running_event_loop(queue: str) -> None:
    async def call() -> str:
        return str(note.apply_async([queue, "parked"], queue=queue, countdown=3600).id)

    called = asyncio.run(call())
    assert [row.task_id for row in parked(queue)] == [called]


# Doubles


def run_as_received(row: ParkedTask, mark: uuid.UUID) -> None:
    """Treat the released message as a worker does before the task's own code."""
    note.push_request(id=row.task_id, **{MARK: [row.pk, str(mark)]})
    try:
        note.before_start(row.task_id, (), {})
    finally:
        note.pop_request()


def claim(row: ParkedTask, **later_by: float) -> uuid.UUID:
    """A sweep takes the row, and is never heard of again."""
    (claimed,) = parking.claim(row.due_at, later(**later_by), limit=1)
    assert claimed.claim
    return claimed.claim


@pytest.mark.django_db
def test_of_two_publications_only_the_one_received_first_may_run(queue: str) -> None:
    (row,) = park(queue)
    first, second = claim(row), claim(row, hours=1)

    assert parking.receive(row.pk, second, later())
    assert not parking.receive(row.pk, first, later())
    assert parking.receive(row.pk, second, later()), "the broker delivers the winner again: it runs again"
    assert not parked(queue)


@pytest.mark.django_db
def test_a_message_that_was_cancelled_while_it_may_be_in_the_broker_does_not_run(queue: str) -> None:
    (row,) = park(queue)
    mark = claim(row)

    assert parking.cancel([row.pk], later()) == [row]
    row.claim = mark
    parking.published([row], later())

    assert not parking.receive(row.pk, mark, later())


@pytest.mark.django_db
def test_what_was_received_after_its_sweep_died_is_not_published_again(queue: str) -> None:
    (row,) = park(queue)

    assert parking.receive(row.pk, claim(row), later())
    assert release(at=later(hours=2)) == 0


@pytest.mark.django_db
def test_a_row_that_kept_doubles_out_goes_after_thirty_days(queue: str) -> None:
    (row,) = park(queue)
    claim(row)
    parking.published(parking.claim(row.due_at, later(hours=1), limit=1), later())

    assert parking.forget(later(days=29)) == 0
    assert parking.forget(later(days=31)) == 1


@pytest.mark.django_db
def test_a_released_task_that_calls_itself_again_is_no_double_of_itself(queue: str) -> None:
    again_soon.apply_async([queue], queue=queue, countdown=0, headers={MARK: [1, str(uuid.uuid4())], "x": 1})

    assert "x" in in_broker(queue)[0]["headers"]
    assert MARK not in in_broker(queue)[0]["headers"]


def run(script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    settings = {"DJANGO_SETTINGS_MODULE": os.environ["DJANGO_SETTINGS_MODULE"]}
    text = f"import django; django.setup(); {script}"
    return forks.run(["-c", text], env=environment | settings, timeout=2 * DEADLINE)
