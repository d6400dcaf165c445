"""Limits of a sender's claims: the calls that its connections can make together, in rounds or one by one."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from django.utils import timezone

from campaigns.content.attachments import AttachmentCache
from campaigns.engine import ground_truth
from campaigns.engine.claiming import letters
from campaigns.engine.claiming.claims import ClaimedMessage, OpenClaim, PermittedCall
from campaigns.engine.claiming.letters import CALL_SIZE
from campaigns.engine.claiming.pricing import ByCost
from campaigns.engine.connections import SharedRows
from campaigns.engine.sending import call_pool
from campaigns.engine.sending.call_pool import CallPool
from campaigns.models import CampaignFile, Message, StoredFile
from tests import calling
from tests.faults.sending import login, taken
from tests.waiting import DEADLINE, in_time
from vendors.adapters.base import Attachment, Capabilities, Letter
from vendors.limits.values import Scope
from vendors.outcomes import Accepted


class Slow:
    """An adapter; the test decides about the end of its calls."""

    deadline = 300.0

    def __init__(self, concurrency: int, batch: int) -> None:
        self.concurrency, self.capabilities = concurrency, Capabilities(batch_max=batch)
        self.rounds: list[int] = []
        self.began, self.over = asyncio.Event(), asyncio.Event()

    async def send(self, letters: list[Letter]) -> list[Accepted]:
        self.rounds.append(len(letters))
        self.began.set()
        await self.over.wait()
        return [Accepted("1")] * len(letters)

    def is_good(self, outcome: Any) -> bool:
        return True


def ticket(number: int) -> PermittedCall:
    message = ClaimedMessage(number, f"{number}-0", "ann@example.org", {})
    return PermittedCall(message, OpenClaim(1, timezone.now(), 6), (f"place:{number}",), float("inf"))


def leased(adapter: Any, letter: Callable[[ClaimedMessage], Letter]) -> Any:
    """Return the facts about a job that a pool needs."""
    campaign = SimpleNamespace(created_at=timezone.now(), send_at=None)
    lease = SimpleNamespace(job_id=1)
    return SimpleNamespace(adapter=adapter, letter=letter, lease=lease, vendor_id=1, campaign=campaign)


async def beside_a_round_that_is_not_full() -> None:
    slow = Slow(concurrency=2, batch=5)
    job = leased(slow, lambda m: Letter(m.reference, m.recipient, "", ""))
    stored: list[int] = []

    async def write(answers: list[Any], permits: list[str]) -> None:
        stored.extend(call.message.id for call, _ in answers)

    pool = CallPool(job, write)
    assert pool.free_places == pool.size == 10
    serving = asyncio.create_task(pool.run_calls())
    pool.submit_calls([ticket(0)], {})
    assert pool.free_places == 9, "nobody has begun"
    async with in_time("the slow call begins"):
        await slow.began.wait()
    assert slow.rounds == [1] and pool.free_places == 5, "only the other connection can call at once"
    pool.submit_calls([ticket(number) for number in range(1, 6)], {})
    assert pool.free_places == 0
    slow.over.set()
    async with in_time("all calls end"):
        while pool.in_flight:
            await pool.wait_for_result(60)
    assert sorted(stored) == list(range(6)) and slow.rounds == [1, 5] and pool.free_places == 10
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_beside_a_round_that_is_not_full_no_more_is_claimed_than_the_others_can_call_at_once() -> None:
    uvloop.run(beside_a_round_that_is_not_full())


class InTurn(Slow):
    """Its calls are answered when the test says so, each by itself. takes: seconds of the test's clock of a call."""

    def __init__(self, concurrency: int, clock: "Clock", takes: float) -> None:
        super().__init__(concurrency, batch=1)
        self._clock, self._takes = clock, takes
        self.open: list[asyncio.Event] = []

    async def send(self, letters: list[Letter]) -> list[Accepted]:
        self.open.append(over := asyncio.Event())
        await over.wait()
        self._clock.now += self._takes
        return [Accepted("1")] * len(letters)


class Clock:
    """The pool's clock; only the test moves it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Moment:
    """How long answers may wait for each other; only the test says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.has(DEADLINE)

    def has(self, seconds: float) -> None:
        self._patch.setattr(call_pool, "MOMENT_MOST", seconds)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Gathering:
    """A pool of connections in use, whose first answers have shown how long calls and storing answers take."""

    def __init__(
        self,
        connections: int,
        *,
        call: float,
        storing: float,
    ) -> None:
        self._clock, self.storing = Clock(), storing
        self.adapter = InTurn(connections, self._clock, call)
        job = leased(self.adapter, lambda m: Letter(m.reference, m.recipient, "", ""))
        self.pool = CallPool(job, self._write)
        self.stored, self._numbers = list[int](), itertools.count()

    async def _write(self, answers: list[Any], permits: list[str]) -> None:
        self._clock.now += self.storing
        self.stored.append(len(answers))

    async def run(self, story: Callable[["Gathering"], Awaitable[None]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(call_pool, "time", self._clock)
            serving = asyncio.create_task(self.pool.run_calls())
            try:
                async with in_time("the call is stored"):
                    await self.call(1)
                    self.answer(1)
                    await self.all_stored()
                    self.stored.clear()
                    await story(self)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def call(self, number: int) -> None:
        self.pool.submit_calls([ticket(next(self._numbers)) for _ in range(number)], {})
        while len(self.adapter.open) < number:
            await asyncio.sleep(0)

    def answer(self, number: int) -> None:
        for over in self.adapter.open[:number]:
            over.set()
        del self.adapter.open[:number]

    async def all_stored(self) -> None:
        while self.pool.in_flight:
            await self.pool.wait_for_result(60)


async def are_stored_together(of: Gathering) -> None:
    connections = of.adapter.concurrency
    await of.call(connections)
    for _ in range(connections):
        of.answer(1)
        await turns()
        assert of.stored == [] or not of.adapter.open
    await of.all_stored()
    assert of.stored == [connections]
    half = connections // 2
    await of.call(half)
    free = asyncio.create_task(of.pool.wait_for_free())
    await turns()
    assert not free.done(), "half of the connections are worth a claim, but all are about to be free"
    of.answer(half)
    await free
    assert of.pool.free_places == connections and of.stored == [connections, half]


async def are_claimed_for_when_more_than_half_are_free(of: Gathering, moment: Moment) -> None:
    of.storing = 1
    await of.call(8)
    moment.has(0)
    of.answer(1)
    while not of.stored:
        await of.pool.wait_for_result(60)
    moment.has(DEADLINE)
    free = asyncio.create_task(of.pool.wait_for_free())
    await turns()
    moment.has(0)
    for stored in range(2, 6):
        await turns()
        assert not free.done()
        of.answer(1)
        while len(of.stored) < stored:
            await of.pool.wait_for_result(60)
    await free
    assert of.stored == [1] * 5, "each was stored alone"
    of.answer(3)
    await of.all_stored()


async def are_stored_at_once(of: Gathering) -> None:
    await of.call(of.adapter.concurrency)
    of.answer(1)
    while of.pool.in_flight == of.adapter.concurrency:
        await of.pool.wait_for_result(60)
    assert of.stored == [1], "the others are on their way"
    of.answer(of.adapter.concurrency - 1)
    await of.all_stored()


async def wait_for_one_that_is_late(of: Gathering) -> None:
    await of.call(8)
    of.answer(7)
    while of.pool.in_flight > 1:
        await of.pool.wait_for_result(60)
    assert sum(of.stored) == 7, "a slow answer holds up its own connection only"
    of.answer(1)
    await of.all_stored()


async def do_not_wait_where_the_connections_are_not_the_limit(of: Gathering) -> None:
    await of.call(3)
    await of.pool.wait_for_free()
    of.answer(1)
    while of.pool.in_flight == 3:
        await of.pool.wait_for_result(60)
    assert of.stored == [1]
    of.answer(2)
    await of.all_stored()


@pytest.mark.parametrize("connections", [8, 100])
def test_answers_wait_for_each_other_where_a_call_takes_less_time_than_storing_one(
    connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Moment(monkeypatch)
    uvloop.run(Gathering(connections, call=1, storing=1000).run(are_stored_together))
    uvloop.run(Gathering(8, call=1, storing=1000).run(do_not_wait_where_the_connections_are_not_the_limit))


@pytest.mark.parametrize(("call", "storing"), [(1, 0), (0.1, 0.01)])
def test_answers_of_slow_calls_are_stored_as_they_come(
    call: float, storing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    Moment(monkeypatch)
    uvloop.run(Gathering(8, call=call, storing=storing).run(are_stored_at_once))


def test_a_claim_waits_until_more_than_half_of_the_connections_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a stream would go on for ever with a large claim and a small one in turns."""
    moment = Moment(monkeypatch)
    of = Gathering(8, call=1, storing=1000)
    uvloop.run(of.run(lambda _: are_claimed_for_when_more_than_half_are_free(of, moment)))


def test_answers_do_not_wait_for_one_that_does_not_come() -> None:
    uvloop.run(Gathering(8, call=1, storing=1000).run(wait_for_one_that_is_late))


async def large_letters() -> None:
    slow = Slow(concurrency=1, batch=6)
    slow.over.set()
    sizes = [CALL_SIZE // 4, CALL_SIZE // 4, CALL_SIZE // 2, 2 * CALL_SIZE, 10, 10]
    files = [(Attachment("a.pdf", "application/pdf", bytes(size)),) for size in sizes]
    job = leased(slow, lambda m: Letter(m.reference, m.recipient, "", "", attachments=files[m.id]))
    stored: list[int] = []

    async def write(answers: list[Any], permits: list[str]) -> None:
        stored.extend(call.message.id for call, _ in answers)

    pool = CallPool(job, write)
    serving = asyncio.create_task(pool.run_calls())
    pool.submit_calls([ticket(number) for number in range(6)], {})
    async with in_time("all calls end"):
        while pool.in_flight:
            await pool.wait_for_result(60)
    assert slow.rounds == [2, 1, 1, 2] and stored == list(range(6))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_letters_that_are_too_large_together_go_out_in_several_calls() -> None:
    uvloop.run(large_letters())


@pytest.mark.django_db(transaction=True)
def test_a_letter_that_was_priced_and_is_found_to_be_accepted_keeps_no_other_from_being_claimed() -> None:
    """Its acceptance is learned from a delivery report, after its letter was made and before it is claimed."""
    job = taken(2, login("http://127.0.0.1:9", unit="segment"))
    type(job.campaign).objects.filter(pk=job.campaign_id).update(body="x" * 200)  # two segments
    lease = calling.started(job)
    loaded = letters.load_leased_job(lease)

    async def one_after_the_other(rows: Any) -> list[list[int]]:
        by_cost, found = ByCost(loaded), []
        for number in range(2):
            await by_cost.read_ahead(rows, Scope(job.vendor_id, job.credential_id, 0), job.first_message, 1)
            need = by_cost.need(1)
            assert need.want == 2
            if number == 0:
                await ground_truth.accept_messages(rows, [(job.first_message, "v-1", 0)])
            most, units = by_cost.fit_messages(need.want)
            claimed = await calling.claim(rows, job, lease, most, units=units)
            found.append([call.message.id for call in by_cost.calls(claimed, ["1", "2"], float("inf"))])
            assert not claimed.nothing_waits
        return found

    assert calling.by_sender(one_after_the_other) == [[], [job.first_message + 1]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("gone", [False, True])
def test_a_letter_is_priced_with_its_files_and_waits_without_them(gone: bool) -> None:
    job = taken(1, login("http://127.0.0.1:9"))
    type(job.vendor).objects.filter(pk=job.vendor_id).update(
        adapter="smtp", settings={"host": "127.0.0.1", "tls": "none", "unit_kb": 10}
    )
    StoredFile.objects.create(sha256=b"x" * 32, size=30_000, content=b"x" * 30_000, asked_at=timezone.now())
    carried = {"name": "report.pdf", "content_type": "application/pdf", "to_all": not gone}
    CampaignFile.objects.create(campaign=job.campaign, file_id=b"x" * 32, **carried)
    fields = {"has_files": True, "file_fields": ["file"] if gone else []}
    type(job.campaign).objects.filter(pk=job.campaign_id).update(**fields)
    Message.objects.filter(pk=job.first_message).update(params={"file": "another.pdf"})
    loaded = letters.load_leased_job(calling.started(job))

    async def look(rows: Any) -> list[Any]:
        cache = SharedRows(1)
        by_cost = ByCost(loaded, AttachmentCache(cache))
        await by_cost.read_ahead(rows, Scope(job.vendor_id, job.credential_id, 0), job.first_message, 1)
        await cache.close(float("inf"))
        need = by_cost.need(1)
        return [need.want, next(iter(by_cost._ahead)).letter]

    want, letter = calling.by_sender(look)
    if gone:
        assert want == 0 and letter.code == "unsendable"
    else:
        assert want == 5 and letter.attachments == (), "40,000 bytes in base64 and the texts begin the fifth ten"
