"""The nightly dispatch and the waiter in bulk: 100,000 rendered jobs dispatched, 100,000 parked tasks released.

`python -m benchmarks.nightly [rows] [rounds]`.
"""

import resource
import time
from collections.abc import Callable
from datetime import timedelta

from benchmarks.results import keep
from benchmarks.stage import console, in_turns, numbers, show, stage

ROWS = 100_000
RELEASED, PLAIN = "waiter's release", "plain apply_async"


def memory() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(what: str, rows: int, work: Callable[[], int]) -> None:
    before, began = memory(), time.perf_counter()
    done = work()
    seconds = time.perf_counter() - began
    assert done == rows, f"{done} of {rows}"
    keep(f"{what}, {rows:,} rows", "rows/s", {what: [rows / seconds]})
    console.print(f"{what}: {rows:,} in {seconds:.1f} s, {rows / seconds:,.0f}/s; memory +{memory() - before:.0f} MB")


def dispatch(rows: int) -> None:
    from django.db import connection
    from django.utils import timezone

    from campaigns.engine.dispatch import nightly
    from campaigns.models import Job
    from tests import factories

    vendor = factories.vendor(casters=["small-only"], dispatch_at=(timezone.now() - timedelta(minutes=1)).time())
    type(vendor).objects.update(created_at=timezone.now() - timedelta(days=30))
    vendor.refresh_from_db()
    made = factories.campaign(rows, of=factories.credential(vendor), messages=False)
    fields = {"campaign": made, "credential": made.credential, "vendor": vendor, "size": 1, "status": "RENDERED"}
    fields["sponsor"] = made.sponsor
    early = timezone.now() - timedelta(hours=1)
    for low in range(0, rows, 10_000):
        numbers = range(low, min(low + 10_000, rows))
        Job.objects.bulk_create(Job(**fields, first_message=1 + n, created_at=early) for n in numbers)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE campaigns_job")
    timed("nightly dispatch", rows, lambda: nightly.run_night(vendor, timezone.now()).jobs)


COPIES = """
INSERT INTO waiter_parkedtask (due_at, task, task_id, queue, message, parked_at, publications)
SELECT now() + n * interval '1 millisecond', task, n::text, queue, replace(message, task_id, n::text), parked_at, 0
FROM waiter_parkedtask, generate_series(1, %s) n
"""


def release(rows: int, rounds: int) -> None:
    """Compare parked tasks with the same number of direct calls, one after the other: the broker's own cost."""
    from waiter.release import release as sweep

    rates = in_turns({RELEASED: lambda: parked(rows, sweep), PLAIN: lambda: called(rows)}, rounds)
    show(f"The waiter, {rows:,} tasks", rates, PLAIN, "tasks/s")


def parked(rows: int, work: Callable[..., int]) -> float:
    from django.db import connection
    from django.utils import timezone

    from waiter.models import ParkedTask
    from waiter.release import release_parked

    now = timezone.now()
    release_parked.apply_async(eta=now + timedelta(days=1), queue="nobody")
    with connection.cursor() as cursor:
        cursor.execute(COPIES, [rows])
    assert ParkedTask.waiting.count() == rows + 1
    began = time.perf_counter()
    assert work(now) == rows
    seconds = time.perf_counter() - began
    ParkedTask.objects.all().delete()
    empty("nobody")
    return rows / seconds


def called(rows: int) -> float:
    from waiter.release import release_parked

    began = time.perf_counter()
    for _ in range(rows):
        release_parked.apply_async(queue="nobody", countdown=60)
    seconds = time.perf_counter() - began
    empty("nobody")
    return rows / seconds


def empty(queue: str) -> None:
    from mailhub.celery import app

    with app.connection_for_write() as broker:
        broker.default_channel.queue_purge(queue)


def main() -> None:
    rows, rounds = numbers(ROWS, 3)
    with stage():
        dispatch(rows)
        release(rows, rounds)


if __name__ == "__main__":
    main()
