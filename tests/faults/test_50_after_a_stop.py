"""Fault 50: after a stop no new call is allowed, and what was in flight is recorded (promises P3 and P5).

Also where the calls take longer than the lease, where the sender dies then, and where workers start again.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns import tasks
from campaigns.engine import decisions
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer
from campaigns.engine.finishing import sweep as sweeper
from campaigns.models import AnswerBatch, Claim, Job
from campaigns.operations import actions
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.sending import (
    CONCURRENCY,
    being_sent,
    calls,
    login,
    meanwhile,
    nobody_claims,
    sent,
    take_again,
    taken,
)
from tests.faults.test_04_zombies import claims_some
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
            sweeper.run_sweep(lease)

    with meanwhile(sweep) as swept:
        try:
            yield
        finally:
            over.set()
        swept.result()


@pytest.mark.slow("time")
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
        assert actions.stop_jobs([job.pk], by="ann")[0].verdict == decisions.Verdict.DONE
        sending.result()
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the job is finalised")
    job.refresh_from_db()
    assert (job.accepted, job.refused, job.in_doubt) == (CONCURRENCY - 2, 2, 0)
    assert judge(sandbox.books()) == []
    assert sums() == {"accepted": CONCURRENCY - 2, "refused": 2, "waiting": 2 * CONCURRENCY}


def test_50_a_sender_that_dies_after_the_stop_is_missed_when_its_lease_ends(sandbox: Sandbox) -> None:
    job = taken(2, login(sandbox.url))
    claims_some(job, 1)
    actions.stop_jobs([job.pk])
    assert not finalizer.jobs_to_recover(LEASE)
    assert not finalizer.finalise_job(job.pk)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - LEASE - timedelta(seconds=1))
    swept = sweeper.run_sweep(LEASE)
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
        actions.stop_jobs([job.pk])
        sending.result()
    after.refresh_from_db()
    assert (after.status, after.mailcaster) == ("ENQUEUED", caster)


def test_50_after_a_stop_has_committed_no_new_call_is_allowed(sandbox: Sandbox) -> None:
    """Claims are delayed for a moment, so that calls after the stop are really after it."""
    sandbox.settings(latency_ms=100.0)
    job = taken(400, login(sandbox.url))
    with being_sent(job) as sending:
        calls(sandbox, 12)
        with nobody_claims(job.vendor):
            actions.stop_jobs([job.pk])
        assert not sending.result().left
    assert sums()["waiting"] > 0 and sums()["in doubt"] == 0
    assert finalizer.finalise_job(job.pk)
    assert not Claim.objects.exists() and not AnswerBatch.objects.exists()
    assert judge(sandbox.books()) == []


@pytest.mark.slow("processes")
def test_50_what_was_stopped_stays_stopped_however_many_workers_are_started(
    vendor: Sandbox, driver: rounds.Driver
) -> None:
    """Postman sent 90 more messages. Doubts are asked about, but not called again."""
    mail = rounds.mail(vendor.url, dedupe=True)
    driver.round("before_done:1")
    actions.stop_jobs([mail.parent.pk, mail.small.pk])
    before = [entry.seq for entry in vendor.books().entries]
    for _ in range(3):
        rounds.an_hour_passes()
        driver.round()
    assert [entry.seq for entry in vendor.books().entries] == before
    assert set(Job.objects.values_list("status", flat=True)) <= {"P_STOPPED", "LOGGED"}
    assert judge(vendor.books()) == []


def test_50_doubts_of_a_stopped_job_are_looked_up_but_not_called(sandbox: Sandbox) -> None:
    job = sent(taken(["lost@sandbox.example", "error@sandbox.example"], login(sandbox.url, lookup="strong")))
    Job.objects.filter(pk=job.pk).update(stopped_at=job.finished_at)
    rounds.an_hour_passes()
    reconciler.reconcile_due_doubts()
    assert sums() == {"accepted": 1, "in doubt": 1} and len(sandbox.books().entries) == 2
