"""Fault 33: what somebody keeps locked, by an operator's command or in psql, holds up nothing else of a process.

The few threads in which a sender process takes, starts and finishes jobs, cuts children and rebuilds windows serve the
others meanwhile, the process ends when it is told to, and the sweep does what is left.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import Any, Self
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from campaigns import tasks
from campaigns.engine.claiming.rebuild import rebuild_lost
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing import sweep as sweeper
from campaigns.engine.lifecycle import LOCKED_BRIEFLY, hold_jobs
from campaigns.engine.pausing import pauses
from campaigns.engine.sending import Sender
from campaigns.engine.sending.sender import Sent
from campaigns.engine.threads import BLOCKING, DatabaseThreads
from campaigns.integrations.results import writer
from campaigns.models import AnswerBatch, Campaign, Claim, Job, Session
from tests import factories
from tests.campaigns.rows import accepted, family, logged, statuses
from tests.campaigns.test_claims_and_answers import locked
from tests.faults.checker import judge, sums
from tests.faults.sending import login, meanwhile, send_the_rest, taken
from tests.installed import installed
from tests.lock_waits import count_lock_waits
from tests.programs import Program, sweeping, wait_until, worker
from tests.sandbox import Sandbox, running
from tests.waiting import DEADLINE, in_time, result_of
from vendors.adapters.http import Http
from vendors.limits.values import Scope
from vendors.models import Credential, Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]
MORE = BLOCKING + 1  # than there are threads
LEASE = timedelta(minutes=1)


def rows(*jobs: Job) -> Any:
    return Job.objects.filter(pk__in=[job.pk for job in jobs])


def a_letter_goes_out(of: Credential) -> None:
    """It is taken, sent and finished."""
    letter = factories.campaign_with_job(1, of=of, status="DISPATCHED")
    notify_vendors([of.vendor_id])
    wait_until(lambda: statuses(letter) == ["LOGGED"], "the letter is sent and its job finished")


def reading(*accounts: Credential) -> Any:
    for account in accounts:
        factories.caster(account.vendor)
    return worker(queues=",".join(["hub", *(account.vendor.queue for account in accounts)]))


@pytest.mark.slow("processes")
def test_a_letter_goes_out_while_jobs_that_are_sent_are_locked_and_the_process_ends_when_it_is_told_to() -> None:
    """Each of their streams has ended, and its verb waits for the job."""
    with running(latency_ms=3000.0) as slow, ExitStack() as stack:
        accounts, free = [login(slow.url) for _ in range(MORE)], login(slow.url)
        held = [factories.campaign_with_job(1, of=account, status="DISPATCHED") for account in accounts]
        program: Program = stack.enter_context(reading(*accounts, free))
        notify_vendors(account.vendor_id for account in accounts)
        wait_until(lambda: Claim.objects.count() == MORE, "all are called")
        with locked(rows(*held)):
            assert {*statuses(*held)} == {"SENDING"}, "they were locked in time"
            wait_until(lambda: AnswerBatch.objects.count() == MORE, "all are answered")
            slow.settings(latency_ms=0.0)
            wait_until(count_lock_waits, "a verb waits")
            a_letter_goes_out(free)
            assert program.end(signal.SIGTERM) == 0
            assert {*statuses(*held)} == {"SENDING"}
        with worker(queues=",".join(["hub", *(account.vendor.queue for account in accounts)])), sweeping():
            wait_until(lambda: {*statuses(*held)} == {"LOGGED"}, "the sweep has all of them finished")
        assert judge(slow.books()) == []
        assert sums()["accepted"] == MORE + 1 and sums()["in doubt"] == 0


@pytest.mark.slow("processes")
def test_a_letter_goes_out_while_the_only_parent_of_another_vendor_is_locked(sandbox: Sandbox) -> None:
    """Each notification has another one of its mailcasters wait for it."""
    large, free = login(sandbox.url), login(sandbox.url)
    parent = factories.campaign_with_job(40, of=large, status="P_QUEUED")
    for _ in range(MORE):
        factories.caster(large.vendor)
    with reading(large, free):
        with locked(rows(parent)):
            for _ in range(MORE):
                notify_vendors([large.vendor_id])
            wait_until(count_lock_waits, "a mailcaster waits")
            a_letter_goes_out(free)
            assert not parent.children.exists()
        with sweeping():
            wait_until(lambda: statuses(parent) == ["P_FINISHED"], "the parent is cut and sent")
    assert judge(sandbox.books()) == [] and sums()["accepted"] == 41


@pytest.mark.parametrize("many", [MORE, 10 * BLOCKING])
def test_locked_jobs_keep_no_other_one_from_being_taken_and_are_taken_when_they_are_free(
    many: int, sandbox: Sandbox
) -> None:
    of = login(sandbox.url)
    held, free = [taken(1, of) for _ in range(many)], taken(1, of)
    with closing(Sender(many=True)) as sender, ExitStack() as stack:
        over = stopped_at_the_end(stack)
        with locked(rows(*held)):
            waiting = [stack.enter_context(meanwhile(sender.send_claimed_job, job.pk, job.fence, over)) for job in held]
            wait_until(count_lock_waits, "one waits")
            going = stack.enter_context(meanwhile(sender.send_claimed_job, free.pk, free.fence, over))
            assert result_of(going, "going ends") == Sent(free.pk)
            assert not any(one.done() for one in waiting)
        assert [result_of(one, "one ends") for one in waiting] == [Sent(job.pk) for job in held]
    assert {*statuses(free, *held)} == {"SENT"} and {*rows(*held).values_list("fence", flat=True)} == {2}


def stopped_at_the_end(stack: ExitStack) -> Callable[[], bool]:
    over = threading.Event()
    stack.callback(over.set)
    return over.is_set


class Hesitant(Http):
    """It is made ready, and opened, when a test lets it."""

    begun, go_on = threading.Event(), threading.Event()
    open_at_once = True

    @classmethod
    def for_credential(cls, settings: Mapping[str, Any], secret: Mapping[str, str]) -> Self:
        if cls.open_at_once:
            cls._wait()
        return super().for_credential(settings, secret)

    async def open(self) -> None:
        if not self.open_at_once:
            await asyncio.to_thread(self._wait)
        await super().open()

    @classmethod
    def _wait(cls) -> None:
        cls.begun.set()
        assert cls.go_on.wait(DEADLINE)


@pytest.fixture
def hesitant() -> Iterator[type[Hesitant]]:
    Hesitant.begun.clear()
    Hesitant.go_on.clear()
    with installed("hesitant", f"{__name__}:Hesitant"):
        yield Hesitant
    Hesitant.open_at_once = True


def hesitating(of: Job) -> Job:
    Vendor.objects.filter(pk=of.vendor_id).update(adapter="hesitant")
    return of


@contextmanager
def locked_table(name: str) -> Iterator[None]:
    """As while it is migrated."""
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE")
        yield
    finally:
        other.close()


def test_a_job_whose_letters_cannot_be_made_ready_as_a_table_is_locked_is_started_once(sandbox: Sandbox) -> None:
    job = taken(3, login(sandbox.url))
    with closing(Sender(many=True)) as sender, ExitStack() as stack:
        with locked_table("campaigns_campaign"):
            going = stack.enter_context(
                meanwhile(sender.send_claimed_job, job.pk, job.fence, stopped_at_the_end(stack))
            )
            wait_until(count_lock_waits, "its campaign is to be read")
            wait_until(lambda: not count_lock_waits(), "it is put off")
            assert not going.done() and statuses(job) == ["SENDING"]
        assert result_of(going, "going ends") == Sent(job.pk)
    job.refresh_from_db()
    assert (job.status, job.accepted, job.fence) == ("SENT", 3, 2)


def stop_while_it_is_locked(job: Job, going: "Future[Sent]", stop: Callable[[], None], status: str) -> None:
    """The sender waits for the job, and is told to end."""
    wait_until(count_lock_waits, "it waits")
    stop()
    with pytest.raises(LockNotAvailable):
        result_of(going, "going ends")
    assert statuses(job) == [status]


def test_who_is_told_to_end_does_not_wait_for_a_job_that_it_would_take_and_the_sweep_notifies_again(
    sandbox: Sandbox,
) -> None:
    job, over = taken(3, login(sandbox.url)), threading.Event()
    with closing(Sender(many=True)) as sender, locked(rows(job)):
        with meanwhile(sender.send_claimed_job, job.pk, job.fence, over.is_set) as going:
            stop_while_it_is_locked(job, going, over.set, "ENQUEUED")
        assert finalizer.claim_unstarted_jobs(timedelta()) == [], "not while it is locked"
    assert [one.pk for one in finalizer.claim_unstarted_jobs(timedelta())] == [job.pk]
    assert send_the_rest(job).accepted == 3


def test_who_is_told_to_end_does_not_wait_for_a_job_that_is_to_expire(
    sandbox: Sandbox, hesitant: type[Hesitant]
) -> None:
    hesitant.open_at_once = False
    job, over = hesitating(taken(3, login(sandbox.url))), threading.Event()
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now())
    with (
        closing(Sender(many=True)) as sender,
        meanwhile(sender.send_claimed_job, job.pk, job.fence, over.is_set) as going,
    ):
        wait_until(hesitant.begun.is_set, "it is started")
        with locked(rows(job)):
            hesitant.go_on.set()
            stop_while_it_is_locked(job, going, over.set, "SENDING")
    hesitant.go_on.set()
    job = send_the_rest(job)
    assert (job.accepted, job.expired) == (0, 3)


def test_a_connection_that_has_waited_too_long_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.engine.threads.BLOCKING", 1)
    job = factories.campaign_with_job(1)

    def process() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    with closing(DatabaseThreads(LOCKED_BRIEFLY)) as threads:
        before = threads.run_function(process)
        with locked(rows(job)), pytest.raises(LockNotAvailable):
            threads.run_function(transaction.atomic(hold_jobs), [job.pk])
        assert threads.run_function(process) == before
        assert threads.run_function(transaction.atomic(hold_jobs), [job.pk]) == [job.pk]


def test_a_vendor_that_is_locked_keeps_no_other_ones_window_from_being_rebuilt() -> None:
    held, free = factories.credential(), factories.credential()

    async def both() -> list[Any]:
        scopes = [Scope(one.vendor_id, one.pk, one.vendor.generation) for one in (held, free)]
        async with in_time("the windows are rebuilt"):
            return await asyncio.gather(*map(rebuild_lost, scopes), return_exceptions=True)

    with locked(Vendor.objects.filter(pk=held.vendor_id)):
        failed, done = asyncio.run(both())
    assert "lock" in str(failed) and done is None
    generations = [Vendor.objects.get(pk=one.vendor_id).generation - one.vendor.generation for one in (held, free)]
    assert generations == [0, 1]


def test_a_sweep_passes_over_what_is_locked_and_the_next_one_does_it() -> None:
    old = timezone.now() - 2 * LEASE

    def overdue() -> list[Job]:
        lost, unstarted, answered, ready, sent = (
            factories.campaign_with_job(1, status=of) for of in ("SENDING", "ENQUEUED", "SENDING", "READY", "SENT")
        )
        rows(lost, unstarted).update(heartbeat_at=old)
        answers = {"kinds": "a", "codes": ["v-1"], "messages": [answered.first_message], "last": True}
        AnswerBatch.objects.create(job=answered, fence=1, claim_id=0, called_at=old, at=old, **answers)
        parent, _ = family(parent="P_ASSIGNED", remaining=0, children=["LOGGED"])
        return [lost, unstarted, ready, sent, answered, parent]

    held, free = overdue(), overdue()
    before = statuses(*held)
    with locked(rows(*held)):
        with meanwhile(sweeper.run_sweep, LEASE) as sweep:
            facts = result_of(sweep, "sweep ends")
        assert statuses(*held) == before and AnswerBatch.objects.get().job_id == held[4].pk
    lost, unstarted, _, _, answered, parent = free
    after = ["RECOVERING", "ENQUEUED", "DISPATCHED", "DISPATCHED", "SENDING", "P_FINISHED"]
    assert statuses(*free) == after
    assert facts.recovered == [lost.pk] and [job.pk for job in facts.unanswered] == [unstarted.pk]
    assert parent.pk in facts.finalised and not AnswerBatch.objects.filter(job=answered).exists()
    sweeper.run_sweep(LEASE)
    assert statuses(*held) == after and not AnswerBatch.objects.exists()


@pytest.mark.slow("time")
def test_who_pauses_campaigns_after_their_first_messages_passes_over_one_that_is_locked() -> None:
    def first_sent() -> Job:
        parent, _ = family(parent="P_ASSIGNING", remaining=30, children=["LOGGED"])
        rows(parent).update(wait_after=10)
        return parent

    held, free = first_sent(), first_sent()
    with locked(rows(held)), meanwhile(pauses.pause_after_first) as looking:
        assert result_of(looking, "looking ends") == [free.pk]
    assert pauses.pause_after_first() == [held.pk]


@pytest.mark.slow("time")
def test_whoever_writes_a_result_gives_up_while_its_job_is_locked_and_the_sweep_finds_it_again() -> None:
    job = logged(1, [accepted()])
    session = Session.objects.create(
        id=uuid4(), sponsor=job.sponsor, job=job, idempotency_key="k", fingerprint=b"", answer=""
    )
    with locked(rows(job)), meanwhile(writer.write_result, session.pk) as writing:
        assert result_of(writing, "writing ends") == []
    assert writer.left_behind() == [session.pk]
    writer.write_result(session.pk)
    assert writer.left_behind() == []


@pytest.mark.slow("time")
def test_a_night_gives_up_while_a_job_is_locked_and_goes_on_when_the_sweep_finds_it() -> None:
    held, free = (factories.campaign_with_job(1, status="RENDERED") for _ in range(2))
    Vendor.objects.update(dispatch_at=(timezone.now() - timedelta(minutes=1)).time(), time_zone="UTC")
    Vendor.objects.update(created_at=timezone.now() - timedelta(days=1), weekdays=list(range(1, 8)))
    with locked(rows(held)), meanwhile(tasks.dispatch_night, held.vendor_id) as night:
        with pytest.raises(OperationalError, match="lock"):
            result_of(night, "night ends")
        tasks.dispatch_night(free.vendor_id)
    assert statuses(held, free) == ["RENDERED", "DISPATCHED"]
    assert sweeper.run_sweep(LEASE).nights_due == [held.vendor_id]
    tasks.dispatch_night(held.vendor_id)
    assert statuses(held) == ["DISPATCHED"]
