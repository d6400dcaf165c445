"""What a vendor says of login, account or waiting takes effect before a stream ends, whatever else ends it."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from campaigns.models import Campaign, Job
from campaigns.operations import actions
from tests.faults.sending import being_sent, calls, login, meanwhile, take_again, taken
from tests.sandbox import Sandbox
from tests.waiting import result_of
from vendors.models import Credential

pytestmark = pytest.mark.django_db(transaction=True)

LATENCY = 1500.0  # milliseconds, in which the calls stay open while the stream comes to its end
WRONG_LOGIN: dict[str, Any] = {"unauthorized": True, "latency_ms": LATENCY}
TOO_FAST: dict[str, Any] = {"throttle": "1/3000", "latency_ms": LATENCY}


def send(job: Job) -> Any:
    from campaigns.engine import sending as sender

    return sender.send_claimed_job(job.pk, job.fence)


def heeded(account: Credential, said: dict[str, Any]) -> bool:
    account.refresh_from_db()
    if said is WRONG_LOGIN:
        return account.paused and "401" in account.paused_reason
    return account.retry_after_until is not None and account.retry_after_until > timezone.now() + timedelta(minutes=20)


BOTH = pytest.mark.parametrize("said", [WRONG_LOGIN, TOO_FAST], ids=["401", "429"])


@BOTH
def test_at_five_a_minute_the_first_answers_are_enough_and_nobody_tries_again(
    said: dict[str, Any], sandbox: Sandbox
) -> None:
    sandbox.settings(**said)
    account = login(sandbox.url, (5, 60), concurrency=32)
    job = taken(40, account)
    assert send(job).left
    assert heeded(account, said), "the rate limit was the other reason to end"
    assert len(sandbox.books().entries) == 5
    job.refresh_from_db()
    assert (job.status, job.refused, job.in_doubt) == ("DISPATCHED", 0, 0)
    assert send(take_again(job)).left and len(sandbox.books().entries) == 5


@BOTH
def test_it_is_heeded_when_the_process_is_asked_to_end_meanwhile(said: dict[str, Any], sandbox: Sandbox) -> None:
    import threading

    from campaigns.engine import sending as sender

    sandbox.settings(**said)
    account = login(sandbox.url)
    job = taken(20, account)
    over = threading.Event()
    with meanwhile(sender.send_claimed_job, job.pk, job.fence, over.is_set) as sending:
        calls(sandbox, 2)
        over.set()
        assert result_of(sending, "the sender ends").left
    assert heeded(account, said)


@BOTH
def test_it_is_heeded_when_a_person_stops_the_job_meanwhile(said: dict[str, Any], sandbox: Sandbox) -> None:
    sandbox.settings(**said)
    account = login(sandbox.url)
    job = taken(20, account)
    with being_sent(job) as sending:
        calls(sandbox, 2)
        actions.stop_jobs([job.pk])
        result_of(sending, "the sender ends")
    assert heeded(account, said)


@BOTH
def test_it_is_heeded_when_the_deadline_passes_meanwhile(said: dict[str, Any], sandbox: Sandbox) -> None:
    sandbox.settings(**{**said, "latency_ms": 5000.0})
    account = login(sandbox.url)
    job = taken(20, account)
    deadline = timezone.now() + timedelta(seconds=2.5)
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=deadline)
    with being_sent(job) as sending:
        calls(sandbox, 2)
        result_of(sending, "the sender ends")
    assert heeded(account, said)
    job.refresh_from_db()
    assert (job.status, job.expired + job.accepted) == ("SENT", 20)


@BOTH
def test_it_is_heeded_when_the_job_was_taken_away_meanwhile(said: dict[str, Any], sandbox: Sandbox) -> None:
    sandbox.settings(**said)
    account = login(sandbox.url)
    job = taken(20, account)
    with being_sent(job) as sending:
        calls(sandbox, 2)
        Job.objects.filter(pk=job.pk).update(fence=job.fence + 7)
        result_of(sending, "the sender ends")
    assert heeded(account, said)


@BOTH
def test_it_is_heeded_when_every_message_is_in_a_call(said: dict[str, Any], sandbox: Sandbox) -> None:
    sandbox.settings(**said)
    account = login(sandbox.url)
    job = taken(3, account)
    assert send(job).left
    assert heeded(account, said) and len(sandbox.books().entries) == 3


def test_a_refused_login_outranks_a_failed_connection_that_was_heard_after_it(sandbox: Sandbox) -> None:
    from campaigns.engine.sending.call_pool import heavier_refusal
    from vendors.outcomes import NotSent

    login_refused = NotSent("http 401", scope="credential", pause=True)
    asked_to_wait = NotSent("http 429", retry_after=3000, scope="credential")
    unreachable = NotSent("connection refused")
    order = [unreachable, asked_to_wait, login_refused]
    for low, one in enumerate(order):
        for other in order[low:]:
            assert heavier_refusal(one, other) is other and (heavier_refusal(other, one) is other or one is other)
    assert heavier_refusal(None, unreachable) is unreachable
