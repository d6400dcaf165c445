"""Faults 49 and 51 to 53: operators stop, resume and change limits while mail goes out, at the worst moment for it.

Decisions about jobs at rest: tests/operations/test_stop_retry.py. After a stop:
test_50_after_a_stop.py. Two who decide at once: here.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from threading import Barrier

import pytest
from django.db import connection, transaction

from campaigns.engine import connections
from campaigns.engine.claiming import claims as sending
from campaigns.engine.decisions import Verdict
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import HOLD
from campaigns.engine.sending import recording
from campaigns.models import Job, Message
from campaigns.operations import actions
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import (
    CONCURRENCY,
    being_sent,
    calls,
    login,
    meanwhile,
    nobody_claims,
    send_the_rest,
    sent,
    take_again,
    taken,
)
from tests.lock_waits import count_lock_waits
from tests.programs import wait_until
from tests.sandbox import Sandbox
from tests.windows import worst_window
from vendors.models import RateLimit

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
HOLDS = HOLD.partition(" WHERE")[0]


def is_locked(job: Job) -> bool:
    with transaction.atomic():
        free = Job.objects.select_for_update(skip_locked=True).filter(pk=job.pk).values_list("pk", flat=True)
        locked = not list(free)
        transaction.set_rollback(True)  # gives the lock back
    return locked


def stop(job: Job) -> Verdict:
    return actions.stop_jobs([job.pk])[0].verdict


def test_49_a_stop_during_a_claim_wins_over_the_next_one_and_waits_for_no_message(sandbox: Sandbox) -> None:
    """The first claim has locked the job and waits for its vendor; the stop waits for that claim only."""
    sandbox.settings(latency_ms=100.0)
    account = login(sandbox.url)
    sent(taken(1, account))  # else the first claim would wait for the vendor's window to be made
    job = taken(5 * CONCURRENCY, account)
    with ExitStack() as both, nobody_claims(job.vendor):
        answer = both.enter_context(being_sent(job))
        wait_until(lambda: count_lock_waits() and is_locked(job), "the sender waits for the vendor's row")
        verdict = both.enter_context(meanwhile(stop, job))
        wait_until(lambda: count_lock_waits(HOLDS), "the stop waits for the claim")
        assert len(Message.objects.select_for_update(nowait=True).filter(campaign=job.campaign_id)) == job.size
    assert verdict.result() == Verdict.DONE and not answer.result().left
    assert finalizer.finalise_job(job.pk) and judge(sandbox.books()) == []
    assert len(sandbox.books().entries) <= 1 + CONCURRENCY and sums()["waiting"] >= 4 * CONCURRENCY


def test_49_a_stop_just_before_the_rest_expires_wins_and_waits_for_no_message_of_it() -> None:
    """Code that locked messages before their job would cause a deadlock with a delivery report."""
    job = factories.campaign_with_job(5, status="SENDING")

    async def expire() -> None:
        rows = await connections.open_connection()
        await recording.expire_uncalled(rows, sending.Lease(job.pk, job.fence), job.first_message, job.end)
        await rows.close()

    with ExitStack() as both, transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)
        expiring = both.enter_context(meanwhile(asyncio.run, expire()))
        wait_until(count_lock_waits, "the sender waits for the job")
        assert len(Message.objects.select_for_update(nowait=True).filter(campaign=job.campaign_id)) == 5
        assert stop(job) == Verdict.DONE
    expiring.result()
    assert not Message.objects.exclude(error_code=None).exists()
    assert finalizer.finalise_job(job.pk) and sums() == {"waiting": 5}


@pytest.mark.parametrize("status", ["LOGGED", "READY"])
def test_51_of_a_stop_and_a_resume_on_one_revision_of_a_job_exactly_one_wins(status: str, sandbox: Sandbox) -> None:
    job = taken(["reject@sandbox.example", "ann@x.example"], login(sandbox.url))
    sent(job)
    for _ in range(10):
        Job.objects.filter(pk=job.pk).update(status=status)
        job.refresh_from_db()
        assert pressed_at_once(job).count(Verdict.DONE) == 1


def pressed_at_once(job: Job) -> list[Verdict]:
    both = Barrier(2)

    def press(verb: str) -> Verdict:
        try:
            both.wait()
            return getattr(actions, verb)([job.pk], revision=job.revision)[0].verdict
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as hands:
        return list(hands.map(press, ["stop_jobs", "retry_jobs"]))


def test_51_two_who_resume_at_once_send_once(sandbox: Sandbox) -> None:
    job = sent(taken(["reject@sandbox.example"], login(sandbox.url)))

    def resume(_: int) -> Verdict:
        try:
            return actions.retry_jobs([job.pk], revision=job.revision)[0].verdict
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as hands:
        assert list(hands.map(resume, range(4))).count(Verdict.DONE) == 1
    assert Message.objects.get(pk=job.first_message).resend_no == 1


def test_52_doubts_are_not_sent_again_by_a_retry(sandbox: Sandbox) -> None:
    job = sent(taken(["lost@sandbox.example", "reject@sandbox.example"], login(sandbox.url)))
    (answer,) = actions.retry_jobs([job.pk])
    assert (answer.verdict, answer.messages) == (Verdict.DONE, 1)
    sent(take_again(job))
    assert sums() == {"in doubt": 1, "refused": 1} and judge(sandbox.books()) == []


@pytest.mark.slow("time")
def test_53_a_limit_that_is_edited_holds_from_the_next_call_on(sandbox: Sandbox) -> None:
    """5, then 0 (paused), 3 and 50 in the same second-long window, while a sender is at it."""
    job = taken(80, login(sandbox.url, (5, 1.0)))
    edits: list[tuple[int, datetime]] = []

    def edit(units: int) -> None:
        with nobody_claims(job.vendor):
            RateLimit.objects.update(units=units)
            edits.append((units, now()))

    with being_sent(job) as sending:
        calls(sandbox, 6)
        edit(0)
        assert sending.result().left
    paused = len(sandbox.books().entries)
    edit(3)
    with being_sent(take_again(job)):
        calls(sandbox, paused + 4)
        edit(50)
    send_the_rest(job)
    assert judge(sandbox.books(), windows=[(50, 1.0, None)]) == []
    allowed = {str(m.reference): m.sent_at for m in Message.objects.all()}
    ends = [*(at for _, at in edits[1:]), now()]
    assert worst(sandbox, allowed, None, edits[0][1]) <= 5
    for (units, since), until in zip(edits, ends, strict=True):
        assert worst(sandbox, allowed, since, until) <= units
    assert sums() == {"accepted": 80}


def now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def worst(vendor: Sandbox, allowed: dict[str, datetime], since: datetime | None, until: datetime) -> int:
    """The most calls in any second, among those that were allowed between these times."""
    times = [
        entry.t
        for entry in vendor.books().entries
        if (since is None or since <= allowed[entry.reference]) and allowed[entry.reference] < until
    ]
    return worst_window(times, 1.0)
