"""What streams know of the rows: one statement reads it for all of a process, and each by itself where that fails."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from psycopg import OperationalError

from campaigns.engine.claiming import contexts, receiver_waits
from campaigns.engine.claiming.contexts import Contexts, Followed
from campaigns.engine.claiming.letters import Lease, LeasedJob, load_leased_job
from campaigns.engine.claiming.receiving import ByReceiver, Queued
from campaigns.engine.connections import SharedRows
from campaigns.models import Job
from tests import factories
from tests.calling import started
from tests.waiting import in_time
from vendors.models import ReceiverLimit, ReceiverWait

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 20


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "FIND_OUT", 0.02)


class Rows(SharedRows):
    """Counts its statements; broken: none of them is answered."""

    broken = False
    statements = 0
    others = 0

    async def execute(self, statement: Any, params: Any = None) -> Any:
        self.statements += 1
        self.others += statement != contexts.READ
        if self.broken:
            raise OperationalError("the server is gone")
        return await super().execute(statement, params)


def in_a_loop(test: Callable[[Rows, Contexts], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        rows = Rows(1)
        read = Contexts(rows)
        try:
            await test(rows, read)
        finally:
            await read.close()
            await rows.close(float("inf"))

    asyncio.run(run())


def leased(size: int = 3, **login: Any) -> LeasedJob:
    vendor = factories.vendor(settings={"url": "http://127.0.0.1:9/"}, limits=[(7, 60)])
    credential = factories.credential(vendor, **login)
    job = factories.campaign_with_job(size, of=credential, status="ENQUEUED", fence=1, heartbeat_at=timezone.now())
    return load_leased_job(started(job))


async def until(of: Followed, holds: Callable[[Any], bool]) -> None:
    async with in_time("the context is read"):
        while not holds(await of.newest_context()):
            await asyncio.sleep(0.01)


def test_however_many_streams_there_are_one_statement_reads_what_all_must_know() -> None:
    jobs = [leased(size) for size in range(1, MANY + 1)]

    async def test(rows: Rows, read: Contexts) -> None:
        kept = [read.follow_job(job) for job in jobs]
        followed = [one.__enter__() for one in kept]
        for one, job in zip(followed, jobs, strict=True):
            assert (await one.newest_context()).ours and (await one.newest_context()).left == job.end - job.first
        began, statements = time.monotonic(), rows.statements
        await asyncio.to_thread(stop, jobs[4])
        await until(followed[4], lambda context: not context.ours)
        for one in followed:
            await until(one, lambda context: context.asked > began)
        assert (await followed[5].newest_context()).ours
        rounds = (time.monotonic() - began) / contexts.FIND_OUT
        assert rows.statements - statements <= rounds + 1, "not one for each stream"
        for one in kept:
            one.__exit__(None, None, None)

    in_a_loop(test)


def waits_of(job: LeasedJob, *receivers: str) -> None:
    """These receivers wait on the job's credential from now on, each longer than the one before."""
    now = timezone.now()
    for number, receiver in enumerate(receivers):
        row = {"since": now, "until": now + timedelta(seconds=600 + number), "seconds": 600, "cause": "us"}
        ReceiverWait.objects.create(credential_id=job.credential_id, receiver=receiver, answer="slow down", **row)
    connection.close()


def waits_end(job: LeasedJob) -> None:
    ReceiverWait.objects.filter(credential=job.credential_id).delete()
    connection.close()


def limited(job: LeasedJob) -> None:
    ReceiverLimit.objects.create(vendor_id=job.vendor_id, receiver="gmail", units=5, seconds=60)
    connection.close()


def test_waits_and_limits_are_read_again_only_after_they_have_changed() -> None:
    job = leased()

    async def test(rows: Rows, read: Contexts) -> None:
        with read.follow_job(job) as one:
            assert (await one.newest_context()).receivers == {}
            before = rows.others
            await asyncio.to_thread(waits_of, job, "gmail", "small.example")
            await until(one, lambda context: context.receivers.keys() == {"gmail", "small.example"})
            await asyncio.to_thread(limited, job)
            await until(one, lambda context: "gmail" in context.scope.receivers)
            await asyncio.to_thread(waits_end, job)
            await until(one, lambda context: not context.receivers)
            ended = time.monotonic()
            await until(one, lambda context: context.asked > ended)  # no statement of before is on its way
            others, began = rows.others, time.monotonic()
            assert others <= before + 2 * 5, "five statements for four changes, each by the stream or for it"
            await until(one, lambda context: context.asked > began + 5 * contexts.FIND_OUT)
            assert rows.others == others

    in_a_loop(test)


def test_of_more_waits_than_are_read_groups_come_first_and_nobody_takes_the_rest_for_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiver_waits, "SEEN_MOST", 3)
    job = leased()
    waits_of(job, "gmail", *(f"d{number}.example" for number in range(5)))

    async def test(rows: Rows, read: Contexts) -> None:
        with read.follow_job(job) as one:
            seen = await one.newest_context()
            assert seen.receivers.keys() == {"gmail", "d4.example", "d3.example"} and not seen.receivers_known
            claimer = ByReceiver(1, 100, clock=lambda: seen.asked)
            claimer.note_context(seen)
            found = ["yahoo", "gmail", *(f"d{number}.example" for number in range(9))]
            claimer._add_to_queues(Queued(n, name, name if n < 2 else "*") for n, name in enumerate(found))
            called = [found[queued.id] for queued in claimer._callable_messages(99)]
            assert called == ["yahoo", "d0.example"], "one of all the others at a time"
            await asyncio.to_thread(waits_end, job)
            await until(one, lambda context: context.receivers_known)
            claimer.note_context(await one.newest_context())
            assert len(claimer._callable_messages(99)) == len(found)

    in_a_loop(test)


def stop(job: LeasedJob) -> None:
    Job.objects.filter(pk=job.lease.job_id).update(status="STOPPED", stopped_at=timezone.now())
    connection.close()


def test_a_stream_whose_context_is_not_read_for_it_reads_it_itself_and_hears_why_it_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contexts, "STALE", 0.1)
    job = leased()

    async def test(rows: Rows, read: Contexts) -> None:
        with read.follow_job(job) as one:
            await one.newest_context()
            rows.broken = True
            with pytest.raises(OperationalError):
                await until(one, lambda context: False)
            rows.broken = False
            back = time.monotonic()
            await until(one, lambda context: context.asked > back)

    in_a_loop(test)


def test_a_context_says_how_long_the_vendor_asked_to_wait_and_never_too_little() -> None:
    soon, later = (leased(retry_after_until=timezone.now() + timedelta(seconds=seconds)) for seconds in (1, 3600))

    async def test(rows: Rows, read: Contexts) -> None:
        with read.follow_job(later) as one:
            assert 0 < (await one.newest_context()).closed_for <= 3600
        with read.follow_job(soon) as one:
            seen = await one.newest_context()
            assert seen.closed_for <= 1
            await asyncio.sleep(seen.closed_for)
            assert seen.closed_for == 0.0, "though it was not read again"
        assert await asyncio.to_thread(over, soon.credential_id)

    in_a_loop(test)


def over(credential_id: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT retry_after_until <= clock_timestamp() FROM vendors_credential WHERE id = %s", [credential_id]
        )
        found = bool(cursor.fetchone()[0])
    connection.close()
    return found


def test_two_senders_of_a_job_have_each_a_context_of_their_own() -> None:
    job = leased()
    former = Lease(job.lease.job_id, job.lease.fence - 1)

    async def test(rows: Rows, read: Contexts) -> None:
        mine, theirs = await contexts.read_contexts(
            rows, [contexts.Read(lease, job.vendor_id, job.credential_id) for lease in (job.lease, former)]
        )
        assert mine.ours and not theirs.ours and [(one.units, one.seconds) for one in mine.scope.limits] == [(7, 60)]

    in_a_loop(test)
