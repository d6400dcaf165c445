"""Faults 15 to 17: Redis is started again with its data or empty, is flushed, dies, cannot be reached.

With Redis the throttle's window is lost; notifications are lost in all of tests/faults. Memory, eviction, scripts and
failover (18 to 21): tests/vendors/test_throttle_loss.py, tests/mailhub/test_checks.py.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from campaigns.engine import sending as sender
from campaigns.engine.finishing import finalizer
from campaigns.models import Job
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, send_the_rest, taken
from tests.private_redis import PrivateRedis
from tests.sandbox import Sandbox
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow("servers"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
LIMIT = (10, 1.0)


@pytest.fixture
def redis(settings: Any) -> Iterator[PrivateRedis]:
    server = PrivateRedis()
    settings.REDIS_URL = server.url
    yield server
    server.end()


def flushed(redis: PrivateRedis) -> None:
    with redis.client() as client:
        client.flushall()


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(lambda redis: redis.restart(keep=True), id="15 started again"),
        pytest.param(lambda redis: redis.restart(keep=False), id="16 started again empty"),
        pytest.param(flushed, id="16 flushed"),
    ],
)
def test_after_a_loss_in_the_middle_of_a_window_the_vendor_is_called_no_faster(
    loss: Callable[[PrivateRedis], None], sandbox: Sandbox, redis: PrivateRedis
) -> None:
    job = taken(28, login(sandbox.url, LIMIT, timeout=3))
    with being_sent(job):
        calls(sandbox, 14)
        loss(redis)
    send_the_rest(job)
    assert judge(sandbox.books(), windows=[(*LIMIT, None)]) == []
    assert sums()["accepted"] + sums()["in doubt"] == 28


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders give their jobs back after their second try to reach Redis."""
    monkeypatch.setattr("campaigns.engine.sending.stream.REDIS_PATIENCE", 0.1)


@pytest.mark.usefixtures("impatient")
def test_17_while_redis_cannot_be_reached_nobody_is_called(sandbox: Sandbox, settings: Any) -> None:
    url, settings.REDIS_URL = settings.REDIS_URL, "unix:///nowhere/redis.sock"
    job = taken(5, login(sandbox.url))
    left = sender.send_claimed_job(job.pk, job.fence)
    job.refresh_from_db()
    assert left.left and left.until and "Redis cannot be reached" in job.waits_for
    assert sandbox.books().entries == [] and sums() == {"waiting": 5}
    settings.REDIS_URL = url
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 5}


@pytest.mark.usefixtures("impatient")
def test_17_redis_dies_while_calls_are_open_and_their_answers_are_not_lost(
    sandbox: Sandbox, redis: PrivateRedis
) -> None:
    sandbox.settings(latency_ms=500.0)
    job = taken(40, login(sandbox.url))
    with being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        redis.kill()
        assert sending.result().left
    assert sums()["in doubt"] == 0 and sums()["accepted"] >= CONCURRENCY
    redis.restart(keep=False)
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 40}


def test_17_a_sender_keeps_its_job_while_redis_is_away_and_goes_on_by_itself(
    sandbox: Sandbox, redis: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker may be away together with Redis, so nobody may come to take up again a job that is given back."""
    job = taken(80, login(sandbox.url, LIMIT))
    with being_sent(job) as sending:
        calls(sandbox, 5)
        redis.kill()
        wait_until(lambda: "nothing is called, Redis is away" in caplog.text, "the sender has noticed")
        assert not sending.done() and len(sandbox.books().entries) < 80
        redis.restart(keep=False)
        assert not sending.result().left, "the sender has sent the rest"
    assert finalizer.finalise_job(job.pk)
    assert judge(sandbox.books(), windows=[(*LIMIT, None)]) == [] and sums() == {"accepted": 80}
