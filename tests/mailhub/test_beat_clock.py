"""A real beat, and real workers without one, whose clock was wrong: what is due is done within moments."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from campaigns.engine.dispatch import dispatcher
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Campaign, Job
from mailhub import installation
from mailhub.models import PeriodicRun
from mailhub.monitoring import probes
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, calls, login
from tests.private_redis import PrivateRedis
from tests.programs import Program, running, worker
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from tests.workers import Process, celery
from vendors.redis_addresses import celery_url

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]

SWEEP = "campaigns.tasks.sweep"
# The clock of this one process is an hour ahead until the file is gone: nothing can set the clock of the machine.
AHEAD = """
import sys, threading, time
from datetime import datetime, timedelta, UTC
from pathlib import Path
import time_machine
wrong = time_machine.travel(datetime.now(UTC) + timedelta(hours=1), tick=True)
wrong.start()
wait, until = time.sleep, Path(sys.argv[1])
def put_right():
    while until.exists():
        wait(0.05)
    wrong.stop()
threading.Thread(target=put_right, daemon=True).start()
from celery.__main__ import main
sys.argv = ["celery", "-A", "mailhub", "beat", "--pidfile="]
main()
"""


def run_counts() -> dict[str, int]:
    rows = PeriodicTask.objects.filter(interval__isnull=False, name__startswith=installation.OURS)
    return dict(rows.values_list("task", "total_run_count"))


def quick_rows() -> None:
    """Beat's rows, of which each is due every second."""
    installation.sync_beat()
    for row in PeriodicTask.objects.filter(interval__isnull=False):
        row.interval.every, row.interval.period = 1, "seconds"
        row.interval.save()


def all_have_run(beat: Process, before: dict[str, int]) -> None:
    beat.until(lambda: all(count > before[task] for task, count in run_counts().items()), "each task is started")


def test_a_beat_that_starts_after_its_clock_was_ahead_starts_every_task() -> None:
    quick_rows()
    PeriodicTask.objects.update(last_run_at=timezone.now() + timedelta(hours=1))
    with celery("beat", "--pidfile=") as beat:
        all_have_run(beat, run_counts())
        assert "a stored moment lay ahead: django_celery_beat.PeriodicTask.last_run_at of" in beat.log()
    assert not PeriodicTask.objects.filter(last_run_at__gt=timezone.now() + timedelta(minutes=1)).exists()


def test_a_running_beat_whose_clock_is_put_back_goes_on(tmp_path: Path) -> None:
    quick_rows()
    wrong = tmp_path / "wrong"
    wrong.touch()
    with running("-c", AHEAD, str(wrong)) as beat:
        ahead = PeriodicTask.objects.filter(last_run_at__gt=timezone.now() + timedelta(minutes=30))
        wait_until(lambda: beat.said("") and ahead.filter(task=SWEEP).exists(), "it has run an hour ahead")
        wrong.unlink()
        wait_until(lambda: beat.said("beat's clock was put back by 3"), "it is noticed")
        before = run_counts()
        wait_until(lambda: all(count > before[task] for task, count in run_counts().items()), "each task is started")
    assert not PeriodicTask.objects.filter(last_run_at__gt=timezone.now() + timedelta(minutes=1)).exists()


def test_rows_that_another_process_moves_ahead_of_a_running_beat_are_corrected() -> None:
    quick_rows()
    with celery("beat", "--pidfile=") as beat:
        all_have_run(beat, dict.fromkeys(run_counts(), 0))
        PeriodicTask.objects.update(last_run_at=timezone.now() + timedelta(hours=1))
        before = run_counts()
        all_have_run(beat, before)


@contextmanager
def lonely(queues: str, **more: str) -> Iterator[Program]:
    """A worker that no beat and nobody else has anything done."""
    with worker(processes=1, queues=queues, SWEEP_SECONDS="0.5", PAUSE_SECONDS="0.5", **more) as program:
        yield program


def test_a_worker_without_any_beat_brings_back_what_a_killed_sender_left(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    account = login(sandbox.url)
    factories.caster(account.vendor)
    queues = f"hub,{account.vendor.queue}"
    with worker(processes=1, queues=queues, SWEEP_SECONDS="86400") as program:
        job = factories.campaign_with_job(60, of=account, status="DISPATCHED")
        notify_vendors([job.vendor_id])
        calls(sandbox, 8)
        program.end(signal.SIGKILL)
    with lonely(queues):
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", "the job is logged")
    assert judge(sandbox.books()) == []
    assert sums()["in doubt"] <= CONCURRENCY and sums().total() == 60


def test_without_any_beat_a_campaign_pauses_after_its_first_messages(sandbox: Sandbox) -> None:
    account = login(sandbox.url)
    factories.caster(account.vendor)
    job = factories.campaign_with_job(20, of=account, status="READY", wait_after=3)
    with lonely(f"hub,{account.vendor.queue}"):
        notify_vendors(dispatcher.dispatch_ready([job.pk]).vendors)
        wait_until(lambda: Campaign.objects.get(pk=job.campaign_id).paused_at, "it is paused")
    assert sums() == {"accepted": 3, "waiting": 17}


def test_a_worker_whose_broker_is_away_sweeps_all_the_same() -> None:
    """Nothing that is recovered needs a Celery message."""
    broker = PrivateRedis()
    try:
        job = factories.campaign_with_job(5, status="SENDING")
        Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(hours=1))
        with worker(queues="hub", SWEEP_SECONDS="0.5", BROKER_URL=celery_url(broker.url)) as program:
            broker.end()
            PeriodicRun.objects.update(ran_at=timezone.now() - timedelta(hours=1))
            wait_until(lambda: Job.objects.get(pk=job.pk).status != "SENDING", "it is recovered")
            assert program.process.poll() is None
    finally:
        broker.end()


def test_what_an_operator_has_disabled_in_beats_table_is_not_run_by_workers() -> None:
    installation.sync_beat()
    PeriodicTask.objects.filter(task="mailhub.tasks.fetch_reports").update(enabled=False)
    with worker(queues="hub", SWEEP_SECONDS="0.5") as program:
        wait_until(lambda: PeriodicRun.objects.filter(task="mailhub.tasks.fetch_reports").exists(), "it has looked")
        PeriodicRun.objects.update(ran_at=timezone.now() - timedelta(hours=1))
        wait_until(lambda: program.said("campaigns.tasks.settle_doubts did not run for"), "the others are run")
        assert not program.said("fetch_reports did not run")


def test_a_sweep_that_beat_starts_keeps_the_workers_from_their_own() -> None:
    installation.sync_beat()
    with worker(queues="hub", SWEEP_SECONDS="0.5") as program:
        wait_until(lambda: PeriodicRun.objects.filter(task=SWEEP).exists(), "it has looked")
        PeriodicRun.objects.filter(task=SWEEP).update(ran_at=timezone.now() + timedelta(hours=1))
        wait_until(lambda: program.said(f"{SWEEP} did not run for"), "a note that lies ahead is not believed")


def test_a_beat_that_lies_ahead_is_not_called_ready() -> None:
    installation.sync_beat()
    PeriodicTask.objects.update(last_run_at=timezone.now() + timedelta(hours=1))
    assert "lie 3,600 s ahead of PostgreSQL's clock" in probes.probe_database()["beat"].replace("3,599", "3,600")
