"""What is claimed ahead of the connections is called only while nothing speaks against it (claiming/confirming.py)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine.claiming import confirming, contexts
from campaigns.engine.claiming.claims import Lease, PermittedCall
from campaigns.engine.claiming.confirming import ClaimTerms, Confirmations, read_ticks
from campaigns.engine.connections import SharedRows
from campaigns.engine.journal import NoMarks
from campaigns.engine.sending import call_pool
from campaigns.engine.sending.call_pool import AHEAD_MOST, CallPool
from campaigns.models import Job, Message, Store
from tests import calling, factories
from tests.waiting import DEADLINE, in_time
from vendors.adapters.base import Capabilities, Letter
from vendors.adapters.call_progress import progress
from vendors.causes import AnswerCause
from vendors.condition.feeding import ConditionFeeds
from vendors.models import Credential, Vendor
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

pytestmark = pytest.mark.django_db(transaction=True)

CONNECTIONS, CLAIMED, FULL = 2, 12, 6
DAY = 86_400.0  # seconds


class AnsweredByTest:
    """An adapter of two connections whose calls end with what the test says, when it says so."""

    deadline = 300.0
    concurrency, capabilities = CONNECTIONS, Capabilities(batch_max=1)

    def __init__(self) -> None:
        self.called: list[str] = []
        self.open: list[asyncio.Future[Outcome]] = []

    async def send(self, letters: list[Letter]) -> list[Outcome]:
        self.called += [letter.recipient for letter in letters]
        self.open.append(one := asyncio.get_running_loop().create_future())
        return [await one] * len(letters)

    def is_good(self, outcome: Any) -> bool:
        return isinstance(outcome, Accepted | Refused)

    async def answer(self, outcome: Outcome, most: int = CONNECTIONS) -> None:
        """Answer the open calls, `most` of them, and let the pool take it in."""
        asked, self.open = self.open[:most], self.open[most:]
        for one in asked:
            one.set_result(outcome)
        await turns()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class AddsLetters(AnsweredByTest):
    """Tells of its letters, and asks for one more before each answer."""

    tells_progress = True

    async def send(self, letters: list[Letter]) -> list[Outcome]:
        call = progress.get()
        assert call is not None
        outcomes: list[Outcome] = []
        more = list(letters)
        while len(outcomes) < len(more) and (not outcomes or call.may_begin(len(outcomes))):
            if (letter := call.next_letter()) is not None:
                more.append(letter)
            call.began(len(outcomes))
            outcomes += await super().send(more[len(outcomes) : len(outcomes) + 1])
            call.answered(len(outcomes) - 1, outcomes[-1])
        return outcomes + [NotSent("not begun")] * (len(more) - len(outcomes))


class Ahead:
    """A job of which more is claimed than there are connections."""

    def __init__(self, pool: CallPool, adapter: AnsweredByTest, ask_once: Callable[[], Awaitable[None]]) -> None:
        self.pool, self.adapter, self.ask_once = pool, adapter, ask_once
        self.stored: list[tuple[str, Any]] = []
        self.rechecked: list[int] = []
        self.is_held: Callable[[], bool] = bool

    @property
    def waits_again(self) -> int:
        return sum(isinstance(outcome, NotSent) for _, outcome in self.stored)


def run_ahead(
    job: Job,
    story: Callable[[Ahead], Coroutine[Any, Any, None]],
    suppressed: str = "",
    adds: bool = False,
    by: AnsweredByTest | None = None,
) -> Ahead:
    """Claim ahead for this job and go on with the story. Nobody confirms but the story. adds: as AddsLetters."""
    lease = Lease(job.pk, job.fence)

    async def run(rows: Any) -> Ahead:
        claimed = await calling.claim(rows, job, lease, most=CLAIMED)
        assert claimed.claim
        [seen] = await contexts.read_contexts(rows, [contexts.Read(lease, job.vendor_id, job.credential_id)])
        shared = SharedRows(2)
        confirmations = Confirmations(shared)
        adapter = by or (AddsLetters() if adds else AnsweredByTest())
        leased: Any = SimpleNamespace(
            adapter=adapter, letter=lambda m: Letter(m.reference, m.recipient, "", ""), lease=lease,
            vendor_id=job.vendor_id,
            campaign=SimpleNamespace(created_at=timezone.now(), send_at=None, identity_id=None),
        )  # fmt: skip

        async def write(answers: list[Any], permits: list[str]) -> None:
            ahead.stored += [(call.message.recipient, outcome) for call, outcome in answers]

        async def recheck(position: int) -> None:
            ahead.rechecked.append(position)
            of = {call.message.id: "unsubscribed" for call in pool.waiting if call.message.recipient == suppressed}
            pool.give_back_calls(but=of)

        async def ask_once() -> None:
            await confirmations._ask_once(read_ticks())
            await turns()

        conditions = ConditionFeeds(shared)
        condition = conditions.feed_of(job.credential_id, seen.scope.destination)
        pool = CallPool(
            leased,
            write,
            condition=condition,
            marks=NoMarks(),
            confirmations=confirmations,
            is_held=lambda: ahead.is_held(),
        )
        pool.claims_ahead, pool._took = True, 0.001  # calls are known to be quick
        ahead = Ahead(pool, adapter, ask_once)
        serving = asyncio.create_task(pool.run_calls())
        confirmations.begin_stream(pool, recheck)
        confirmations._asking = serving  # nobody asks by itself
        terms = ClaimTerms(
            job.pk, job.fence, job.vendor_id, job.credential_id, seen.scope.generation, seen.limits_version,
            seen.scope.destination, seen.adoptions, claimed.suppressions,
        )  # fmt: skip
        calls = [PermittedCall(one, claimed.claim, ("p",), time.monotonic() + DAY) for one in claimed.messages]
        pool.submit_calls(calls, {}, terms, read_ticks())
        await turns()
        assert len(adapter.called) == CONNECTIONS and len(pool.waiting) == CLAIMED - CONNECTIONS
        try:
            async with in_time("the story ends"):
                await story(ahead)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await conditions.close()
            await shared.close(float("inf"))
        return ahead

    return calling.by_sender(run)


def sending() -> Job:
    return factories.campaign_with_job(CLAIMED, status="SENDING", fence=2)


@pytest.fixture(autouse=True)
def fresh_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, a confirmation holds until the test says otherwise."""
    monkeypatch.setattr(call_pool, "FRESH", 3600.0)
    monkeypatch.setattr(call_pool, "UNCONFIRMED_MOST", 3600.0)


CHANGES: dict[str, Callable[[Job], object]] = {
    "the job is stopped": lambda job: Job.objects.filter(pk=job.pk).update(status="STOPPED", stopped_at=timezone.now()),
    "another sender has it": lambda job: Job.objects.filter(pk=job.pk).update(fence=3),
    "its campaign is paused": lambda job: Job.objects.filter(pk=job.pk).update(paused_at=timezone.now()),
    "the vendor is paused": lambda job: Vendor.objects.filter(pk=job.vendor_id).update(paused=True),
    "the credential is paused": lambda job: Credential.objects.filter(pk=job.credential_id).update(paused=True),
    "the vendor asked to wait": lambda job: Credential.objects.filter(pk=job.credential_id).update(
        retry_after_until=timezone.now() + timedelta(hours=1)
    ),
    "the credential is braked": lambda job: Credential.objects.filter(pk=job.credential_id).update(
        braked_at=timezone.now(), retry_after_until=timezone.now() + timedelta(hours=1)
    ),
    "a person holds the brake": lambda job: Credential.objects.filter(pk=job.credential_id).update(
        brake_held_at=timezone.now()
    ),
    "limits were edited": lambda job: Vendor.objects.filter(pk=job.vendor_id).update(limits_version=10**6),
    "its window is rebuilt": lambda job: Vendor.objects.filter(pk=job.vendor_id).update(generation=10**6),
    "the vendor is called elsewhere": lambda job: Vendor.objects.filter(pk=job.vendor_id).update(
        settings={"url": "http://127.0.0.1:9"}
    ),
    "the credential is another one": lambda job: Credential.objects.filter(pk=job.credential_id).update(
        secret={"token": "another"}
    ),
    "the store was taken over": lambda job: Store.objects.update(timeline="another"),
    "the tables are migrated": lambda job: Store.objects.update(tables=""),
    "the store was adopted": lambda job: Store.objects.update(adoptions=10**6),
}


def in_a_thread(work: Callable[[], object]) -> None:
    try:
        work()
    finally:
        connection.close()


@pytest.mark.parametrize("why", CHANGES)
def test_after_a_change_nothing_that_was_claimed_ahead_is_called(why: str) -> None:
    job = sending()

    async def story(ahead: Ahead) -> None:
        await asyncio.to_thread(in_a_thread, lambda: CHANGES[why](job))
        await ahead.ask_once()
        assert not ahead.pool.waiting
        await ahead.adapter.answer(Accepted("v"))
        while ahead.pool.in_flight:
            await ahead.pool.wait_for_result(60)

    ahead = run_ahead(job, story)
    assert len(ahead.adapter.called) == CONNECTIONS and ahead.waits_again == CLAIMED - CONNECTIONS
    assert ahead.pool.first_given_back == job.first_message + CONNECTIONS


def test_what_was_claimed_ahead_is_called_if_nothing_changed() -> None:
    async def story(ahead: Ahead) -> None:
        while ahead.pool.in_flight:
            await ahead.ask_once()
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(sending(), story)
    assert len(ahead.adapter.called) == CLAIMED and not ahead.waits_again


def test_without_a_confirmation_no_waiting_call_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(ahead: Ahead) -> None:
        ahead.pool._confirmed_until = 0.0  # as after FRESH seconds
        await ahead.adapter.answer(Accepted("v"))
        assert len(ahead.adapter.called) == CONNECTIONS
        await ahead.ask_once()
        assert len(ahead.adapter.called) == 2 * CONNECTIONS
        ahead.pool.give_back_calls()
        await ahead.adapter.answer(Accepted("v"))

    run_ahead(sending(), story)


def test_without_a_confirmation_for_long_what_waits_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database too far away for a fresh answer holds nobody up: claims are as large as the connections then."""

    async def story(ahead: Ahead) -> None:
        monkeypatch.setattr(call_pool, "FRESH", 0.0)  # an answer is never in time
        ahead.pool._confirmed_until = ahead.pool._gives_up = 0.0
        await ahead.adapter.answer(Accepted("v"))
        await ahead.ask_once()
        while ahead.pool.in_flight:
            await ahead.pool.wait_for_result(60)

    ahead = run_ahead(sending(), story)
    assert len(ahead.adapter.called) == CONNECTIONS and ahead.waits_again == CLAIMED - CONNECTIONS


def test_calls_with_a_free_connection_at_their_claim_wait_for_no_confirmation() -> None:
    """A claim may take long. Its calls are allowed all the same, as many as there are connections."""

    async def story(ahead: Ahead) -> None:
        pool, waited = ahead.pool, list(ahead.pool.waiting)
        pool.give_back_calls()
        await ahead.adapter.answer(Accepted("v"))
        while pool.in_flight:
            await pool.wait_for_result(60)
        pool._confirmed_until = 0.0
        assert pool.terms is not None
        pool.submit_calls(waited[:CONNECTIONS], {}, pool.terms, 0.0)
        await turns()
        assert len(ahead.adapter.called) == 2 * CONNECTIONS and not pool.waiting
        await ahead.adapter.answer(Accepted("v"))

    run_ahead(sending(), story)


def test_under_other_terms_what_was_claimed_before_is_given_back() -> None:
    """Its permits are of limits that somebody has edited since."""
    job = sending()

    async def story(ahead: Ahead) -> None:
        pool = ahead.pool
        assert pool.terms is not None
        newer = pool.terms._replace(limits_version=pool.terms.limits_version + 1, suppressions=10**6)
        pool.submit_calls([], {}, newer, read_ticks())
        assert not pool.waiting and pool.terms == newer
        await ahead.adapter.answer(Accepted("v"))
        while pool.in_flight:
            await pool.wait_for_result(60)

    ahead = run_ahead(job, story)
    assert len(ahead.adapter.called) == CONNECTIONS and ahead.waits_again == CLAIMED - CONNECTIONS


def test_a_row_of_refusals_that_others_have_filled_holds_what_waits() -> None:
    async def story(ahead: Ahead) -> None:
        ahead.is_held = lambda: True
        await ahead.adapter.answer(Accepted("v"))
        await ahead.ask_once()
        assert len(ahead.adapter.called) == CONNECTIONS
        ahead.is_held = bool
        await ahead.ask_once()
        assert len(ahead.adapter.called) == 2 * CONNECTIONS, "it was contradicted"
        ahead.pool.give_back_calls()
        await ahead.adapter.answer(Accepted("v"))

    run_ahead(sending(), story)


def test_rows_that_cannot_be_asked_give_back_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(ahead: Ahead) -> None:
        monkeypatch.setattr(confirming, "CONFIRM", "SELECT 1 / 0")
        await ahead.ask_once()
        assert not ahead.pool.waiting
        await ahead.adapter.answer(Accepted("v"))

    ahead = run_ahead(sending(), story)
    assert len(ahead.adapter.called) == CONNECTIONS


def test_a_recipient_suppressed_meanwhile_is_not_called_and_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    job = sending()
    last = Message.objects.order_by("-pk").values_list("recipient", flat=True)[0]

    async def story(ahead: Ahead) -> None:
        await asyncio.to_thread(in_a_thread, lambda: Vendor.objects.filter(pk=job.vendor_id).update(suppressions=10**6))
        while ahead.pool.in_flight:
            await ahead.ask_once()
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(job, story, suppressed=last)
    assert ahead.rechecked == [10**6], "once is enough"
    assert last not in ahead.adapter.called and len(ahead.adapter.called) == CLAIMED - 1


TROUBLE: dict[str, Outcome] = {
    "no connection": NotSent("no connection"),
    "a wait": NotSent("slow down", retry_after=30.0, scope="credential"),
    "a receiver that asks to wait": NotSent("slow down", retry_after=30.0, scope="receiver"),
    "a refused login": NotSent("login refused", pause=True),
}


@pytest.mark.parametrize("what", TROUBLE)
def test_trouble_costs_no_more_calls_than_there_are_connections(what: str, monkeypatch: pytest.MonkeyPatch) -> None:

    async def story(ahead: Ahead) -> None:
        await ahead.adapter.answer(TROUBLE[what])
        assert not ahead.pool.waiting and ahead.pool.claim_reach == ahead.pool.size
        while ahead.pool.in_flight:
            await ahead.pool.wait_for_result(60)

    ahead = run_ahead(sending(), story)
    assert len(ahead.adapter.called) == CONNECTIONS and ahead.waits_again >= CLAIMED - CONNECTIONS


@pytest.mark.parametrize("what", TROUBLE)
def test_a_claim_that_comes_after_trouble_is_not_called(what: str) -> None:
    """It is small enough for the connections that are free again."""

    async def story(ahead: Ahead) -> None:
        pool = ahead.pool
        late = [*pool.waiting][:1]
        await ahead.adapter.answer(TROUBLE[what])
        while pool.in_flight:
            await pool.wait_for_result(60)
        pool.submit_calls(late, {}, pool.terms, read_ticks())
        await turns()
        await ahead.adapter.answer(Accepted("v"))

    ahead = run_ahead(sending(), story)
    assert len(ahead.adapter.called) == CONNECTIONS and ahead.waits_again > CLAIMED - CONNECTIONS


def test_doubts_cost_no_more_calls_than_there_are_connections() -> None:
    async def story(ahead: Ahead) -> None:
        await ahead.adapter.answer(InDoubt("no answer"))
        while ahead.pool.in_flight > len(ahead.pool.waiting):
            await ahead.pool.wait_for_result(60)
        await ahead.ask_once()
        assert len(ahead.pool.waiting) == CLAIMED - CONNECTIONS and ahead.pool.claim_reach == ahead.pool.size
        ahead.pool.give_back_calls()

    ahead = run_ahead(sending(), story)
    assert len(ahead.adapter.called) == CONNECTIONS


def test_a_row_of_refusals_that_is_full_ends_before_the_next_call() -> None:
    """From the third one on, calls wait for the answers before them to be stored, which tells whether it is full."""

    async def story(ahead: Ahead) -> None:
        ahead.is_held = lambda: len(ahead.stored) >= FULL
        answered = 0
        while answered < FULL:
            while not ahead.adapter.open:
                await ahead.ask_once()
            answered += len(ahead.adapter.open)
            await ahead.adapter.answer(Refused("554", "not this one", cause=AnswerCause.UNKNOWN))
            while len(ahead.stored) < answered:
                await ahead.pool.wait_for_result(60)
        await ahead.ask_once()
        ahead.pool.give_back_calls()

    ahead = run_ahead(sending(), story)
    assert len(ahead.adapter.called) == FULL


@pytest.mark.parametrize(("took", "reach"), [(0.0, 2), (0.1, 2), (0.01, 20), (0.0001, AHEAD_MOST)])
def test_as_much_is_claimed_as_is_called_in_a_tenth_of_a_second(took: float, reach: int) -> None:
    async def story(ahead: Ahead) -> None:
        ahead.pool._took = took
        assert ahead.pool.claim_reach == reach
        ahead.pool.claims_ahead = False
        assert ahead.pool.claim_reach == CONNECTIONS
        ahead.pool.give_back_calls()
        await ahead.adapter.answer(Accepted("v"))

    run_ahead(sending(), story)


def test_answers_are_stored_together_while_calls_wait_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_pool, "MOMENT_MOST", DEADLINE)

    async def story(ahead: Ahead) -> None:
        while ahead.pool.waiting:
            assert not ahead.stored
            await ahead.adapter.answer(Accepted("v"))
        while ahead.pool.in_flight:
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)
        assert len(ahead.stored) == CLAIMED

    run_ahead(sending(), story)


def test_what_waits_is_added_to_the_calls_and_called_once() -> None:
    async def story(ahead: Ahead) -> None:
        assert len(ahead.pool.waiting) == CLAIMED - CONNECTIONS, "those that were added have not begun"
        while ahead.pool.in_flight:
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(sending(), story, adds=True)
    assert len(ahead.adapter.called) == len(set(ahead.adapter.called)) == CLAIMED and not ahead.waits_again
    assert ahead.pool.calls_made == CONNECTIONS


@pytest.mark.parametrize("slow_one", [Accepted("slow"), InDoubt("no reply")])
def test_what_was_added_behind_a_slow_reply_goes_over_a_free_connection(
    slow_one: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay may take minutes for one mail. The one behind it is called once, before that reply has come."""
    monkeypatch.setattr(call_pool, "ADDED_SECONDS", 0.0)

    async def story(ahead: Ahead) -> None:
        slow, *ahead.adapter.open = ahead.adapter.open
        while len(ahead.stored) < CLAIMED - 1:
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)
            await ahead.ask_once()
        assert len(ahead.adapter.called) == CLAIMED
        slow.set_result(slow_one)
        while ahead.pool.in_flight:
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(sending(), story, adds=True)
    assert len(set(ahead.adapter.called)) == len(ahead.stored) == CLAIMED and not ahead.waits_again
    assert [outcome for _, outcome in ahead.stored if outcome != Accepted("v")] == [slow_one]


@pytest.mark.parametrize("why", ["the job is stopped", "nobody confirms"])
def test_what_was_added_to_a_call_does_not_begin_after_a_change(why: str) -> None:
    job = sending()

    async def story(ahead: Ahead) -> None:
        if why in CHANGES:
            await asyncio.to_thread(in_a_thread, lambda: CHANGES[why](job))
            await ahead.ask_once()
        else:
            ahead.pool._confirmed_until = ahead.pool._gives_up = 0.0
        while ahead.pool.in_flight:
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(job, story, adds=True)
    assert len(ahead.adapter.called) == CONNECTIONS and ahead.waits_again == CLAIMED - CONNECTIONS
    assert ahead.pool.first_given_back == job.first_message + 1, "it was added to the first call"


def test_a_recipient_suppressed_after_its_letter_was_added_to_a_call_is_not_called() -> None:
    job = sending()
    added = Message.objects.order_by("pk").values_list("recipient", flat=True)[1]

    async def story(ahead: Ahead) -> None:
        await asyncio.to_thread(in_a_thread, lambda: Vendor.objects.filter(pk=job.vendor_id).update(suppressions=10**6))
        await ahead.ask_once()
        while ahead.pool.in_flight:
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(job, story, suppressed=added, adds=True)
    assert added not in ahead.adapter.called and len(ahead.adapter.called) == CLAIMED - 1


class InBatches(AnsweredByTest):
    capabilities = Capabilities(batch_max=CLAIMED // CONNECTIONS)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_batch_that_is_too_large_for_a_call_goes_on_only_if_nothing_changed(
    is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its later calls begin when the vendor has answered the first one, perhaps a minute after their claim."""
    monkeypatch.setattr("campaigns.engine.claiming.letters.CALL_SIZE", -1)  # each letter needs a call of its own
    job = sending()

    async def story(ahead: Ahead) -> None:
        ahead.pool._confirmed_until = 0.0
        if is_stopped:
            await asyncio.to_thread(in_a_thread, lambda: CHANGES["the job is stopped"](job))
        while ahead.pool.in_flight:
            await ahead.ask_once()
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(job, story, by=InBatches())
    called = CONNECTIONS if is_stopped else CLAIMED
    assert len(ahead.adapter.called) == len(set(ahead.adapter.called)) == called
    assert ahead.waits_again == CLAIMED - called


def take_out(pool: CallPool) -> list[PermittedCall]:
    """Take out all waiting calls but those added to others: a later claim may have them."""
    calls = [*pool._waiting]
    pool._waiting.clear()
    pool.in_flight -= len(calls)
    return calls


def claim_one_more(pool: CallPool, calls: list[PermittedCall]) -> None:
    pool.submit_calls([calls.pop()], {}, pool.terms, read_ticks())


async def a_later_claim_is_small(ahead: Ahead) -> None:
    """One connection is free again, and a letter was added to the call of the other one."""
    calls = take_out(ahead.pool)
    await ahead.adapter.answer(Accepted("v"), most=1)
    ahead.adapter.open.reverse()
    await ahead.adapter.answer(Accepted("v"), most=1)
    assert len(ahead.pool.waiting) == ahead.pool._busy == 1
    claim_one_more(ahead.pool, calls)
    await turns()


async def a_claim_for_free_connections(ahead: Ahead) -> None:
    """A call asks for its next letter before a free connection has taken it."""
    pool, adapter = ahead.pool, ahead.adapter
    calls = take_out(pool)
    while adapter.open:
        await adapter.answer(Accepted("v"))
    await ahead.ask_once()
    claim_one_more(pool, calls)
    await turns()
    claim_one_more(pool, calls)
    assert pool._busy == 1 and pool.add_letter([]) is not None
    await turns()


@pytest.mark.parametrize("how", [a_later_claim_is_small, a_claim_for_free_connections])
@pytest.mark.parametrize("why", ["the job is stopped", "nobody confirms"])
def test_an_added_letter_is_confirmed_also_where_later_calls_need_none(
    how: Callable[[Ahead], Awaitable[None]], why: str, settings: Any
) -> None:
    settings.CLAIM_AHEAD_SECONDS = DEADLINE
    job = sending()

    async def story(ahead: Ahead) -> None:
        await how(ahead)
        [added] = ahead.pool.waiting
        if why in CHANGES:
            await asyncio.to_thread(in_a_thread, lambda: CHANGES[why](job))
            await ahead.ask_once()
            assert not ahead.pool.waiting
        else:
            ahead.pool._confirmed_until = 0.0
        while ahead.adapter.open:
            await ahead.adapter.answer(Accepted("v"))
        assert added.message.recipient not in ahead.adapter.called

    run_ahead(job, story, adds=True)


def test_an_added_letter_does_not_begin_after_the_latest_time_of_its_call(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mail before it took long, and its campaign's hours are over."""
    settings.CLAIM_AHEAD_SECONDS = DEADLINE

    async def story(ahead: Ahead) -> None:
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * DAY)
        monkeypatch.setattr(call_pool, "time", later)
        while ahead.pool.in_flight:
            await ahead.adapter.answer(Accepted("v"))
            await ahead.pool.wait_for_result(0.01)

    ahead = run_ahead(sending(), story, adds=True)
    assert len(ahead.adapter.called) == CONNECTIONS and ahead.waits_again == CLAIMED - CONNECTIONS


def test_a_letter_that_cannot_be_made_when_it_is_asked_for_is_not_lost(settings: Any) -> None:
    """An error of ours ends the stream. Without that its job would never end."""
    settings.CLAIM_AHEAD_SECONDS = DEADLINE

    async def story(ahead: Ahead) -> None:
        def fails(_: Any) -> Letter:
            raise RuntimeError("a mistake of ours")

        waiting = len(ahead.pool.waiting)
        ahead.pool._job.letter = fails  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            ahead.pool.add_letter([])
        assert len(ahead.pool.waiting) == waiting

    run_ahead(sending(), story, adds=True)


def test_a_receiver_that_asks_to_wait_within_a_round_ends_what_waits_at_once() -> None:
    """The round goes on. Before it ends, the wait is stored, and forgotten here."""

    async def story(ahead: Ahead) -> None:
        call = take_out(ahead.pool)[0]
        ahead.pool._waiting.append(call)
        ahead.pool.in_flight += 1
        ahead.pool.take_answers((call,), [TROUBLE["a receiver that asks to wait"]], 0.0)
        ahead.pool.receivers_refused.clear()
        assert not ahead.pool.waiting

    run_ahead(sending(), story)
