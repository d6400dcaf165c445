"""A vendor that cannot be reached is tried more and more rarely, by all its jobs together."""

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.engine import sending as sender
from campaigns.engine.claiming.limits import BACKOFF_MOST, PATIENCE
from campaigns.models import Job
from tests.faults.sending import being_sent, calls, login, take_again, taken
from tests.sandbox import Sandbox
from tests.waiting import result_of
from vendors.models import Credential

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def nobody_listens() -> Iterator[str]:
    """An address at which every connection is refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def closed_last(account: Credential, seconds: float, ended: float = 0.0) -> None:
    """The credential was closed for so many seconds, which ended so many seconds ago."""
    until = timezone.now() - timedelta(seconds=ended)
    since = until - timedelta(seconds=2 * seconds)
    Credential.objects.filter(pk=account.pk).update(backoff=seconds, retry_after_until=until, unreached_since=since)


def once(job: Job, account: Credential) -> float:
    """Sends until the job is put back; for how long the credential is closed then."""
    assert sender.send_claimed_job(job.pk, job.fence).left
    account.refresh_from_db()
    job.refresh_from_db()
    assert (job.status, job.in_doubt, job.refused) == ("DISPATCHED", 0, 0)
    return account.backoff


def test_a_stream_waits_twice_as_long_each_time_and_lets_its_job_go(nobody_listens: str) -> None:
    account = login(nobody_listens)
    job = taken(20, account)
    closed_last(account, PATIENCE / 2 - 1)
    closed = once(job, account)
    assert closed == 4 * (PATIENCE / 2 - 1), "it waited for the first closing itself, the second one was too long"
    assert account.retry_after_until and account.retry_after_until > timezone.now() + timedelta(seconds=closed / 2)


def test_the_next_job_goes_on_where_the_last_one_was(nobody_listens: str) -> None:
    account = login(nobody_listens)
    job = taken(20, account)
    closed_last(account, 8.0)
    assert once(job, account) == 16.0, "one try, and not again from the beginning"
    closed_last(account, 16.0)
    assert once(take_again(job), account) == BACKOFF_MOST
    closed_last(account, BACKOFF_MOST)
    assert once(take_again(job), account) == BACKOFF_MOST


@pytest.mark.slow("time")
def test_long_after_a_failure_the_next_one_is_a_first_one(nobody_listens: str) -> None:
    account = login(nobody_listens)
    job = taken(20, account)
    closed_last(account, BACKOFF_MOST, ended=600)
    assert once(job, account) < BACKOFF_MOST


@pytest.mark.slow("time")
def test_after_good_answers_the_next_failure_is_a_first_one(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    account = login(sandbox.url, concurrency=2)
    closed_last(account, BACKOFF_MOST)
    job = taken(400, account)
    with being_sent(job) as sending:
        calls(sandbox, 10)
        sandbox.settings(latency_ms=600_000.0)
        calls(sandbox, len(sandbox.books().entries) + 2)  # those are open now, on both connections
        sandbox.stop()
        assert result_of(sending, "the sender ends").left
    account.refresh_from_db()
    assert account.braked_at and account.retry_after_until, "the calls under way were cut: those are doubts in a row"
    assert account.retry_after_until - timezone.now() < timedelta(seconds=BACKOFF_MOST)
