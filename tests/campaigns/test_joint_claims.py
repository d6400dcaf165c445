"""Streams of a credential claim together: one question for permits, one statement; what befalls one harms no other."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from psycopg import DataError, OperationalError

from campaigns.engine import audit, lifecycle
from campaigns.engine.claiming import claims, contexts, joint
from campaigns.engine.claiming.claims import ByCount, InOrder
from campaigns.engine.claiming.contexts import SendContext
from campaigns.engine.claiming.joint import MOST, JointClaims
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.claiming.limits import Need
from campaigns.engine.claiming.permits import Permits
from campaigns.engine.claiming.rebuild import rebuild_window
from campaigns.engine.claiming.waiting import Answer, NotGranted, Permitted, WantedClaim
from campaigns.engine.connections import CLAIMING, Connections, SharedRows
from campaigns.engine.failover import recovery
from campaigns.engine.quiet_hours import QuietWatch
from campaigns.engine.sending import sender
from campaigns.engine.threads import cut_off
from campaigns.models import Claim, Job, Message, Sponsor, SponsorTurn
from campaigns.operations import actions, pausing
from tests import factories
from tests.campaigns.test_claims_and_answers import answered, locked
from tests.faults.sending import meanwhile, nobody_claims
from tests.faults.test_29_lost_replies import through
from tests.lock_waits import count_lock_waits
from tests.postgres_proxy import PostgresProxy
from tests.waiting import DEADLINE, in_time, wait_until
from vendors import redis_clients
from vendors.history import Actor
from vendors.limits.throttle import AsyncThrottle, Throttle
from vendors.limits.values import AcquireResult, Scope, Wait, share_out
from vendors.models import Credential, Usage, Vendor

pytestmark = pytest.mark.django_db(transaction=True)
HOLD = 60.0
T = TypeVar("T")
Story = Callable[["Streams"], Awaitable[Any]]


def jobs(number: int, *limits: tuple[int, float], size: int = 5) -> list[Job]:
    """Return this number of leaves of one credential in state SENDING."""
    login = factories.credential(factories.vendor(limits=limits))
    made = [factories.campaign_with_job(size, of=login, status="SENDING", fence=2) for _ in range(number)]
    throttled(lambda throttle: rebuild_window(throttle, login.vendor_id, 0))
    return made


def throttled(ask: Callable[[Throttle], Any]) -> Any:
    redis = redis_clients.make_client(settings.REDIS_URL)
    try:
        return ask(Throttle(redis))
    finally:
        redis.close()


def in_use(job: Job) -> int:
    """Return the number of occupied places of the vendor's window."""
    return len(throttled(lambda throttle: throttle.places(Scope(job.vendor_id, job.credential_id, 1))[0]))


def tell(found: T | Exception) -> T:
    if isinstance(found, Exception):
        raise found
    return found


class Streams:
    """Streams that claim, without calls. Their view of the rows is read once."""

    def __init__(self, connections: Connections) -> None:
        self.rows, self.joint = connections.claims, JointClaims(connections)
        self._seen: dict[int, SendContext] = {}
        self._begun: set[int] = set()  # jobs whose rounds have begun
        self._connections = connections

    @property
    def permits(self) -> Permits:
        return Permits(self._connections.redis_stores()[0], self.rows)

    def scope(self, job: Job) -> Scope:
        return self._seen[job.pk].scope

    async def claim(
        self, job: Job, most: int | Exception = 10, served: float = 0.0, allowed: bool | Exception = True, **more: Any
    ) -> Answer:
        if job.pk not in self._seen:
            of = contexts.Read(Lease(job.pk, 2), job.vendor_id, job.credential_id)
            [self._seen[job.pk]] = await contexts.read_contexts(self.rows, [of])
        columns = {"cursor": job.first_message, "end": job.end, "closes": None, "claimer": ByCount(), **more}

        def begins() -> int:
            self._begun.add(job.pk)
            return tell(most)

        ask = WantedClaim(
            lease=Lease(job.pk, 2), served=served, most=begins, allowed=lambda: tell(allowed),
            **columns,
        )  # fmt: skip
        seen = self._seen[job.pk]
        return await self.joint.claim_together(seen, seen.adoptions, HOLD, ask)

    async def claimed(self, job: Job, **more: Any) -> Answer:
        """Asks until something is granted, as a stream does."""
        while True:
            answer = await self.claim(job, **more)
            if isinstance(answer, Permitted):
                return answer

    async def begin(self, *claims: tuple[Job, ...]) -> list[asyncio.Task[Answer]]:
        """Start rounds, one for each group of jobs. Returns the tasks of their claims."""
        tasks = []
        for of in claims:
            tasks += [asyncio.create_task(self.claim(job)) for job in of]
            await self.begun(*of)
        return tasks

    async def begun(self, *of: Job) -> None:
        while not {job.pk for job in of} <= self._begun:
            await asyncio.sleep(0)

    async def see(self, *of: Job) -> None:
        """So that all of them ask in the same moment."""
        reads = [contexts.Read(Lease(job.pk, 2), job.vendor_id, job.credential_id) for job in of]
        for job, context in zip(of, await contexts.read_contexts(self.rows, reads), strict=True):
            self._seen[job.pk] = context


def run(story: Story, locked_most: str = lifecycle.LOCKED_BRIEFLY) -> Any:
    async def whole() -> Any:
        connections = Connections()
        connections.claims = SharedRows(CLAIMING, locked_most)
        streams = Streams(connections)
        try:
            return await story(streams)
        finally:
            await streams.joint.close()
            await connections.close()

    return asyncio.run(whole())


def together(*asks: tuple[Job, dict[str, Any]]) -> list[Any]:
    """What comes of it if streams of these jobs ask in the same moment."""

    async def story(streams: Streams) -> list[Any]:
        await streams.see(*(job for job, _ in asks))
        return await asyncio.gather(*(streams.claim(job, **more) for job, more in asks), return_exceptions=True)

    return run(story)


class OnItsWay:
    """Runs its block during a claim: the claim's statement waits for a lock."""

    def __init__(self) -> None:
        self._waits, self._over = threading.Event(), threading.Event()

    async def __aenter__(self) -> None:
        assert await asyncio.to_thread(self._waits.wait, DEADLINE)

    async def __aexit__(self, *_: object) -> None:
        self._over.set()

    def keep(self) -> None:
        """By who holds the lock."""
        wait_until(count_lock_waits, "a claim is on its way")
        self._waits.set()
        assert self._over.wait(DEADLINE)


def with_a_claim_on_its_way(job: Job, story: Callable[[Streams, OnItsWay], Awaitable[Any]]) -> Any:
    on_its_way = OnItsWay()
    with ExitStack() as stack:
        with nobody_claims(job.vendor):
            telling = stack.enter_context(meanwhile(run, lambda streams: story(streams, on_its_way), "0"))
            on_its_way.keep()
        return telling.result()


def ids(answer: Answer) -> list[int]:
    assert isinstance(answer, Permitted), answer
    return [message.id for message in answer.claimed.messages]


def numbers(answers: list[Answer]) -> list[int]:
    return [len(ids(answer)) for answer in answers]


def test_streams_that_ask_in_one_moment_have_one_grant_one_statement_and_a_claim_each() -> None:
    three = jobs(3)
    found = together(*((job, {"most": most}) for job, most in zip(three, (1, 4, 9), strict=True)))
    assert [ids(one) for one in found] == [
        list(range(job.first_message, job.first_message + most)) for job, most in zip(three, (1, 4, 5), strict=True)
    ]
    assert [(one.job_id, one.fence, one.messages) for one in Claim.objects.order_by("job_id")] == [
        (job.pk, 2, ids(one)) for job, one in zip(three, found, strict=True)
    ]
    assert [one.claimed.claim.id for one in found] == list(
        Claim.objects.order_by("job_id").values_list("pk", flat=True)
    )
    usage = Usage.objects.get()
    assert (usage.units, in_use(three[0])) == (10, 10), "what is not used is given back"
    permits = [permit for one in found for permit in one.permits]
    assert len(set(permits)) == 10 and {permit.partition(":")[0] for permit in permits} == {usage.grant}


def test_a_job_that_may_not_be_claimed_for_gets_nothing_and_harms_no_other() -> None:
    stopped, paused, lost, other, closed, left, empty, well = jobs(8)
    Job.objects.filter(pk=lost.pk).update(fence=3)
    answered(factories.claim(left, fence=1), "r", [0])  # by an earlier sender
    Message.objects.filter(pk__gte=empty.first_message, pk__lt=empty.end).update(
        dequeued_at=timezone.now(), error_code="expired"
    )
    asks: list[tuple[Job, dict[str, Any]]] = [(job, {}) for job in (stopped, paused, lost, other, left, empty, well)]
    asks.append((closed, {"closes": timezone.now() - timedelta(seconds=1)}))
    actions.stop_jobs([stopped.pk])
    pausing.pause_jobs([paused.pk], Actor("ann"))
    found = together(*asks)
    assert numbers(found) == [0, 0, 0, 5, 0, 0, 5, 0]
    nothing_waits = [one.claimed.nothing_waits for one in found]
    assert nothing_waits == [one is empty for one, _ in asks]
    assert set(Claim.objects.filter(fence=2).values_list("job", flat=True)) == {other.pk, well.pk}
    assert (Usage.objects.get().units, in_use(well)) == (10, 10)


def test_a_stream_that_may_not_go_on_is_left_out_of_the_statement() -> None:
    one, other = jobs(2)
    assert numbers(together((one, {"allowed": False}), (other, {}))) == [0, 5]
    assert in_use(one) == 5


def test_permits_are_shared_out_equally_and_no_stream_with_many_connections_takes_all() -> None:
    many, few, fewest = jobs(3, (10, 60), size=50)
    assert numbers(together((many, {"most": 1000}), (few, {"most": 8}), (fewest, {"most": 1}))) == [5, 4, 1]


@pytest.mark.parametrize(("weight", "parts"), [(None, [2, 2, 2, 6]), (3, [1, 1, 1, 9])])
def test_a_sponsor_with_one_stream_gets_by_its_weight_what_one_with_three_gets(
    weight: int | None, parts: list[int]
) -> None:
    *of_anton, of_velma = jobs(4, (12, 60), size=20)
    Job.objects.filter(pk__in=[job.pk for job in of_anton]).update(sponsor=factories.sponsor())
    if weight:
        SponsorTurn.objects.create(vendor=of_velma.vendor, sponsor=of_velma.sponsor, weight=weight)
    assert numbers(together(*((job, {}) for job in (*of_anton, of_velma)))) == parts


def test_a_round_takes_a_stream_of_each_sponsor_before_the_second_of_one() -> None:
    many = jobs(MOST + 2, size=1)
    anton = factories.sponsor()
    Job.objects.filter(pk__in=[job.pk for job in many[:-1]]).update(sponsor=anton)

    async def story(streams: Streams, on_its_way: OnItsWay) -> None:
        await streams.see(*many)
        asked = await streams.begin((many[0],), (many[1],))
        async with on_its_way:
            asked += [asyncio.create_task(streams.claim(job, served=float(n))) for n, job in enumerate(many[2:])]
            await asyncio.sleep(0)
        await asyncio.gather(*asked)

    with_a_claim_on_its_way(many[0], story)
    together_with_velma = Claim.objects.get(job=many[-1]).ledger
    assert Claim.objects.filter(ledger=together_with_velma).count() == MOST


def test_who_was_given_permits_longest_ago_comes_first() -> None:
    four = jobs(4, (2, 60))
    found = together(*((job, {"served": served}) for job, served in zip(four, (3.0, 1.0, 4.0, 2.0), strict=True)))
    assert [ids(found[n]) for n in (1, 3)] == [[four[n].first_message] for n in (1, 3)]
    for late in (found[0], found[2], *together((four[0], {}))):
        assert isinstance(late.why, Wait) and late.why.seconds > 5 and late.until is not None


@pytest.mark.parametrize(
    ("units", "wants", "shares"),
    [
        (10, [1000, 3, 3], [4, 3, 3]),
        (3, [5, 5, 5, 5], [1, 1, 1, 0]),
        (100, [1, 2], [1, 2]),
        (0, [1], [0]),
        (0, [0], [0]),
    ],
)
def test_units_are_shared_out_as_equally_as_can_be(units: int, wants: list[int], shares: list[int]) -> None:
    assert share_out(units, wants) == shares


def test_who_asks_while_a_claim_is_on_its_way_is_in_the_next_one_with_all_others_that_wait() -> None:
    first, second, *others = jobs(5)

    async def story(streams: Streams, on_its_way: OnItsWay) -> list[Answer]:
        await streams.see(first, second, *others)
        asked = await streams.begin((first,), (second,))
        async with on_its_way:
            asked += [asyncio.create_task(streams.claim(job)) for job in others]
            await asyncio.sleep(0)
        return await asyncio.gather(*asked)

    assert numbers(with_a_claim_on_its_way(first, story)) == [5] * 5
    assert sorted(Usage.objects.values_list("units", flat=True)) == [5, 5, 15]


def test_a_round_has_an_end_and_nobody_is_forgotten() -> None:
    many = jobs(MOST + 3, size=1)
    assert numbers(together(*((job, {}) for job in many))) == [1] * len(many)
    assert sorted(Usage.objects.values_list("units", flat=True)) == [3, MOST]


def test_what_is_claimed_for_a_stream_that_was_cut_off_is_released_and_the_others_get_theirs() -> None:
    gone, well, other, queued = jobs(4)

    async def story(streams: Streams, on_its_way: OnItsWay) -> list[Answer]:
        await streams.see(gone, well, other, queued)
        first, second, further = await streams.begin((gone, well), (other,))
        async with on_its_way:
            third = asyncio.create_task(streams.claim(queued))
            await asyncio.sleep(0)
            for task in (first, third):
                task.cancel()
            await asyncio.wait((first, third))
        answers = [await second, await further]
        await streams.joint.close()
        return answers

    assert numbers(with_a_claim_on_its_way(gone, story)) == [5, 5]
    assert set(Claim.objects.values_list("job", flat=True)) == {well.pk, other.pk}
    assert sorted(Usage.objects.values_list("units", flat=True)) == [5, 10], "nothing for the one in the queue"
    [again] = together((gone, {}))
    assert len(ids(again)) == 5


def test_a_claim_that_the_stream_did_not_live_to_hear_of_is_released() -> None:
    """It has come, but the stream is cut off before its turn."""
    [job] = jobs(1)

    async def story(streams: Streams) -> None:
        await streams.see(job)
        task = asyncio.create_task(streams.claim(job))
        while not (waiting := task._fut_waiter) or not waiting.done():  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await streams.joint.close()

    run(story)
    assert Usage.objects.get().units == 5 and not Claim.objects.exists()


def test_a_stream_that_was_cut_off_ends_so_also_if_its_claim_ended_in_an_error() -> None:
    [job] = jobs(1)

    async def story(streams: Streams) -> None:
        await streams.see(job)
        task = asyncio.create_task(streams.claim(job, cursor=2**63))
        while not (waiting := task._fut_waiter) or not waiting.done():  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    run(story)
    assert not Claim.objects.exists()


def test_an_ask_that_the_database_refuses_harms_no_other_one() -> None:
    ill, *well = jobs(3)
    first, *others = together((ill, {"cursor": 2**63}), *((job, {}) for job in well))
    assert isinstance(first, DataError) and numbers(others) == [5, 5]
    assert in_use(ill) == 10


def test_who_is_cut_off_before_the_ask_that_the_database_refuses_is_told_of_is_not_claimed_for_any_more() -> None:
    ill, gone, well = jobs(3)

    async def story(streams: Streams) -> list[Any]:
        await streams.see(ill, gone, well)
        asks = [streams.claim(ill, cursor=2**63), streams.claim(gone), streams.claim(well)]
        tasks = [asyncio.create_task(ask) for ask in asks]
        await streams.begun(gone)
        tasks[1].cancel()
        return await asyncio.gather(tasks[0], tasks[2], return_exceptions=True)

    refused, answer = run(story)
    assert isinstance(refused, DataError) and numbers([answer]) == [5]
    assert Usage.objects.get().units == 5 and in_use(well) == 5


def cancel_the_claim() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        assert cursor.fetchone() == (1,)


def test_a_statement_that_was_cancelled_is_repeated_for_each_and_its_permits_are_free_again() -> None:
    """As by a deadlock, or by an operator."""
    two = jobs(2)

    async def story(streams: Streams) -> list[Answer]:
        await streams.see(*two)
        return await asyncio.gather(*(streams.claim(job) for job in two))

    with ExitStack() as stack:
        with nobody_claims(two[0].vendor):
            claiming = stack.enter_context(meanwhile(run, story, "0"))
            wait_until(count_lock_waits, "the claim is on its way")
            cancel_the_claim()
        assert numbers(claiming.result()) == [5, 5]
    assert list(Usage.objects.values_list("units", flat=True)) == [5, 5] and in_use(two[0]) == 10


def test_a_job_that_somebody_has_locked_holds_up_no_other_one_of_its_round() -> None:
    """Nor in the rounds that follow, as long as it is locked; its own stream waits for it."""
    held, *free = three = jobs(3)

    async def story(streams: Streams, release: Callable[[], None]) -> None:
        await streams.see(*three)
        waiting, *others = [asyncio.create_task(streams.claimed(job, most=2)) for job in three]
        async with in_time("the others claim", DEADLINE / 4):
            assert numbers(await asyncio.gather(*others)) == [2, 2]
            again = (streams.claim(job, cursor=job.first_message + 2) for job in free)
            assert numbers(await asyncio.gather(*again)) == [3, 3]
        assert not waiting.done()
        await asyncio.to_thread(release)
        assert numbers([await waiting]) == [2]

    with locked(Job.objects.filter(pk=held.pk)) as release:
        run(lambda streams: story(streams, release))
    assert sorted(Usage.objects.values_list("units", flat=True)) == [2, 4, 6]
    assert in_use(held) == 12, "the permits of the round that was given up are free again"


def test_a_job_that_somebody_has_locked_at_any_time_is_claimed_for_in_its_turn() -> None:
    """By two who hand the lock to each other: who does not stand in the line never finds it free."""
    [job] = jobs(1)
    set_aside, over = threading.Event(), threading.Event()

    def lock_again_and_again() -> None:
        while not over.is_set():
            with transaction.atomic():
                Job.objects.select_for_update().get(pk=job.pk)
                set_aside.wait(DEADLINE)
                over.wait(0.05)

    async def story(streams: Streams) -> Answer:
        assert isinstance(await streams.claim(job), NotGranted)
        set_aside.set()
        async with in_time("it claims", DEADLINE / 4):
            return await streams.claimed(job)

    with meanwhile(lock_again_and_again) as one, meanwhile(lock_again_and_again) as other:
        try:
            wait_until(count_lock_waits, "one has the lock, and the other one waits for it")
            assert numbers([run(story)]) == [5]
        finally:
            set_aside.set()
            over.set()
        one.result(), other.result()


def test_locked_jobs_hold_up_no_other_stream_of_their_process_however_many_they_are() -> None:
    """Each was claimed for alone, so each waited for its lock with one of the two connections that all claims share."""
    held, [free] = [job for _ in range(3) for job in jobs(1)], jobs(1)

    async def story(streams: Streams, release: Callable[[], None]) -> None:
        waiting = [asyncio.create_task(streams.claimed(job)) for job in held]
        await streams.begun(*held)
        async with in_time("the free one claims", DEADLINE / 4):
            for n in range(5):
                assert numbers([await streams.claim(free, most=1, cursor=free.first_message + n)]) == [1]
        assert not any(one.done() for one in waiting)
        await asyncio.to_thread(release)
        assert numbers(await asyncio.gather(*waiting)) == [5, 5, 5]

    with locked(Job.objects.filter(pk__in=[job.pk for job in held])) as release:
        run(lambda streams: story(streams, release))
    assert [in_use(job) for job in held] == [5, 5, 5], "the permits of claims that were given up are free again"


@pytest.mark.parametrize("of", [Vendor, Credential])
def test_a_locked_vendor_or_credential_holds_up_the_streams_of_no_other_vendor(
    of: type[Vendor] | type[Credential],
) -> None:
    held, [free] = jobs(3), jobs(1)
    rows = of.objects.filter(pk=held[0].vendor_id if of is Vendor else held[0].credential_id)

    async def story(streams: Streams, release: Callable[[], None]) -> None:
        waiting = [asyncio.create_task(streams.claimed(job)) for job in held]
        await streams.begun(*held)
        async with in_time("the free one claims", DEADLINE / 4):
            for n in range(5):
                assert numbers([await streams.claim(free, most=1, cursor=free.first_message + n)]) == [1]
        assert not any(one.done() for one in waiting)
        await asyncio.to_thread(release)
        assert numbers(await asyncio.gather(*waiting)) == [5, 5, 5]

    with locked(rows) as release:
        run(lambda streams: story(streams, release))
    assert in_use(held[0]) == 15


async def new_pass(rows: SharedRows, job: Job) -> None:
    lease = Lease(job.pk, 2)
    begin = await rows.run_with_rows(lambda connection: claims.new_pass(connection, lease, job.first_message, job.end))
    assert begin == job.first_message


async def quiet_hours(rows: SharedRows, job: Job) -> None:
    now = timezone.now()
    watch = QuietWatch(job.pk, 2, job.campaign, "sms")
    await watch.put_quiet_off(rows.run_with_rows, range(job.first_message, job.end), now)
    assert watch.until and watch.until > now


@pytest.mark.parametrize("work", [new_pass, quiet_hours])
def test_whatever_else_waits_for_a_lock_leaves_the_connections_to_others(work: Callable[..., Awaitable[None]]) -> None:
    """There are more of them than connections."""
    held, [free] = jobs(CLAIMING + 1), jobs(1)
    Sponsor.objects.update(quiet_from="21:00", quiet_to="08:00", time_zone="Europe/London")

    async def story(streams: Streams, release: Callable[[], None]) -> None:
        waiting = [asyncio.ensure_future(work(streams.rows, job)) for job in held]
        async with in_time("the free one claims", DEADLINE / 4):
            for n in range(5):
                assert numbers([await streams.claim(free, most=1, cursor=free.first_message + n)]) == [1]
        assert not any(one.done() for one in waiting)
        await asyncio.to_thread(release)
        await asyncio.gather(*waiting)

    with locked(Job.objects.filter(pk__in=[job.pk for job in held])) as release:
        run(lambda streams: story(streams, release))


@pytest.mark.parametrize("callback", ["most", "allowed"])
def test_an_error_in_what_a_stream_is_asked_for_is_its_own(callback: str) -> None:
    ill, *well = jobs(3)
    first, *others = together((ill, {callback: KeyError("ill")}), *((job, {}) for job in well))
    assert isinstance(first, KeyError) and numbers(others) == [5, 5]
    assert in_use(ill) == 10


def test_nobody_waits_for_a_round_that_cannot_begin(settings: Any) -> None:
    [job] = jobs(1)
    right, settings.REDIS_URL = settings.REDIS_URL, "gopher://localhost"

    async def story(streams: Streams) -> list[Any]:
        await streams.see(job)
        asks = []
        for settings.REDIS_URL in ("gopher://localhost", right):
            asks += await asyncio.gather(asyncio.wait_for(streams.claim(job), DEADLINE), return_exceptions=True)
        return asks

    first, second = run(story)
    assert isinstance(first, ValueError) and numbers([second]) == [5]


def test_those_for_whom_no_round_can_be_made_are_told_why() -> None:
    two = jobs(2)
    found = together((two[0], {}), (two[1], {"served": "never"}))
    assert [type(one) for one in found] == [TypeError, TypeError]
    assert numbers(together(*((job, {}) for job in two))) == [5, 5]


def test_when_the_reply_to_the_commit_is_lost_all_are_told_and_what_nobody_called_is_free_again() -> None:
    two = jobs(2)
    with PostgresProxy(os.environ["DATABASE_URL"]) as proxy, through(proxy):
        proxy.lose_next(of=lambda statement: "INSERT INTO campaigns_claim" in statement)
        found = together(*((job, {}) for job in two))
        assert len(proxy.lost) == 1
    assert [isinstance(one, OperationalError) for one in found] == [True, True]
    assert Claim.objects.count() == 2, "it was committed"
    for job in two:
        assert sender.put_back(job.pk, 2)
    assert not Claim.objects.exists()


def test_the_window_holds_a_claim_whose_reply_was_lost_as_the_ledger_does() -> None:
    [job] = jobs(1, (7, 60), size=20)
    with PostgresProxy(os.environ["DATABASE_URL"]) as proxy, through(proxy):
        proxy.lose_next(of=lambda statement: "INSERT INTO campaigns_claim" in statement)
        [found] = together((job, {"most": 5}))
        assert isinstance(found, OperationalError) and len(proxy.lost) == 1
    assert numbers(together((job, {"most": 5}))) == [2]
    assert [usage.units for usage in Usage.objects.order_by("pk")] == [5, 2]
    assert [check.examples for check in audit.ask_all_questions() if check.promise == "P4" and not check.is_kept] == []
    trail = throttled(lambda throttle: throttle.granted(job.vendor_id, 1))
    assert [(one.given, one.is_used) for one in trail.grants] == [(2, False)], "nobody calls under the other"


def test_what_was_not_asked_for_is_free_again_at_once() -> None:
    [job] = jobs(1, (7, 60), size=20)

    async def story(streams: Streams) -> Any:
        await streams.see(job)
        await streams.rows.close(time.monotonic())
        with through(PostgresProxy(os.environ["DATABASE_URL"])):  # which does not listen
            return await asyncio.gather(streams.claim(job), return_exceptions=True)

    [found] = run(story)
    assert isinstance(found, OperationalError) and in_use(job) == 0
    assert numbers(together((job, {"most": 7}))) == [7]


def test_claims_and_those_who_hold_many_jobs_never_wait_for_each_other_in_a_circle() -> None:
    six = jobs(6, size=100)

    def hold_again_and_again() -> None:
        for _ in range(30):
            with transaction.atomic():
                lifecycle.hold_jobs([job.pk for job in reversed(six)])

    async def story(streams: Streams) -> None:
        await streams.see(*six)
        for n in range(30):
            asks = (streams.claim(job, most=1, cursor=job.first_message + n) for job in reversed(six))
            assert numbers(await asyncio.gather(*asks)) == [1] * 6

    with meanwhile(hold_again_and_again) as holding:
        run(story)
        holding.result()


def test_a_takeover_that_lost_a_joint_claim_puts_each_jobs_share_in_doubt() -> None:
    three = jobs(3, (7, 60), size=20)
    found = together(*((job, {"most": most}) for job, most in zip(three, (20, 20, 2), strict=True)))
    assert numbers(found) == [3, 2, 2]
    Claim.objects.all().delete()
    Usage.objects.all().delete()
    [loss] = recovery.recover_store(Actor("ann"), "the disk died", since=timezone.now() - timedelta(minutes=1))
    assert (loss.witnessed, loss.calls, loss.messages) == (True, 7, 7)
    doubtful = Message.objects.filter(in_doubt_at__isnull=False)
    doubts = [doubtful.filter(campaign=job.campaign_id).values_list("pk", flat=True) for job in three]
    assert [sorted(of_job) for of_job in doubts] == [ids(one) for one in found]
    assert Usage.objects.get().units == 7


class Asked:
    """How often the throttle was asked for permits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = self.answered = 0
        acquire = AsyncThrottle.acquire

        async def counted(throttle: AsyncThrottle, *of: Any, **more: Any) -> AcquireResult:
            self.times += 1
            try:
                return await acquire(throttle, *of, **more)
            finally:
                self.answered += 1

        monkeypatch.setattr(AsyncThrottle, "acquire", counted)


async def calls(streams: Streams, job: Job, letters: int) -> list[float]:
    """A stream of one connection; its calls take no time. Returns when each was granted."""
    granted = list[float]()
    while len(granted) < letters:
        served = granted[-1] if granted else 0.0
        answer = await streams.claim(job, most=1, served=served, cursor=job.first_message + len(granted))
        if isinstance(answer, Permitted):
            granted.append(asyncio.get_running_loop().time())
            await streams.permits.done(streams.scope(job), answer.permits)
        elif isinstance(answer.why, Wait) and answer.why.seconds:
            await asyncio.sleep(answer.why.seconds)
    return granted


class Costing(InOrder):
    """Make each of the job's letters cost this number of units."""

    def __init__(self, job: Job, units: int) -> None:
        self.job, self.units, self.granted = job, units, 0

    def need(self, most: int) -> Need:
        return Need(most * self.units, self.units)

    def fit_messages(self, units: int) -> tuple[int, dict[int, int]]:
        next_one, letters = self.job.first_message + self.granted, units // self.units
        return letters, dict.fromkeys(range(next_one, next_one + letters), self.units)

    async def read_ahead(self, connection: Any, scope: Scope, cursor: int, most: int) -> None:
        """They are priced already."""

    def calls(self, claimed: Any, permits: Any, latest: float) -> list[Any]:
        raise AssertionError("nobody is called")

    def cursor_after(self, calls: Any, end: int) -> int:
        raise AssertionError("nobody is called")

    def note(self, cursor: int, end: int, want: int) -> str:
        return f"{cursor} {end} {want}"

    def receivers(self) -> None:
        """They are letters to nobody in particular."""


async def letters(streams: Streams, of: Costing, most: int) -> int:
    """Letter by letter, until there are so many; calls take no time."""
    while of.granted < most:
        cursor = of.job.first_message + of.granted
        answer = await streams.claimed(of.job, most=1, claimer=of, cursor=cursor)
        of.granted += len(ids(answer))
        await streams.permits.done(streams.scope(of.job), answer.permits)
    return of.granted


def test_letters_of_several_units_have_their_turn_beside_streams_of_small_ones() -> None:
    """None at all in fifteen seconds was counted, for small ones take what is free before it is enough."""
    costing = [Costing(job, units) for job, units in zip(jobs(4, (6, 1.0), size=1000), (5, 1, 1, 1), strict=True)]

    async def story(streams: Streams) -> None:
        await streams.see(*(of.job for of in costing))
        tasks = [asyncio.create_task(letters(streams, of, 1000)) for of in costing]
        try:
            async with in_time("the dear letters are granted", DEADLINE / 2):
                while costing[0].granted < 5:
                    await asyncio.sleep(0.02)
        finally:
            await cut_off(*tasks)

    run(story)
    small = sum(of.granted for of in costing[1:])
    assert 4 <= small <= 5 * (5 + 6), "at least what a dear one leaves, at most what they get before it is its turn"


def test_streams_that_wait_for_the_same_opening_ask_for_it_once_and_all_get_their_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However they came; and each in its turn, though some come back to the queue earlier than others."""
    six, asked = jobs(6, (1, 0.1)), Asked(monkeypatch)

    async def story(streams: Streams) -> list[list[float]]:
        await streams.see(*six)
        going = []
        for job in six:
            going.append(asyncio.create_task(calls(streams, job, 3)))
            await asyncio.sleep(0.007)
        return await asyncio.gather(*going)

    times = run(story)
    assert asked.times <= 2.5 * 18, "a grant, and sometimes once more as the call before had not ended yet"
    turns = [job for _, job in sorted((at, job) for job, granted in enumerate(times) for at in granted)]
    assert [sorted(turns[n : n + 6]) for n in (0, 6, 12)] == [[*range(6)]] * 3


def test_who_is_cut_off_while_all_wait_keeps_nobody_from_the_opening() -> None:
    """Neither the one whose question was the first, nor all of them."""
    first, second, third = jobs(3, (1, 0.3))
    cut = list[bool]()

    async def story(streams: Streams) -> None:
        await streams.see(first, second, third)
        got = await streams.claim(first, most=1)
        assert isinstance(got, Permitted)
        await streams.permits.done(streams.scope(first), got.permits)
        waiting = [asyncio.create_task(streams.claim(job, most=1)) for job in (second, third)]
        await asyncio.sleep(0.1)
        cut.append(waiting[0].cancel())
        async with in_time("the other one's claim"):
            assert numbers([await waiting[1]]) == [1]
        last = asyncio.create_task(streams.claim(first, most=1, cursor=first.first_message + 1))
        await asyncio.sleep(0.1)
        cut.append(last.cancel())

    run(story)
    late = cut.count(False)  # on a slow machine the window has opened before
    assert Usage.objects.count() == 2 + late, "nothing was claimed for those who were cut off"


@pytest.fixture
def half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long streams wait for a window, and nobody asks before: who is done earlier has not waited for it."""
    monkeypatch.setattr("campaigns.engine.claiming.joint.PATIENCE", 60.0)
    monkeypatch.setattr("campaigns.engine.claiming.waiting.BLIND", 60.0)


@pytest.mark.usefixtures("half_a_minute")
def test_a_stream_waits_in_the_queue_for_a_moment_only_and_nobody_is_asked_again_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has to look whether it may go on; when it comes back it is known when there can be permits."""
    monkeypatch.setattr(joint, "FIND_OUT", 0.05)
    (one, other), asked = jobs(2, (1, 30.0)), Asked(monkeypatch)

    async def story(streams: Streams) -> list[Answer]:
        await streams.see(one, other)
        assert numbers([await streams.claim(one, most=1)]) == [1]
        answers = list[Answer]()
        async with in_time("it is known when there can be permits"):
            while asked.answered < 2:  # the first one was given all that it wanted, so what is left was not known
                answers.append(await streams.claim(other))
        known = asked.times
        answers += [await streams.claim(other) for _ in range(4)]
        assert asked.times == known
        return answers

    assert all(answer == NotGranted(Wait(0.0)) for answer in run(story))


@pytest.mark.usefixtures("half_a_minute")
def test_the_end_of_a_process_does_not_wait_for_the_opening() -> None:
    one, other = jobs(2, (1, 30.0))

    async def story(streams: Streams) -> float:
        await streams.see(one, other)
        await streams.claim(one, most=1)
        waiting = asyncio.create_task(streams.claim(other))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        waiting.cancel()
        began = time.monotonic()
        await streams.joint.close()
        return time.monotonic() - began

    assert run(story) < 15


@pytest.mark.usefixtures("half_a_minute")
def test_permits_that_are_given_back_end_the_wait_for_the_opening() -> None:
    one, other = jobs(2, (2, 30.0), size=1)

    async def story(streams: Streams, on_its_way: OnItsWay) -> float:
        await streams.see(one, other)
        [claiming] = await streams.begin((one,))  # ten permits wanted, two granted, one letter there
        async with on_its_way:
            waiting = asyncio.create_task(streams.claim(other, most=1))
            await asyncio.sleep(0.2)
            assert not waiting.done()
        came = time.monotonic()
        assert numbers([await claiming, await waiting]) == [1, 1]
        return time.monotonic() - came

    assert with_a_claim_on_its_way(one, story) < 15


@pytest.mark.usefixtures("half_a_minute")
def test_a_stream_that_has_something_else_to_do_leaves_the_queue_at_once() -> None:
    one, other = jobs(2, (1, 30.0))

    async def story(streams: Streams) -> None:
        await streams.see(one, other)
        await streams.claim(one, most=1)
        waiting = asyncio.create_task(streams.claim(other))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        streams.joint.leave_queue(Lease(other.pk, 2))
        await asyncio.sleep(0)
        assert waiting.done() and waiting.result() == NotGranted(Wait(0.0))

    run(story)
