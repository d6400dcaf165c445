"""A new vendor's queue is read by workers that run already, whether or not anybody told them; none takes too much."""

import pytest

from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job
from mailhub import worker_queues
from mailhub.celery import app
from tests import factories, programs
from tests.celery_tasks import note, notes
from tests.factories import unique, vendor
from tests.faults.sending import login
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from tests.workers import DEADLINE, worker
from vendors.models import Vendor

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

NEVER = "86400"
OFTEN = "0.2"


def notify(one: Vendor) -> str:
    page = unique("page")
    note.apply_async([page, "rung"], queue=one.queue)
    return page


def test_a_worker_for_vendors_reads_those_there_were_and_those_it_is_told_of() -> None:
    notified = notify(vendor())

    with worker(worker_queues.VENDORS, QUEUE_LOOK_SECONDS=NEVER) as vendors:
        vendors.until(lambda: notes(notified))
        notified = notify(vendor())
        vendors.until(lambda: notes(notified))


def test_a_vendor_that_nobody_was_told_of_is_found() -> None:
    notified = notify(vendor())

    with worker(worker_queues.VENDORS, QUEUE_LOOK_SECONDS=OFTEN) as vendors:
        vendors.until(lambda: notes(notified))
        slug = unique("vendor")
        Vendor.objects.bulk_create([Vendor(slug=slug, name=slug)])  # sends no signal
        notified = notify(Vendor.objects.get(slug=slug))
        vendors.until(lambda: notes(notified))


def test_a_worker_for_the_hub_leaves_the_vendors_queues_alone() -> None:
    vendor()
    hub, name = unique("hub"), unique("worker") + "@test"
    note.apply_async([hub, "rung"], queue=hub)

    with worker(hub, name=name, QUEUE_LOOK_SECONDS=OFTEN) as other:
        other.until(lambda: notes(hub))
        looked = app.control.broadcast("adopt_queues", destination=[name], reply=True, timeout=DEADLINE, limit=1)
        reads = app.control.inspect([name], timeout=DEADLINE, limit=1).active_queues()

    assert looked == [{name: {"ok": "looking"}}]
    assert [queue["name"] for queue in reads[name]] == [hub]


def test_a_job_that_a_full_process_cannot_begin_stays_in_the_queue_for_another_one(sandbox: Sandbox) -> None:
    """Nothing sweeps here: what the first process has taken nobody is notified of again."""
    sandbox.settings(latency_ms=2000.0)
    account = login(sandbox.url, concurrency=1)
    for _ in range(2):
        factories.caster(account.vendor)
        factories.campaign_with_job(1000, of=account, status="DISPATCHED")

    def sent() -> int:
        return Job.objects.filter(status="SENDING").count()

    with programs.worker(threads=1, queues=account.vendor.queue):
        notify_vendors([account.vendor_id])
        wait_until(lambda: sent() == 1, "the first process sends a job")
        with programs.worker(threads=1, queues=account.vendor.queue):
            wait_until(lambda: sent() == 2, "the second one sends the other")
