"""Two verbs meet at one job: the second waits for the first, and then decides by the rows as the first left them.

Each test holds the first verb in an open transaction until the second one waits for its lock.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from campaigns.engine import audit, ground_truth, lifecycle
from campaigns.engine.connections import open_connection
from campaigns.engine.decisions import Verdict
from campaigns.engine.doubts import resolve
from campaigns.engine.finishing import finalizer
from campaigns.models import AnswerBatch, Job, Message
from campaigns.operations import actions
from tests import calling, factories
from tests.campaigns.rows import family, in_doubt, logged, recount, statuses
from tests.faults.sending import login, meanwhile, taken
from tests.lock_waits import count_lock_waits
from tests.waiting import wait_until
from vendors.outcomes import Accepted, InDoubt, Outcome, Refused

pytestmark = pytest.mark.django_db(transaction=True)


def over_a_connection_of_its_own(verb: Callable[..., Any], *args: Any) -> Any:
    async def run() -> Any:
        rows = await open_connection()
        try:
            return await verb(rows, *args)
        finally:
            await rows.close()

    return asyncio.run(run())


@contextmanager
def while_it_waits(second: Callable[..., Any], *args: Any) -> Iterator[None]:
    """The block is the first verb: committed when the second one, in a thread, waits for a lock."""
    with transaction.atomic():
        yield
        waiting = meanwhile(second, *args)
        future = waiting.__enter__()
        wait_until(lambda: future.done() or count_lock_waits(), "the second verb waits for the first")
        assert not future.done(), "it did not wait"
    waiting.__exit__(None, None, None)
    future.result()


def counters(job: Job) -> tuple[int, int, int]:
    job.refresh_from_db()
    return job.accepted, job.refused, job.in_doubt


def breaches() -> list[str]:
    return [f"{check.question}: {check.examples}" for check in audit.ask_all_questions() if not check.is_kept]


@pytest.mark.parametrize("decision", ["failed", "sent", "resend"])
@pytest.mark.parametrize("verb", [ground_truth.accept_messages, ground_truth.refuse_doubted])
def test_an_answer_that_waits_for_a_persons_decision_counts_no_doubt_twice(verb: Any, decision: str) -> None:
    job = logged(1, [in_doubt()])
    answer = (
        (job.first_message, "v-1", 0)
        if verb is ground_truth.accept_messages
        else (job.first_message, Refused("bounce", "no such person"))
    )
    with while_it_waits(over_a_connection_of_its_own, verb, [answer]):
        resolve.resolve_doubts([job.first_message], decision, "they rang", "ann")
    before = counters(job)
    recount(job)
    assert before == counters(job)
    assert breaches() == []


def test_a_decision_that_waits_for_an_answer_finds_nothing_to_decide() -> None:
    job = logged(1, [in_doubt()])

    def decide() -> None:
        with pytest.raises(resolve.CannotResolve, match="not in doubt"):
            resolve.resolve_doubts([job.first_message], "failed", "they rang", "ann")

    with while_it_waits(decide), connection.cursor() as cursor:
        lifecycle.hold_around([job.first_message])
        cursor.execute(ground_truth.ACCEPT, {"ids": [job.first_message], "codes": ["v-1"], "notes": [None], "nos": [0]})
    assert (*counters(job), Message.objects.get().message_id) == (1, 0, 0, "v-1")


@pytest.mark.parametrize("answer", [Accepted("v-1"), Refused("bounce"), InDoubt("cut")])
def test_an_answer_that_waits_for_the_recovery_of_its_job_takes_the_doubt_back(answer: Outcome) -> None:
    job = taken(2, login("http://127.0.0.1:9"))
    lease = calling.started(job)
    claimed = calling.by_sender(lambda rows: calling.claim(rows, job, lease))
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(hours=1))
    answers = [(job.first_message, answer)]
    with while_it_waits(over_a_connection_of_its_own, calling.answer, lease, claimed.claim, answers):
        assert finalizer.recover_job(job.pk, timedelta(minutes=1))
    rows = Message.objects.filter(campaign=job.campaign)
    found = [rows.filter(**{f"{column}__isnull": False}).count() for column in ("message_id", "error_code")]
    assert counters(job) == (*found, rows.filter(in_doubt_at__isnull=False).count())
    assert sum(counters(job)) == 1 and counters(job)[2] == isinstance(answer, InDoubt)


def test_whoever_locks_a_job_sees_what_was_answered_before() -> None:
    """The answer is appended by its sender and merged by the person who stops the job."""
    job = taken(2, login("http://127.0.0.1:9"))
    lease = calling.started(job)
    claimed = calling.by_sender(lambda rows: calling.claim(rows, job, lease))
    answers = [(job.first_message, Accepted("v-1"))]
    calling.by_sender(lambda rows: calling.append(rows, lease, claimed.claim, answers))
    assert counters(job) == (0, 0, 0)
    assert actions.stop_jobs([job.pk])[0].verdict == Verdict.DONE
    assert counters(job) == (1, 0, 0) and not AnswerBatch.objects.exists()


def test_what_goes_out_together_with_a_hold_is_one_transaction() -> None:
    job = factories.campaign_with_job(1)

    def may_be_held(by: Any) -> bool:
        try:
            by.execute(f"{lifecycle.HOLD} NOWAIT", {"jobs": [job.pk]})
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    async def holds_while_it_waits(rows: Any) -> None:
        await lifecycle.execute_holding(rows, "SELECT pg_advisory_xact_lock(11)", {}, jobs=[job.pk])

    options = {name: word for name, word in connection.get_connection_params().items() if name != "cursor_factory"}
    options.pop("context")
    with psycopg.connect(**options, autocommit=True) as other, connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(11)")
        with meanwhile(over_a_connection_of_its_own, holds_while_it_waits) as future:
            wait_until(count_lock_waits, "the second statement waits")
            assert not may_be_held(other)
            cursor.execute("SELECT pg_advisory_unlock(11)")
            future.result()
        assert may_be_held(other)


def test_a_statement_that_fails_while_a_job_is_held_says_so_and_the_connection_goes_on() -> None:
    job = factories.campaign_with_job(1)

    async def fails(rows: Any) -> Any:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await lifecycle.execute_holding(rows, "SELECT 1 / 0", {}, jobs=[job.pk])
        return await (await lifecycle.execute_holding(rows, "SELECT 7", {}, jobs=[job.pk])).fetchone()

    assert over_a_connection_of_its_own(fails) == (7,)


def test_a_hold_outside_of_a_transaction_is_an_error() -> None:
    with pytest.raises(TransactionManagementError):
        lifecycle.hold_jobs([1])


def test_a_family_is_held_from_the_parent_on_whoever_of_it_is_named() -> None:
    top, cut = family(parent="P_ASSIGNING", remaining=5, children=["LOGGED", "SENDING"])
    with transaction.atomic():
        assert lifecycle.hold_family(top.pk) == [top.pk, cut[0].pk, cut[1].pk]
        assert lifecycle.hold_family(cut[1].pk) == [top.pk, cut[1].pk]
        assert lifecycle.hold_around([cut[0].first_message]) == [top.pk, cut[0].pk]


def test_a_stop_that_waits_for_a_child_to_be_sent_again_stops_it() -> None:
    top, cut = family(parent="P_STOPPED", remaining=5, children=["LOGGED"])
    with while_it_waits(actions.stop_jobs, [top.pk]):
        assert actions.retry_jobs([cut[0].pk])[0].ready == (cut[0].pk,)
    assert statuses(top, *cut) == ["P_STOPPED", "STOPPED"]
