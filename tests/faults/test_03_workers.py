"""Faults 3 and 5: kill -9 of a pool process and of a whole worker under load; SIGTERM in the middle of a job.

With real workers: what Celery does with the task of a dead process must not matter.
"""

import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from campaigns.engine import sending as sender
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job
from campaigns.tasks import sweep
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, calls, login, meanwhile, send_the_rest, taken
from tests.programs import Program, wait_until, worker
from tests.sandbox import Sandbox
from vendors.models import Credential

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]
LEASE = timedelta(seconds=4)  # as tests/programs.py has it


def dispatched(of: Credential) -> Job:
    job = factories.campaign_with_job(90, of=of, status="DISPATCHED")
    notify_vendors([job.vendor_id])
    return job


def pool(of: Program) -> list[int]:
    pid = of.process.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def two_sweeps_finish(job: Job) -> None:
    """Two sweeps after the lease bring everything to its end, without any notification."""
    silent = Job.objects.filter(pk=job.pk, heartbeat_at__lt=Now() - LEASE)
    wait_until(silent.exists, "the lease has run out")
    for _ in range(2):
        sweep.apply_async()
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the job is logged")


def test_03_after_a_kill_of_a_pool_process_or_of_the_worker_two_sweeps_bring_all_back(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    account = login(sandbox.url)
    factories.caster(account.vendor)
    queues = f"hub,{account.vendor.queue}"
    with worker(processes=1, queues=queues, JOURNAL="off") as program:
        job = dispatched(account)
        calls(sandbox, 8)
        for pid in pool(program):
            os.kill(pid, signal.SIGKILL)
        two_sweeps_finish(job)
        assert 0 <= sums()["in doubt"] <= CONCURRENCY and sums().total() == 90
        job = dispatched(account)
        calls(sandbox, 98)
        program.end()
    with worker(processes=1, queues=queues, JOURNAL="off"):
        two_sweeps_finish(job)
    assert judge(sandbox.books()) == []
    assert sums()["in doubt"] <= 2 * CONCURRENCY and sums().total() == 180


def test_03_with_a_journal_nobody_waits_for_the_lease_of_a_killed_pool_process_or_worker(sandbox: Sandbox) -> None:
    """No sweep runs, and the lease is an hour."""
    sandbox.settings(latency_ms=100.0)
    account = login(sandbox.url)
    factories.caster(account.vendor)
    kept = {"processes": 1, "queues": f"hub,{account.vendor.queue}", "LEASE_SECONDS": "3600"}
    with worker(**kept) as program:  # type: ignore[arg-type]
        job = dispatched(account)
        calls(sandbox, 8)
        for pid in pool(program):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the job is logged")
        job = dispatched(account)
        calls(sandbox, 98)
        program.end()
    with worker(**kept):  # type: ignore[arg-type]
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the job is logged")
    assert judge(sandbox.books()) == []
    assert sums()["in doubt"] <= 2 * CONCURRENCY and sums().total() == 180


def test_05_a_sender_that_is_asked_to_stop_finishes_its_calls_and_gives_the_rest_back(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=200.0)
    job, over = taken(400, login(sandbox.url)), threading.Event()
    with meanwhile(sender.send_claimed_job, job.pk, job.fence, over.is_set) as sending:
        calls(sandbox, 6)
        over.set()
        assert sending.result().left
    job.refresh_from_db()
    assert job.status == "DISPATCHED" and rounds.open_calls() == 0
    assert set(sums()) == {"accepted", "waiting"}
    sandbox.settings(latency_ms=0.0)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 400}


def test_05_a_worker_that_is_asked_to_end_leaves_nothing_in_doubt(sandbox: Sandbox) -> None:
    """The whole process group gets SIGTERM, as under systemd or when a terminal closes."""
    sandbox.settings(latency_ms=200.0)
    account = login(sandbox.url)
    factories.caster(account.vendor)
    with worker(processes=1, queues=f"hub,{account.vendor.queue}") as program:
        job = dispatched(account)
        calls(sandbox, 8)
        assert program.end(signal.SIGTERM) == 0
    job.refresh_from_db()
    assert rounds.open_calls() == 0 and sums()["in doubt"] == 0
    assert job.heartbeat_at is None
    sandbox.settings(latency_ms=0.0)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 90}
