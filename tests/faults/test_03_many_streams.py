"""Faults 3 and 5: a process of hundreds of streams is killed, is asked to end, or has one stream that fails.

With a real worker as the Procfile starts it: one process, a thread for each task, one event loop for all streams.
"""

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import Sender
from campaigns.models import Job
from tests import factories
from tests.campaigns.test_claims_and_answers import locked
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, calls, login, meanwhile, send_the_rest, taken
from tests.installed import installed
from tests.plugin import NIGHTLY
from tests.programs import Program, sweeping, wait_until, worker
from tests.sandbox import Sandbox, running
from tests.waiting import result_of
from vendors.adapters.base import Letter
from vendors.adapters.http import Http
from vendors.models import Credential, Vendor
from vendors.outcomes import Outcome

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(400)]
STREAMS = 300 if NIGHTLY else 100
EACH = 20  # messages of a job: at five seconds a call none is done before the last one has begun
AT_ONCE = 2  # calls of a stream
MOST_CONNECTIONS = 9  # of a sender process to PostgreSQL
LEASE = {"LEASE_SECONDS": "15", "HEARTBEAT_SECONDS": "3"}


def many_jobs(vendor: Sandbox) -> Credential:
    """One job for each of the vendor's mailcasters."""
    account = login(vendor.url, concurrency=AT_ONCE)
    for _ in range(STREAMS):
        factories.caster(account.vendor)
        factories.campaign_with_job(EACH, of=account, status="DISPATCHED")
    return account


def all_have_been_streams(since: dict[int, int]) -> None:
    """Each job has been sent by this process, whatever it is now. since: the jobs' fences before."""
    begun: set[int] = set()

    def all_have_begun() -> bool:
        now = Job.objects.exclude(status__in=["DISPATCHED", "ENQUEUED"]).values_list("pk", "fence")
        begun.update(pk for pk, fence in now if fence > since[pk])
        return len(begun) == STREAMS

    wait_until(all_have_begun, f"{STREAMS} streams")


def fences() -> dict[int, int]:
    return dict(Job.objects.values_list("pk", "fence"))


def all_are_logged() -> None:
    wait_until(lambda: not Job.objects.exclude(status="LOGGED").exists(), "all jobs are logged")


def connections() -> int:
    """How many connections clients have to this database, besides that of the test."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


def sending(of: Credential) -> AbstractContextManager[Program]:
    return worker(threads=STREAMS + 20, queues=f"hub,{of.vendor.queue}", **LEASE)


def test_many_streams_have_few_connections_leave_no_doubt_when_told_to_end_and_their_open_calls_when_killed() -> None:
    """Two processes one after the other, and a third one that sends the rest."""
    with running(latency_ms=5000.0) as vendor:
        account = many_jobs(vendor)
        before, since = connections(), fences()
        with sending(account) as program:
            notify_vendors([account.vendor_id])
            all_have_been_streams(since)
            calls(vendor, STREAMS)
            assert connections() - before <= MOST_CONNECTIONS
            assert program.end(signal.SIGTERM) == 0
        assert rounds.open_calls() == 0 and sums()["in doubt"] == 0
        assert not Job.objects.filter(heartbeat_at__isnull=False).exclude(status="LOGGED").exists()
        called = len(vendor.books().entries)
        assert sums()["accepted"] == called
        since = fences()
        with sending(account) as program:
            notify_vendors([account.vendor_id])
            all_have_been_streams(since)
            calls(vendor, called + STREAMS * AT_ONCE)
            program.end()
        # What PostgreSQL has received it commits, also after the process has ended.
        wait_until(lambda: connections() <= before, "the killed process has no connection any more")
        left_open = rounds.open_calls()
        assert 0 < left_open <= STREAMS * AT_ONCE and sums()["in doubt"] == 0
        vendor.settings(latency_ms=0.0)
        with sending(account), sweeping():
            all_are_logged()
        assert judge(vendor.books()) == []
        assert sums()["in doubt"] <= left_open and sums().total() == STREAMS * EACH


class Forgetful(Http):
    """An adapter with a mistake: it loses an outcome."""

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        return (await super().send(letters))[1:]


@pytest.fixture
def forgetful() -> Iterator[str]:
    """The name of an adapter that an installed package offers."""
    with installed("forgetful", f"{__name__}:Forgetful") as name:
        yield name


def test_a_stream_that_raises_harms_no_other_one(sandbox: Sandbox, forgetful: str) -> None:
    sandbox.settings(latency_ms=300.0)
    well, ill = taken(40, login(sandbox.url)), taken(40, login(sandbox.url))
    Vendor.objects.filter(pk=ill.vendor_id).update(adapter=forgetful)
    with closing(Sender(many=True)) as sender, ThreadPoolExecutor(2) as threads:
        going = threads.submit(sender.send_claimed_job, well.pk, well.fence)
        calls(sandbox, 1)
        with pytest.raises(ExceptionGroup):
            threads.submit(sender.send_claimed_job, ill.pk, ill.fence).result()
        assert not going.done() and not going.result().left
    well.refresh_from_db()
    assert (well.status, well.accepted) == ("SENT", 40)
    assert finalizer.recover_job(ill.pk, timedelta())
    assert 0 < sums()["in doubt"] <= CONCURRENCY
    Vendor.objects.filter(pk=ill.vendor_id).update(adapter="http")
    for job in (well, ill):
        send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums()["in doubt"] + sums()["accepted"] == 80


def test_jobs_that_somebody_has_locked_hold_up_no_other_stream(sandbox: Sandbox, settings: Any) -> None:
    """More of them than connections. Their own streams wait, and go on afterwards: nobody takes the jobs away."""
    settings.HEARTBEAT_SECONDS = 1.0
    sandbox.settings(latency_ms=300.0)
    held = [taken(3000, login(sandbox.url)) for _ in range(3)]
    free, ids = taken(80, login(sandbox.url)), [job.pk for job in held]
    over = threading.Event()
    with closing(Sender(many=True)) as sender, ExitStack() as stack:
        waiting = [
            stack.enter_context(meanwhile(sender.send_claimed_job, job.pk, job.fence, over.is_set)) for job in held
        ]
        going = stack.enter_context(meanwhile(sender.send_claimed_job, free.pk, free.fence, over.is_set))
        stack.callback(over.set)
        calls(sandbox, 40)
        wait_until(lambda: Job.objects.filter(pk__in=ids, accepted__gt=0).count() == len(ids), "all are streams")
        with locked(Job.objects.filter(pk__in=ids)) as release:
            assert not result_of(going, "going ends").left
            assert not {*ids} & {*finalizer.jobs_to_recover(timedelta(seconds=1))}
            released = timezone.now()
            release()
        renewed = Job.objects.filter(pk__in=ids, fence=held[0].fence + 1, heartbeat_at__gt=released)
        wait_until(lambda: renewed.count() == len(ids), "their leases are renewed")
        over.set()
        assert all(result_of(one, "one ends").left for one in waiting)
    assert Job.objects.get(pk=free.pk).accepted == 80


def test_letters_to_idle_vendors_are_called_while_a_fast_vendor_and_slow_ones_keep_the_process_busy() -> None:
    with ExitStack() as stack:
        fast = login(stack.enter_context(running()).url, (1500, 1.0), concurrency=50)  # 40 s long, on any machine
        slow_vendor = stack.enter_context(running(latency_ms=2000.0))
        slow = [login(slow_vendor.url, (1, 1.0)) for _ in range(10)]
        idle_vendor = stack.enter_context(running())
        idle = [login(idle_vendor.url) for _ in range(10)]
        for account in (fast, *slow, *idle):
            factories.caster(account.vendor)
        busy = [factories.campaign_with_job(60_000, of=fast, status="DISPATCHED")]
        busy += [factories.campaign_with_job(200, of=account, status="DISPATCHED") for account in slow]
        queues = ",".join(["hub", *(account.vendor.queue for account in (fast, *slow, *idle))])
        with worker(threads=40, queues=queues, **LEASE):
            notify_vendors(job.vendor_id for job in busy)
            ids = [job.pk for job in busy]
            wait_until(lambda: Job.objects.filter(pk__in=ids, accepted__gt=0).count() == len(ids), "all are called")
            letters = [factories.campaign_with_job(1, of=account, status="DISPATCHED") for account in idle]
            notify_vendors(account.vendor_id for account in idle)
            wait_until(lambda: len(idle_vendor.books().entries) == len(idle), "the letters are called")
            assert Job.objects.get(pk=busy[0].pk).status == "SENDING", "the fast vendor was not done by then"
            assert letters
