"""A process of a worker that makes the probe of a braked vendor is killed: after its lease another one probes."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from campaigns.engine import audit
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Claim, Job, Message
from tests import factories, programs
from tests.faults.sending import login
from tests.moody_vendor import BookedCall, MoodyVendor, moody_vendor
from tests.waiting import wait_until
from vendors.models import Credential

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow("processes")]
CONNECTIONS, PROCESSES, WORKERS = 4, 2, 2


@pytest.fixture
def vendor() -> Iterator[MoodyVendor]:
    with moody_vendor() as running:
        yield running


def process_at(port: int) -> int | None:
    """The process that has a connection from this local port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if int(row[1].partition(":")[2], 16) == port}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(descriptor) in sockets and descriptor.parts[2] != str(os.getpid()):
                return int(descriptor.parts[2])
    return None


def test_a_killed_prober_delays_the_next_probe_by_its_lease_and_there_are_never_two(vendor: MoodyVendor) -> None:
    vendor.mood, vendor.late = "late", 3.0
    account = login(vendor.url, concurrency=CONNECTIONS, timeout=20)
    number = WORKERS * PROCESSES
    for _ in range(number):
        factories.caster(account.vendor)
    jobs = [factories.campaign_with_job(60, of=account, status="DISPATCHED") for _ in range(number)]
    ids = {one.reference: one.pk for one in Message.objects.all()}
    queues = f"{account.vendor.queue},hub"
    with ExitStack() as stack:
        for _ in range(WORKERS):
            stack.enter_context(programs.worker(processes=PROCESSES, queues=queues))
        stack.enter_context(programs.sweeping())
        notify_vendors([account.vendor_id])
        braked_at = wait_until(lambda: Credential.objects.get(pk=account.pk).braked_at, "the brake is on")

        def is_probe(call: BookedCall) -> bool:
            return Claim.objects.filter(at__gt=braked_at, messages__contains=[ids[call.reference]]).exists()

        def prober() -> int | None:
            probes = [call for call in vendor.book if call.ended == float("inf") and is_probe(call)]
            return process_at(probes[0].peer) if probes else None

        os.kill(wait_until(prober, "a probe is made"), signal.SIGKILL)
        before = len(vendor.book)
        wait_until(lambda: len(vendor.book) > before and vendor.book[-1].ended < float("inf"), "another one probes")
        vendor.mood = "good"
        ended = Job.objects.filter(pk__in=[job.pk for job in jobs], status="LOGGED")
        wait_until(lambda: ended.count() == number, "all jobs end by themselves")
    account.refresh_from_db()
    allowed_later = set(Message.objects.filter(sent_at__gt=braked_at).values_list("pk", flat=True))
    probes = [call for call in vendor.book if call.mood == "late" and ids[call.reference] in allowed_later]
    assert len(probes) >= 2 and probes[0].peer != probes[1].peer
    assert all(one.ended <= later.began for one, later in pairwise(probes)), "never two at once, by the vendor's book"
    doubts = sum(ended.values_list("in_doubt", flat=True))
    assert doubts <= number * CONNECTIONS + account.probe_no, "connections and probes, not the whole list"
    assert doubts + sum(ended.values_list("accepted", flat=True)) == 60 * number
    assert len({call.reference for call in vendor.book}) == len(vendor.book), "each message is called once"
    assert not account.braked_at and not [check for check in audit.ask_all_questions() if not check.is_kept]
