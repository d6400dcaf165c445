"""Claims and answers meet: whatever comes late, twice, out of order or at once, no message is called twice or lost."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone

from campaigns.engine import ground_truth, lifecycle
from campaigns.engine.claiming import claims, contexts
from campaigns.engine.claiming.claims import Lease, PermittedCall
from campaigns.engine.connections import SharedRows
from campaigns.engine.doubts import queries, resolve
from campaigns.engine.failover import queries as failover_queries
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import recording, sender
from campaigns.engine.sending.recording import CallResult, Recorder
from campaigns.models import AnswerBatch, Claim, Job, Message
from campaigns.operations import actions
from tests import calling, factories
from tests.campaigns.rows import messages, recount
from tests.campaigns.test_locks import breaches
from tests.faults.sending import meanwhile, take_again
from tests.lock_waits import count_lock_waits
from tests.waiting import DEADLINE, in_time, wait_until
from vendors.outcomes import Accepted

pytestmark = pytest.mark.django_db(transaction=True)


def sending(recipients: int, **fields: Any) -> Job:
    return factories.campaign_with_job(recipients, status="SENDING", **{"fence": 2, **fields})


def claim(job: Job, most: int = 100, **params: Any) -> claims.Claimed:
    """What the job's present sender claims."""
    return calling.by_sender(lambda rows: calling.claim(rows, job, Lease(job.pk, job.fence), most=most, **params))


def answered(of: Claim, kinds: str, numbers: list[int] | None = None, **fields: Any) -> AnswerBatch:
    """What a sender stores for these of the claim's messages; a letter for each."""
    ids = [of.messages[number] for number in (numbers if numbers is not None else range(len(kinds)))]
    codes = [
        f"v-{id}" if kind == "a" else "bounce" if kind == "r" else None for id, kind in zip(ids, kinds, strict=True)
    ]
    fields = {"last": False, "codes": codes, **fields}
    return AnswerBatch.objects.create(
        job_id=of.job_id, fence=of.fence, claim_id=of.pk, called_at=of.at, messages=ids, kinds=kinds, **fields
    )


def merged(job: Job) -> str:
    """Merges; returns a letter for each message: waits, Flies, accepted, refused, expired, suppressed, doubt."""
    with transaction.atomic():
        lifecycle.hold_jobs([job.pk])
    return shape(job)


def shape(job: Job) -> str:
    job.refresh_from_db()
    flying = {id for one in Claim.objects.filter(job=job, fence=job.fence) for id in one.messages}

    def letter(m: Message) -> str:
        if m.message_id or m.in_doubt_at:
            return "a" if m.message_id else "d"
        if m.error_code:
            return {"expired": "e", "suppressed": "s"}.get(m.error_code, "r")
        return "F" if m.pk in flying else "w"

    return "".join(map(letter, messages(job)))


def counted(job: Job) -> bool:
    """Whether the job's counters are those of its messages."""
    job.refresh_from_db()
    before = (job.accepted, job.refused, job.expired, job.suppressed, job.in_doubt)
    recount(job)
    return before == (job.accepted, job.refused, job.expired, job.suppressed, job.in_doubt)


def recovered(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(hours=1))
    assert finalizer.recover_job(job.pk, timedelta(minutes=1))
    job.refresh_from_db()


def taken(job: Job) -> None:
    """The next sender has the job."""
    calling.started(take_again(job))
    job.refresh_from_db()


def asked_again(job: Job) -> bool | None:
    async def run(rows: Any) -> bool | None:
        await rows.execute("UPDATE campaigns_message SET settle_at = now() WHERE id = %s", [job.first_message])
        scope = await contexts.read_vendor(rows, job.vendor_id, job.credential_id)
        [doubt] = await queries.lease_due_doubts(rows, job.credential_id, 1, 60)
        return await queries.allow_repeat(rows, scope, doubt, 30, units=1, young=60, closes=None)

    return calling.by_sender(run)


@contextmanager
def while_it_waits(second: Callable[..., Any], *args: Any) -> Iterator[list[Any]]:
    """The block is committed when the second one, in a thread, waits for a lock; then has what it returned."""
    found: list[Any] = []
    with transaction.atomic():
        yield found
        waiting = meanwhile(second, *args)
        future = waiting.__enter__()
        wait_until(lambda: future.done() or count_lock_waits(), "the second one waits for the first")
        assert not future.done(), f"it did not wait: {future.result()}"
    waiting.__exit__(None, None, None)
    found.append(future.result())


def test_an_acceptance_by_a_lost_sender_is_not_lost_beside_a_refusal_that_its_successor_stored_with_it() -> None:
    job = sending(1)
    lost = factories.claim(job)
    recovered(job)
    taken(job)
    answered(lost, "n")
    assert merged(job) == "w"
    again = factories.claim(job)
    answered(again, "r", last=True)
    answered(lost, "a")
    assert merged(job) == "a"
    assert counted(job)


def test_what_was_proved_not_to_be_called_waits_if_the_sender_is_lost_in_the_other_calls_of_its_claim() -> None:
    job = sending(3)
    answered(factories.claim(job, units=[1, 2, 3]), "n", [1])
    assert merged(job) == "FwF"
    recovered(job)
    assert shape(job) == "dwd"
    assert (job.in_doubt, job.units) == (2, 4)


def test_a_proof_of_a_lost_sender_lets_a_message_wait_and_expire() -> None:
    job = sending(2)
    lost = factories.claim(job)
    recovered(job)
    answered(lost, "n", [1])
    taken(job)
    assert merged(job) == "dw"
    assert [breach for breach in breaches() if "ledger" not in breach] == []
    calling.by_sender(
        lambda rows: recording.expire_uncalled(rows, Lease(job.pk, job.fence), job.first_message, job.end)
    )
    assert shape(job) == "de"
    assert counted(job)


def test_answers_of_a_claim_that_the_rows_have_lost_do_not_end_another_claim_of_its_number() -> None:
    """After a failover or a restore numbers are given anew."""
    job, other = sending(2), sending(2)
    new = factories.claim(other)
    before = timezone.now() - timedelta(minutes=1)
    old = Claim(pk=new.pk, job=job, fence=2, at=before, messages=[job.first_message, job.first_message + 1])
    answered(old, "ar", last=True)
    merged(job)
    assert shape(job) == "aw"
    assert shape(other) == "FF"


def test_a_claim_that_waited_for_a_recovery_of_the_store_claims_nothing_that_it_put_in_doubt() -> None:
    job = sending(2)
    now = timezone.now()
    with while_it_waits(claim, job) as found:
        failover_queries.hold_all_jobs()
        assert failover_queries.doubt_granted(job.first_message, job.first_message, job.end, 1, now) == 1
    claimed = found[0]
    assert claimed.claim is None
    assert shape(job) == "dw"


def test_a_claim_that_waited_for_a_report_claims_nothing_that_is_accepted_by_it() -> None:
    job = sending(2)
    with while_it_waits(claim, job) as found, connection.cursor() as cursor:
        lifecycle.hold_jobs([job.pk])
        cursor.execute(ground_truth.ACCEPT, {"ids": [job.first_message], "codes": ["v-1"], "notes": [None], "nos": [0]})
    assert found[0].claim is None and not found[0].nothing_waits
    assert shape(job) == "aw"
    assert [one.id for one in claim(job).messages] == [job.first_message + 1]


def test_what_was_stored_twice_or_after_the_end_of_its_claim_counts_once() -> None:
    job = sending(4)
    of = factories.claim(job)
    for _ in range(2):
        answered(of, "ar", units=[3, 5])
    answered(of, "d", [2], last=True)
    answered(of, "a", [3], last=True)
    assert merged(job) == "arda"
    answered(of, "ar")
    answered(of, "nn", [1, 2], waits=[5, 5])
    assert merged(job) == "arda"
    assert (job.units, job.accepted, job.refused, job.in_doubt) == (10, 2, 1, 1)
    assert counted(job)
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(accepted), sum(refused), sum(in_doubt), sum(units) FROM vendors_minute")
        assert cursor.fetchone() == (2, 1, 1, 10)


@pytest.mark.parametrize("late", "rnd")
def test_a_late_answer_of_the_first_call_says_nothing_of_its_repeat(late: str) -> None:
    job = sending(1)
    lost = factories.claim(job)
    recovered(job)
    assert asked_again(job) is True
    answered(lost, late, last=True)
    assert merged(job) == "d"
    assert asked_again(job) is True  # its key is as old as before
    answered(lost, "a")
    assert merged(job) == "a"
    assert counted(job)


@pytest.mark.parametrize("verb", ["put back", "stop", "recover"])
def test_a_claim_that_is_executed_after_its_sender_has_lost_the_job_claims_nothing(verb: str) -> None:
    job = sending(2, heartbeat_at=timezone.now() - timedelta(hours=1))
    with while_it_waits(claim, job) as found:
        if verb == "put back":
            assert sender.put_back(job.pk, job.fence)
        elif verb == "stop":
            actions.stop_jobs([job.pk])
        else:
            assert finalizer.recover_job(job.pk, timedelta(minutes=1))
    assert found[0].claim is None
    assert not Claim.objects.exists()


def test_nothing_is_claimed_while_an_acceptance_of_an_earlier_sender_waits_to_be_merged() -> None:
    job = sending(1)
    lost = factories.claim(job)
    recovered(job)
    Job.objects.filter(pk=job.pk).update(status="SENT")
    assert finalizer.finalise_job(job.pk)
    resolve.resolve_doubts([job.first_message], "resend", "they rang", "ann")
    answered(lost, "a", last=True)
    Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
    taken(job)
    found = claim(job)
    assert found.claim is None and not found.nothing_waits
    calling.by_sender(lambda rows: lifecycle.merge_answers(rows, [job.pk]))
    assert shape(job) == "a"


def test_an_edit_of_the_vendor_while_a_claim_waits_does_not_keep_it_from_claiming() -> None:
    job = sending(2)
    with while_it_waits(claim, job) as found:
        type(job.vendor).objects.filter(pk=job.vendor_id).update(name="other")
    assert len(found[0].messages) == 2


def test_processes_that_merge_the_same_jobs_at_once_count_each_answer_once() -> None:
    jobs = [sending(40) for _ in range(6)]
    Job.objects.update(vendor_id=jobs[0].vendor_id)
    for job in jobs:
        for first in range(0, 40, 10):
            of = factories.claim(job, range(first, first + 10))
            answered(of, "ardaardana", last=True, waits=[5 if kind == "n" else None for kind in "ardaardana"])
    ids = [job.pk for job in jobs]
    with ExitStack() as threads:
        at_once = [
            meanwhile(calling.by_sender, partial(lifecycle.merge_answers, job_ids=ids[n:] + ids[:n])) for n in range(6)
        ]
        for merging in [threads.enter_context(one) for one in at_once]:
            merging.result()
    assert [shape(job) for job in jobs] == ["ardaardawa" * 4] * 6
    assert all(counted(job) for job in jobs)
    assert not Claim.objects.exists() and not AnswerBatch.objects.exists()


def test_an_answer_that_cannot_be_stored_harms_no_other_stream() -> None:
    jobs = [sending(1), sending(1)]
    calls = [PermittedCall(found.messages[0], found.claim, ("p",), 0.0) for found in map(claim, jobs) if found.claim]

    async def run(_: Any) -> list[Any]:
        rows = SharedRows(2)
        recorder = Recorder(rows)
        outcomes: list[Any] = [Accepted(5), Accepted("v-1")]  # type: ignore[arg-type]  # as an adapter may err
        stores = [
            recorder.store_results(Lease(job.pk, job.fence), [CallResult(call, outcome)])
            for job, call, outcome in zip(jobs, calls, outcomes, strict=True)
        ]
        found = await asyncio.gather(*stores, return_exceptions=True)
        await recorder.close()
        await rows.close(float("inf"))
        return found

    first, second = calling.by_sender(run)
    assert isinstance(first, AttributeError) and second is None
    assert [shape(job) for job in jobs] == ["F", "a"]


def recorded(
    jobs: list[Job], then: Callable[[Recorder, SharedRows], Coroutine[Any, Any, None]], gone: Job | None = None
) -> None:
    """Stores an acceptance of each job's one message by one recorder, goes on with it, and closes it.

    gone: its row is deleted before that.
    """
    calls = [PermittedCall(found.messages[0], found.claim, ("p",), 0.0) for found in map(claim, jobs) if found.claim]
    if gone:
        Job.objects.filter(pk=gone.pk)._raw_delete("default")

    async def run(_: Any) -> None:
        rows = SharedRows(2)
        recorder = Recorder(rows)
        for job, call in zip(jobs, calls, strict=True):
            await recorder.store_results(Lease(job.pk, job.fence), [CallResult(call, Accepted("v-1"))])
        await then(recorder, rows)
        await recorder.close()
        await rows.close(float("inf"))

    calling.by_sender(run)


async def unmerged(rows: SharedRows) -> set[int]:
    """The jobs whose answers are not merged yet."""
    found = await rows.execute("SELECT DISTINCT job_id FROM campaigns_answerbatch")
    return {job_id for (job_id,) in await found.fetchall()}


@contextmanager
def locked(rows: QuerySet[Any]) -> Iterator[Callable[[], None]]:
    """Somebody has locked these rows, until the end of the block or the call."""
    over = threading.Event()

    def lock(done: threading.Event) -> None:
        with transaction.atomic():
            assert list(rows.select_for_update())
            done.set()
            assert over.wait(DEADLINE)

    held = threading.Event()
    with meanwhile(lock, held) as locking:
        try:
            wait_until(lambda: held.is_set() or locking.done(), "the rows are locked")
            yield lambda: (over.set(), locking.result())[1]
        finally:
            over.set()


def test_a_job_that_somebody_has_locked_holds_up_the_answers_of_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MERGE_PATIENCE", DEADLINE)
    _, held, _ = jobs = [sending(1) for _ in range(3)]

    async def end_of_streams(recorder: Recorder, rows: SharedRows) -> None:
        with locked(Job.objects.filter(pk=held.pk)) as release:
            async with in_time("the others are merged", DEADLINE / 4):
                await asyncio.gather(*(recorder.merge_ended(job.pk) for job in jobs))
                while await unmerged(rows) != {held.pk}:
                    await asyncio.sleep(0.02)
            await asyncio.to_thread(release)
            while await unmerged(rows):  # it is merged as soon as it is free
                await asyncio.sleep(0.02)

    recorded(jobs, end_of_streams)
    assert [shape(job) for job in jobs] == ["a"] * 3


def test_answers_of_a_job_that_is_gone_are_not_asked_for_again_and_again() -> None:
    gone, held = jobs = [sending(1) for _ in range(2)]

    async def comes_to_rest(recorder: Recorder, rows: SharedRows) -> None:
        async with in_time("the merging ends", DEADLINE / 4):
            while len(asyncio.all_tasks()) > 1:  # besides this one
                await asyncio.sleep(0.02)
        assert await unmerged(rows) == {gone.pk}

    recorded(jobs, comes_to_rest, gone=gone)
    assert shape(held) == "a"


def test_a_stream_that_waits_no_longer_for_the_merge_of_many_ends_it_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recording, "MERGE_AFTER", DEADLINE)
    monkeypatch.setattr(recording, "MERGE_PATIENCE", 0.1)
    jobs = [sending(1), sending(1)]
    with locked(Message.objects.filter(pk=jobs[0].first_message)) as release:

        async def end_of_streams(recorder: Recorder, rows: SharedRows) -> None:
            async with in_time("the others are merged", DEADLINE / 4):
                await asyncio.gather(*(recorder.merge_ended(job.pk) for job in jobs))
            assert len(await unmerged(rows)) == 2
            await asyncio.to_thread(release)

        recorded(jobs, end_of_streams)
    assert not AnswerBatch.objects.exists() and [shape(job) for job in jobs] == ["a", "a"]
