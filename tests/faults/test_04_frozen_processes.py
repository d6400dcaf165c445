"""Fault 4, of a whole process: it is suspended with all its streams for longer than their leases, and wakes up.

Another process has taken its jobs and is in the middle of them. Both are real workers; the vendor has a limit.
"""

import signal
from contextlib import AbstractContextManager

import pytest

from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.models import Job
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.sending import calls, login
from tests.programs import Program, sweeping, wait_until, worker
from tests.sandbox import running
from vendors.models import Credential

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]
STREAMS, EACH, AT_ONCE = 8, 75, 2
LIMIT = (30, 1.0)  # 20 seconds for all of them, on any machine


def sending(of: Credential) -> AbstractContextManager[Program]:
    return worker(queues=f"hub,{of.vendor.queue}")


def fences() -> dict[int, int]:
    return dict(Job.objects.values_list("pk", "fence"))


def test_a_process_that_was_suspended_calls_nobody_whom_the_next_one_has_called_nor_too_fast() -> None:
    with running(latency_ms=300.0) as vendor:
        account = login(vendor.url, LIMIT, concurrency=AT_ONCE)
        for _ in range(STREAMS):
            factories.caster(account.vendor)
            factories.campaign_with_job(EACH, of=account, status="DISPATCHED")
        with sending(account) as first:
            notify_vendors([account.vendor_id])
            wait_until(lambda: Job.objects.filter(accepted__gt=0).count() == STREAMS, "all streams call")
            wait_until(lambda: stopped_in_calls(first), "it is suspended while calls are open", every=0.1)
            before = fences()
            with sending(account), sweeping():
                wait_until(lambda: others_have_begun(before), "the next process has taken all jobs")
                called = calls(vendor, 1)
                assert Job.objects.filter(status="SENDING").exists()
                first.send(signal.SIGCONT)
                calls(vendor, called + STREAMS * AT_ONCE)
                assert first.end(signal.SIGTERM) == 0, "it ends by itself, with what it knows recorded"
                wait_until(lambda: not Job.objects.exclude(status="LOGGED").exists(), "all jobs are logged")
        assert judge(vendor.books(), windows=[(*LIMIT, None)]) == []
        assert sums().total() == STREAMS * EACH and set(sums()) <= {"accepted", "in doubt"}


def stopped_in_calls(program: Program) -> bool:
    program.send(signal.SIGSTOP)
    if rounds.open_calls():
        return True
    program.send(signal.SIGCONT)
    return False


def others_have_begun(before: dict[int, int]) -> bool:
    """With each job: the recovery has raised its fence, and so have a mailcaster and the sender."""
    begun = Job.objects.exclude(status__in=["RECOVERING", "DISPATCHED", "ENQUEUED"]).values_list("pk", "fence")
    return len([pk for pk, fence in begun if fence > before[pk] + 2]) == STREAMS
