"""What a letter costs holds everywhere: in the window, in the ledger, in what is accounted, in a loss of Redis.

The vendor is called over real sockets and counts its calls; each letter says what its call costs.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.claiming import rebuild
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer
from campaigns.models import Job, Message
from campaigns.models.states import Status
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, send_the_rest, sent, taken
from tests.faults.test_42_settling import in_doubt
from tests.sandbox import Sandbox
from vendors import redis_clients
from vendors.limits.throttle import Throttle
from vendors.limits.values import Grant, Limit, Scope, Wait
from vendors.models import Credential, Minute, RateLimit, Usage, Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
TWO = "x" * 200  # segments


def sms(url: str, *limits: tuple[int, float], **settings: Any) -> Credential:
    """A vendor of SMS whose limits count segments."""
    return login(url, *limits, unit="segment", **settings)


def of_two_segments(recipients: int, of: Credential) -> Job:
    job = taken(recipients, of)
    type(job.campaign).objects.filter(pk=job.campaign_id).update(body=TWO)
    return job


def of_lengths(lengths: list[int], of: Credential) -> Job:
    """A job whose messages have texts of these lengths."""
    job = taken(len(lengths), of)
    type(job.campaign).objects.filter(pk=job.campaign_id).update(body="{{ text }}")
    for number, length in enumerate(lengths):
        Message.objects.filter(pk=job.first_message + number).update(params={"text": "x" * length})
    return job


def ledger() -> int:
    return Usage.objects.aggregate(units=Sum("units"))["units"] or 0


def test_42_six_segments_in_ten_minutes_are_three_calls_of_two(sandbox: Sandbox) -> None:
    account = sms(sandbox.url, (6, 600))
    job = of_two_segments(10, account)
    left = sending.send_claimed_job(job.pk, job.fence)
    assert left.left and left.until and left.until > timezone.now()
    assert len(sandbox.books().entries) == 3 and ledger() == 6
    job.refresh_from_db()
    assert (job.accepted, job.units) == (3, 6)
    assert Minute.objects.aggregate(Sum("units"), Sum("accepted")) == {"units__sum": 6, "accepted__sum": 3}
    assert judge(sandbox.books(), final=False, windows=[(3, 600, None)]) == []


def test_42_permits_that_no_letter_fits_in_are_handed_back(sandbox: Sandbox) -> None:
    """Of 5 permits two letters of 2 take 4; the fifth is free for others."""
    account = sms(sandbox.url, (5, 600))
    job = of_two_segments(10, account)
    sending.send_claimed_job(job.pk, job.fence)
    assert len(sandbox.books().entries) == 2 and ledger() == 4
    with redis_clients.make_client(settings.REDIS_URL) as redis:
        generation = Vendor.objects.get(pk=account.vendor_id).generation
        scope = Scope(account.vendor_id, account.pk, generation, (Limit(5, 600.0),))
        assert isinstance(Throttle(redis).acquire(scope, 1, 10.0), Grant)


def test_42_a_window_made_anew_counts_the_segments(sandbox: Sandbox) -> None:
    account = sms(sandbox.url, (6, 600))
    job = of_two_segments(10, account)
    sending.send_claimed_job(job.pk, job.fence)
    with redis_clients.make_client(settings.REDIS_URL) as redis:
        redis.flushdb()
        throttle, generation = Throttle(redis), Vendor.objects.get(pk=account.vendor_id).generation
        assert rebuild.rebuild_window(throttle, account.vendor_id, generation)
        scope = Scope(account.vendor_id, account.pk, generation + 1, (Limit(6, 600.0),))
        assert isinstance(throttle.acquire(scope, 1, 10.0), Wait)


def test_42_a_letter_dearer_than_the_limit_is_refused_with_that_reason_and_the_others_go(sandbox: Sandbox) -> None:
    account = sms(sandbox.url, (3, 0.2))
    job = sent(of_lengths([100, 500, 200, 500, 400], account))
    assert (job.accepted, job.refused, job.units) == (3, 2, 1 + 2 + 3)
    assert len(sandbox.books().entries) == 3 and ledger() == 6
    dear = Message.objects.get(pk=job.first_message + 1)
    assert dear.error_code == "too_dear"
    assert dear.error_sub_type == "it costs 4 units, more than the limit of 3"
    assert judge(sandbox.books(), windows=[(3, 0.2, None)]) == []


def test_42_letters_that_cannot_be_called_need_no_permit_at_all(sandbox: Sandbox) -> None:
    account = sms(sandbox.url, (3, 600))
    job = sent(of_lengths([500] * 7, account))
    assert (job.refused, job.units) == (7, 0)
    assert sandbox.books().entries == [] and ledger() == 0
    assert judge(sandbox.books()) == []


def test_42_letters_go_in_their_order_and_a_dear_one_is_not_passed_by_cheap_ones(sandbox: Sandbox) -> None:
    account = sms(sandbox.url, (4, 600))
    job = of_lengths([100, 100, 400, 100, 100], account)
    sending.send_claimed_job(job.pk, job.fence)
    called = {entry.recipient for entry in sandbox.books().entries}
    assert called == {"r1@sandbox.example", "r2@sandbox.example"}


def test_42_what_was_throttled_by_the_vendor_is_not_accounted_and_goes_again(sandbox: Sandbox) -> None:
    sandbox.settings(throttle="3/3000")
    account = sms(sandbox.url, (1000, 1))
    job = of_two_segments(8, account)
    assert sending.send_claimed_job(job.pk, job.fence).left
    sandbox.settings(throttle="")
    Credential.objects.update(retry_after_until=None)
    job = send_the_rest(job)
    assert (job.accepted, job.units) == (8, 16)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 8}


def test_42_lost_answers_are_accounted_whoever_puts_their_messages_in_doubt(sandbox: Sandbox) -> None:
    """The sender itself, or the sweep after the sender has died with open calls."""
    sandbox.settings(lost_rate=1.0)
    account = sms(sandbox.url, timeout=1)
    job = sent(of_two_segments(CONCURRENCY, account))
    assert (job.in_doubt, job.units) == (CONCURRENCY, 2 * CONCURRENCY)
    dead = factories.campaign_with_job(3, of=account, status=Status.SENDING)
    factories.claim(dead, units=[2, 2, 2])
    assert finalizer.recover_job(dead.pk, timedelta(0))
    dead.refresh_from_db()
    assert (dead.in_doubt, dead.units) == (3, 6)


def test_42_a_repeat_costs_what_the_letter_costs_and_a_look_up_one(sandbox: Sandbox) -> None:
    account = sms(sandbox.url, (5, 600), lookup="strong")
    job = in_doubt(4, account)
    type(job.campaign).objects.update(body=TWO)
    reconciler.reconcile_due_doubts()
    # a look-up and its repeat take 3 of the 5 permits, the next look-up one more; then the repeat has none
    assert (len(sandbox.books().look_ups), len(sandbox.books().entries)) == (2, 1)
    assert ledger() == 1 + 2 + 1
    job.refresh_from_db()
    assert job.units == 2


@pytest.mark.slow("time")
def test_42_a_limit_that_is_lowered_meanwhile_holds_by_segments(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    account = sms(sandbox.url, (40, 1.0))
    job = of_two_segments(60, account)
    with being_sent(job):
        calls(sandbox, 10)
        RateLimit.objects.filter(vendor=account.vendor).update(units=8)
    job = send_the_rest(job)
    assert job.accepted == 60 and job.units == 120
    assert judge(sandbox.books(), windows=[(20, 1.0, None)]) == []
    assert ledger() == 120
