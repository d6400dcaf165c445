"""Leases are renewed for all streams of a process together, and only of those that live."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine.claiming.leases import LOCKED_SECONDS, Leases, renew_leases
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.connections import SharedRows
from campaigns.engine.finishing import finalizer
from campaigns.models import Job
from tests import factories
from tests.calling import by_sender
from tests.campaigns.test_claims_and_answers import locked
from tests.faults.sending import meanwhile
from tests.waiting import in_time, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
EVERY = 0.05


@pytest.fixture(autouse=True)
def _often(settings: Any) -> None:
    settings.HEARTBEAT_SECONDS = EVERY


class Rows(SharedRows):
    """Counts its statements."""

    statements = over = 0

    async def execute(self, statement: Any, params: Any = None) -> Any:
        self.statements += 1
        try:
            return await super().execute(statement, params)
        finally:
            self.over += 1


def sent(number: int, **fields: Any) -> list[Job]:
    """Jobs whose leases were renewed an hour ago."""
    login = factories.credential()
    fields = {"status": "SENDING", "fence": 2, "heartbeat_at": timezone.now() - HOUR, **fields}
    return [factories.campaign_with_job(1, of=login, messages=False, **fields) for _ in range(number)]


def leases(jobs: list[Job]) -> list[Lease]:
    return [Lease(job.pk, 2) for job in jobs]


def renewed() -> set[int]:
    return set(Job.objects.filter(heartbeat_at__gt=timezone.now() - HOUR / 2).values_list("pk", flat=True))


def with_leases(story: Callable[[Rows, Leases], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        rows = Rows(2)
        kept = Leases(rows)
        try:
            return await story(rows, kept)
        finally:
            await kept.close()
            await rows.close(float("inf"))

    return asyncio.run(whole())


async def seen(holds: Callable[[], Any], what: str) -> None:
    """In a thread, which keeps no connection."""

    def look() -> None:
        try:
            wait_until(holds, what)
        finally:
            connection.close()

    await asyncio.to_thread(look)


async def beats(number: float) -> None:
    await asyncio.sleep(number * EVERY)


def test_one_statement_renews_those_of_all_streams_that_live_and_of_no_other() -> None:
    many = sent(20)
    silent, ended, *well = leases(many)

    async def story(rows: Rows, kept: Leases) -> int:
        with ExitStack() as streams:
            alive = [streams.enter_context(kept.kept(lease)) for lease in (silent, *well)]
            with kept.kept(ended) as lives:
                lives()
            for lives in alive[1:]:
                lives()
            async with in_time("the leases are renewed"):
                while not rows.statements:
                    await beats(1)
            await beats(2)
        return rows.statements

    assert with_leases(story) == 1, "nobody has said since then that it lives"
    assert renewed() == {lease.job_id for lease in well}


def test_a_lease_that_another_sender_has_taken_or_that_is_over_is_not_renewed() -> None:
    """A stop does not end it: what is in flight is still recorded."""
    [taken, back, stopped, well] = jobs = sent(4)
    Job.objects.filter(pk=taken.pk).update(fence=3)
    Job.objects.filter(pk=back.pk).update(status="DISPATCHED", heartbeat_at=None)
    Job.objects.filter(pk=stopped.pk).update(status="STOPPED", stopped_at=timezone.now())
    assert by_sender(lambda rows: renew_leases(rows, leases(jobs))) == set(), "nobody has locked one"
    assert renewed() == {stopped.pk, well.pk}


def test_a_job_that_somebody_has_locked_keeps_no_other_from_being_renewed_and_is_renewed_when_that_is_over() -> None:
    """No connection waits for it, no sweep takes it away, and its stream, which waits too, says nothing meanwhile."""
    held, too, *free = sent(4)
    minute = timedelta(minutes=1)

    async def story() -> None:
        rows = Rows(1)
        kept = Leases(rows)
        with ExitStack() as streams:
            for job in (held, too):
                streams.enter_context(kept.kept(Lease(job.pk, 2)))()
            await seen(lambda: rows.statements > 2, "they are tried again")
            for job in free:
                streams.enter_context(kept.kept(Lease(job.pk, 2)))()
            await seen(lambda: renewed() == {job.pk for job in free}, "the others are renewed")
            with meanwhile(to_recover) as found:
                assert await asyncio.to_thread(found.result) == []
            await asyncio.to_thread(release)
            await seen(lambda: renewed() == {job.pk for job in (held, too, *free)}, "all are renewed")
            with meanwhile(finalizer.recover_job, held.pk, minute) as recovering:
                assert not await asyncio.to_thread(recovering.result)
            await beats(2)
            tries = rows.statements
            await asyncio.sleep(2 * LOCKED_SECONDS)
            assert rows.statements == tries, "nothing is locked any more"
        await kept.close()
        await rows.close(float("inf"))

    def to_recover() -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")
        return finalizer.jobs_to_recover(minute)

    assert set(finalizer.jobs_to_recover(minute)) == {job.pk for job in (held, too, *free)}
    with locked(Job.objects.filter(pk__in=[held.pk, too.pk])) as release:
        asyncio.run(story())


def test_a_stream_that_has_ended_is_not_renewed_when_its_job_is_free_again() -> None:
    [held] = sent(1)

    async def story(rows: Rows, kept: Leases) -> None:
        with kept.kept(Lease(held.pk, 2)) as lives:
            lives()
            await seen(lambda: rows.statements > 1, "it is tried")
        await seen(lambda: rows.over == rows.statements, "no renewal is on its way")
        await asyncio.to_thread(release)
        await asyncio.sleep(2 * LOCKED_SECONDS)

    with locked(Job.objects.filter(pk=held.pk)) as release:
        with_leases(story)
    assert renewed() == set()


def test_while_a_connection_hangs_they_are_renewed_by_another_one(settings: Any, caplog: Any) -> None:
    settings.LEASE_SECONDS = 3.0
    [job] = sent(1)

    class Hanging(Rows):
        async def execute(self, statement: Any, params: Any = None) -> Any:
            return await super().execute(statement if self.statements else "SELECT pg_sleep(60)", params)

    async def story() -> None:
        rows = Hanging(2)
        kept = Leases(rows)
        with kept.kept(Lease(job.pk, 2)) as lives:
            async with in_time("the leases are renewed"):
                while rows.statements < 3:
                    lives()
                    await beats(0.5)
                await seen(lambda: renewed() == {job.pk}, "it is renewed")
                assert not caplog.records, "the first one hangs"
                while not caplog.records:
                    await beats(1)
        await kept.close()
        await rows.close(float("inf"))

    asyncio.run(story())
    assert "1 leases are not renewed: TimeoutError()" in caplog.text


def test_while_the_database_refuses_nothing_ends_and_afterwards_they_are_renewed() -> None:
    [job] = sent(1)

    class Broken(Rows):
        async def execute(self, statement: Any, params: Any = None) -> Any:
            if self.statements < 3:
                statement = "SELECT 1 / 0"
            return await super().execute(statement, params)

    async def story() -> None:
        rows = Broken(1)
        kept = Leases(rows)
        with kept.kept(Lease(job.pk, 2)) as lives:
            async with in_time("the leases are renewed"):
                while rows.statements < 4:
                    lives()
                    await beats(0.5)
            await seen(lambda: renewed() == {job.pk}, "it is renewed")
        await kept.close()
        await rows.close(float("inf"))

    asyncio.run(story())
