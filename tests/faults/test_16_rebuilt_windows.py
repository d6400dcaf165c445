"""Fault 16, further: a slow vendor whose calls are all answered is called again within one window of a loss of Redis.

Its deadline is 660 seconds: were answered calls held until then, the vendor would stand still for as long.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.engine import progress, sending
from campaigns.engine.claiming.claims import Lease
from campaigns.models import Job, Message
from campaigns.reporting.forecast import eta, queues
from mailhub.monitoring import probes
from mailhub.operations import dashboard
from tests import calling, factories
from tests.faults.sending import being_sent, taken
from tests.faults.test_16_redis import flushed, redis
from tests.private_redis import PrivateRedis
from tests.receivers.relays import serve_relay
from tests.waiting import wait_until
from tests.windows import worst_window
from vendors.models import Credential, Usage

__all__ = ["redis"]
pytestmark = [pytest.mark.slow("servers"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
LIMIT = (4, 1.0)
LOSSES = pytest.mark.parametrize(
    "loss",
    [
        pytest.param(lambda redis: redis.restart(keep=True), id="started again"),
        pytest.param(lambda redis: redis.restart(keep=False), id="started again empty"),
        pytest.param(flushed, id="flushed"),
    ],
)


class Relay:
    """Takes all mails, notes when each arrived, and answers none to `hangs` until it is told to."""

    def __init__(self) -> None:
        self.arrivals: dict[str, float] = {}
        self.go_on = threading.Event()

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        self.arrivals[envelope.rcpt_tos[0]] = time.monotonic()
        while envelope.rcpt_tos[0].startswith("hangs") and not self.go_on.is_set():
            await asyncio.sleep(0.02)
        return "250 taken"


@pytest.fixture
def relay() -> Iterator[tuple[Relay, int]]:
    made = Relay()
    with serve_relay(made) as port:
        try:
            yield made, port
        finally:
            made.go_on.set()


def login(port: int) -> Credential:
    known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 4, "batch": 1}
    made = factories.vendor(adapter="smtp", settings=known, channel="email", limits=[LIMIT])
    return factories.credential(made)


def is_sent_at_once(job: Job) -> bool:
    """Whether no sender had to give it back because the window was full for longer than it waits."""
    left = sending.send_claimed_job(job.pk, job.fence)
    job.refresh_from_db()
    assert not left.left, job.waits_for
    return Message.objects.filter(campaign=job.campaign, message_id=None).count() == 0


@LOSSES
def test_16_when_all_calls_are_answered_the_vendor_is_called_within_one_window(
    loss: Callable[[PrivateRedis], None], redis: PrivateRedis, relay: tuple[Relay, int]
) -> None:
    seen, port = relay
    account = login(port)
    assert is_sent_at_once(taken([f"a{number}@example.org" for number in range(4)], account))
    loss(redis)
    assert is_sent_at_once(taken([f"b{number}@example.org" for number in range(6)], account))
    assert len(seen.arrivals) == 10 and worst_window(seen.arrivals.values(), LIMIT[1]) <= LIMIT[0]


@LOSSES
def test_16_a_call_that_is_open_holds_its_own_place_alone(
    loss: Callable[[PrivateRedis], None], redis: PrivateRedis, relay: tuple[Relay, int]
) -> None:
    seen, port = relay
    account = login(port)
    slow = taken(["hangs@example.org", *(f"a{number}@example.org" for number in range(3))], account)
    with being_sent(slow) as going:
        wait_until(lambda: Message.objects.filter(message_id__isnull=False).count() == 3, "the others are answered")
        loss(redis)
        try:
            assert is_sent_at_once(taken([f"b{number}@example.org" for number in range(7)], account))
            assert not going.done() and Message.objects.get(recipient="hangs@example.org").message_id is None
        finally:
            seen.go_on.set()
        assert not going.result().left
    calls = [at for to, at in seen.arrivals.items() if to.startswith("b")]
    assert worst_window(seen.arrivals.values(), LIMIT[1]) <= LIMIT[0]
    assert worst_window(calls, LIMIT[1]) <= LIMIT[0] - 1, "the open call has its place"


def test_16_where_calls_may_be_open_everybody_is_told_until_when(redis: PrivateRedis, relay: tuple[Relay, int]) -> None:
    account = login(relay[1])
    lost = factories.campaign_with_job(4, of=account, status="SENDING", fence=2)
    calling.by_sender(lambda rows: calling.claim(rows, lost, Lease(lost.pk, 2), most=4))
    Usage.objects.update(until=timezone.now() + timedelta(seconds=600))
    flushed(redis)
    job = taken(["b@example.org"], account)
    left = sending.send_claimed_job(job.pk, job.fence)
    least = timezone.now() + timedelta(seconds=500)
    assert left.left and left.until and left.until > least and relay[0].arrivals == {}
    account.refresh_from_db()
    job.refresh_from_db()
    assert account.rate_limited_until and account.rate_limited_until > least and "rate limit" in job.waits_for
    queue = queues.queues_of_vendors([account.vendor_id], timezone.now())[account.vendor_id]
    assert queue.logins[account.pk].full_until == account.rate_limited_until, "forecasts begin there"
    silent = queue.best_condition.until
    assert silent == account.rate_limited_until
    [row] = [one for one in dashboard.read_dashboard().vendors if one.vendor.pk == account.vendor_id]
    said = f"silent until {timezone.localtime(silent):%H:%M}"
    assert row.state.startswith(f"{said}, because its windows were")
    # There is no mailcaster here, which would be its first obstacle.
    Job.objects.filter(pk=job.pk).update(status="SENDING", heartbeat_at=timezone.now())
    jobs = list(eta.select_related_rows(Job.objects.filter(pk=job.pk)))
    [forecast] = eta.forecast_jobs(jobs, progress.progress_of_jobs(jobs), timezone.now()).values()
    assert forecast.next.startswith(f"{said}, because its windows were")
    [sentence] = probes.list_silent()
    assert sentence.startswith(f"all vendors: {said}") and "because its windows were rebuilt" in sentence
