"""Each pool of Celery's, with each queue: a worker gets over a lost PostgreSQL, or is refused at its start."""

import subprocess
import sys

import pytest
from django.db import connection

from campaigns.models import Job
from campaigns.tasks import sweep
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import login
from tests.faults.test_28_database import away
from tests.programs import environment, running, sweeping, wait_until
from tests.sandbox import Sandbox
from tests.waiting import DEADLINE
from vendors.models import Credential

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]
MAILS = 20
POOLS = {"prefork": ("prefork", 2), "threads": ("threads", 8), "solo": ("solo", 1)}


def send_one(of: Credential) -> None:
    """One that only the sweep notifies of: a task of the hub's queue."""
    job = factories.campaign_with_job(MAILS, of=of, status="DISPATCHED")
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "LOGGED", f"job {job.pk} is logged")


def sessions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("pool", POOLS)
def test_a_worker_with_this_pool_reads_all_queues_and_gets_over_a_lost_postgresql(pool: str, sandbox: Sandbox) -> None:
    account = login(sandbox.url)
    factories.caster(account.vendor)
    name, processes = POOLS[pool]
    arguments = [
        "-Q",
        "vendors,hub,webhooks",
        "-P",
        name,
        "-c",
        str(processes),
        "-n",
        f"{pool}@test",
        "--without-mingle",
    ]
    short = {"CELERY_LOG_LEVEL": "INFO", "LEASE_SECONDS": "15", "SWEEP_SECONDS": "1"}
    with running("-m", "celery", "-A", "mailhub", "worker", *arguments, **short) as worker:
        wait_until(lambda: worker.said(" ready."), "the worker is ready")
        for _ in range(2 * processes):  # each process and thread has had a connection
            sweep.apply_async()
        with sweeping():
            send_one(account)
            with away():
                pass
            send_one(account)
        assert sessions() <= 16, "no thread keeps a connection of its own"
    assert judge(sandbox.books()) == []
    assert sums() == {"accepted": 2 * MAILS}


def test_a_pool_that_nobody_has_tried_is_refused_at_the_start() -> None:
    arguments = ["-m", "celery", "-A", "mailhub", "worker", "-Q", "hub", "-P", "custom"]
    greenlets = environment(CELERY_CUSTOM_WORKER_POOL="celery.concurrency.base:BasePool")  # read as Celery is imported
    done = subprocess.run([sys.executable, *arguments], env=greenlets, capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 1
    assert (
        "mailhub does not start: a worker cannot run with the pool celery.concurrency.base: use -P threads"
        in done.stderr
    )
