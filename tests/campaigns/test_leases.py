"""Leases are renewed for all streams of a process together, and only of those that live."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.claiming.leases import Leases, renew
from campaigns.claiming.letters import Lease
from campaigns.connections import SharedRows
from campaigns.finishing import finalizer
from campaigns.models import Job
from tests import factories
from tests.calling import by_sender
from tests.campaigns.test_claims_and_answers import locked
from tests.campaigns.test_locks import somebody_waits
from tests.faults.sending import meanwhile
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
EVERY = 0.05


@pytest.fixture(autouse=True)
def _often(settings: Any) -> None:
    settings.HEARTBEAT_SECONDS = EVERY


class Rows(SharedRows):
    """Counts its statements."""

    statements = 0

    async def execute(self, statement: Any, params: Any = None) -> Any:
        self.statements += 1
        return await super().execute(statement, params)


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
            async with asyncio.timeout(30):
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
    assert by_sender(lambda rows: renew(rows, leases(jobs))) == renewed() == {stopped.pk, well.pk}


def test_a_job_that_somebody_has_locked_keeps_no_other_from_being_renewed_and_is_renewed_next() -> None:
    """Before anyone takes it away who has waited for the same lock, later than its sender."""
    held, *free = sent(3)

    async def story(rows: Rows, kept: Leases) -> None:
        with ExitStack() as streams:
            for lease in leases([held, *free]):
                streams.enter_context(kept.kept(lease))()
            await seen(lambda: renewed() == {job.pk for job in free}, "the others are renewed")
            await seen(somebody_waits, "its renewal waits for the lock")
            with meanwhile(finalizer.recover, held.pk, timedelta(minutes=1)) as recovering:
                await asyncio.to_thread(release)
                assert not await asyncio.to_thread(recovering.result)

    with locked(Job.objects.filter(pk=held.pk)) as release:
        with_leases(story)
    assert renewed() == {job.pk for job in (held, *free)}


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
            async with asyncio.timeout(30):
                while rows.statements < 4:
                    lives()
                    await beats(0.5)
        await kept.close()
        await rows.close(float("inf"))

    asyncio.run(story())
    assert renewed() == {job.pk}
