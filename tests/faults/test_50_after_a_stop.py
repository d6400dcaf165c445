"""Fault 50: a job is stopped while calls are open that take longer than the lease, or its sender dies then.

What is in flight at a stop is recorded by who called, for as long as it lives (promises P3 and P5).
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns import decisions, tasks
from campaigns.finishing import finalizer
from campaigns.finishing import sweep as recovery
from campaigns.models import Job
from campaigns.operators import actions
from tests import factories
from tests.enqueueing import started
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, meanwhile, take_again, taken
from tests.faults.test_04_zombies import claims_one
from tests.sandbox import Sandbox
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
LEASE = timedelta(seconds=12)  # a machine that stands still for as long would be thought dead, and rightly
LONGER = 17_000.0  # milliseconds


@contextmanager
def sweeping(lease: timedelta) -> Iterator[None]:
    """Sweeps all the time, like beat."""
    over = threading.Event()

    def sweep() -> None:
        while not over.wait(0.2):
            recovery.sweep(lease)

    with meanwhile(sweep) as swept:
        try:
            yield
        finally:
            over.set()
        swept.result()


def test_50_answers_that_come_later_than_the_lease_after_a_stop_are_recorded_as_what_they_are(
    sandbox: Sandbox, settings: Any
) -> None:
    settings.HEARTBEAT_SECONDS = 0.5
    sandbox.settings(latency_ms=LONGER)
    odd = {0: "reject", 1: "reject"}
    to = [f"{odd.get(number, 'ann')}+{number}@sandbox.example" for number in range(3 * CONCURRENCY)]
    job = taken(to, login(sandbox.url))
    with being_sent(job) as sending, sweeping(LEASE):
        calls(sandbox, CONCURRENCY)
        assert actions.stop([job.pk], by="ann")[0].verdict == decisions.Verdict.DONE
        sending.result()
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the job is finalised")
    job.refresh_from_db()
    assert (job.accepted, job.refused, job.in_doubt) == (CONCURRENCY - 2, 2, 0)
    assert judge(sandbox.books()) == []
    assert sums() == {"accepted": CONCURRENCY - 2, "refused": 2, "waiting": 2 * CONCURRENCY}


def test_50_a_sender_that_dies_after_the_stop_is_missed_when_its_lease_ends(sandbox: Sandbox) -> None:
    job = taken(2, login(sandbox.url))
    asyncio.run(claims_one(job, started(job)))
    actions.stop([job.pk])
    assert not finalizer.silent(LEASE)
    assert not finalizer.finalise(job.pk)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - LEASE - timedelta(seconds=1))
    swept = recovery.sweep(LEASE)
    assert (swept.recovered, swept.finalised) == ([job.pk], [job.pk])
    assert judge(sandbox.books()) == [] and sums() == {"in doubt": 1, "waiting": 1}


def test_50_after_a_stop_the_caster_looks_for_its_next_job_at_once(sandbox: Sandbox) -> None:
    """No sweep runs here."""
    sandbox.settings(latency_ms=500.0)
    to = login(sandbox.url)
    caster = factories.caster(to.vendor)
    job = take_again(factories.campaign_with_job(50, of=to, status="DISPATCHED", mailcaster=caster))
    after = factories.campaign_with_job(3, of=to, status="DISPATCHED")
    with meanwhile(tasks.send_job, job.pk, job.fence) as sending:
        calls(sandbox, 1)
        actions.stop([job.pk])
        sending.result()
    after.refresh_from_db()
    assert (after.status, after.mailcaster) == ("ENQUEUED", caster)
