"""Faults 34 to 42: the vendor hangs, dies, answers nonsense, throttles, refuses the login, does not know what it has.

Broken answers of every kind (35, 36, 40) meet the adapters in tests/contracts; here the whole way does.
"""

from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.casting import mailcaster
from campaigns.engine.doubts import reconciler
from campaigns.models import Job
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.rounds import an_hour_passes
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, send_the_rest, sent, take_again, taken
from tests.sandbox import Sandbox
from vendors.models import Credential

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]

AFTER = 2 * CONCURRENCY  # calls under way, or claimed, while the first refusal comes in


def settled() -> None:
    """Reconciles much later."""
    an_hour_passes()
    reconciler.reconcile_due_doubts()


def test_34_answers_that_never_come_are_in_doubt_and_not_called_again(sandbox: Sandbox) -> None:
    sandbox.settings(lost_rate=1.0)
    job = sent(taken(CONCURRENCY, login(sandbox.url, timeout=1)))
    assert job.in_doubt == CONCURRENCY
    assert judge(sandbox.books()) == [] and len(sandbox.books().entries) == CONCURRENCY


def test_34_a_vendor_that_is_killed_in_the_middle_gets_every_letter_once(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=50.0)
    job = taken(40, login(sandbox.url, lookup="strong"))
    with being_sent(job):
        calls(sandbox, 9)
        sandbox.kill()
        sandbox.start()
    # The kernel of a dying vendor closes its connections before its port, so that each caller may be cut off once more.
    assert sums()["in doubt"] <= 2 * CONCURRENCY and sums()["refused"] == 0
    send_the_rest(job)
    settled()
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 40}


def test_37_a_429_is_waited_for_by_the_whole_credential_and_refuses_nothing(sandbox: Sandbox) -> None:
    sandbox.settings(throttle="3/3000")
    account = login(sandbox.url)
    caster = factories.caster(account.vendor)
    one, other = taken(8, account), factories.campaign_with_job(8, of=account, status="DISPATCHED")
    left = sending.send_claimed_job(one.pk, one.fence)
    assert left.until and left.until > timezone.now() + timedelta(minutes=30)
    at_most = 3 + AFTER
    assert len(sandbox.books().entries) <= at_most
    assert mailcaster.claim_next_job(caster.pk, timezone.now()) is None
    other = take_again(other)
    assert sending.send_claimed_job(other.pk, other.fence).left  # another sender that was at it already
    assert len(sandbox.books().entries) <= at_most
    sandbox.settings(throttle="")
    Credential.objects.update(retry_after_until=None)
    send_the_rest(one)
    send_the_rest(other)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 16}


@pytest.mark.parametrize("safe", [False, True])
def test_38_a_burst_of_5xx_is_doubt_unless_the_contract_calls_it_safe(safe: bool, sandbox: Sandbox) -> None:
    sandbox.settings(down="503")
    job = taken(8, login(sandbox.url, lookup="strong", **({"safe_statuses": "503"} if safe else {})))
    sending.send_claimed_job(job.pk, job.fence)
    entries = len(sandbox.books().entries)
    assert sums() == ({"waiting": 8} if safe else {"in doubt": entries, "waiting": 8 - entries})
    assert entries <= (AFTER if safe else CONCURRENCY + Credential.objects.get().probe_no), "then it is braked"
    sandbox.settings(down="")
    Credential.objects.update(retry_after_until=None)
    send_the_rest(job)
    settled()
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 8}


def test_39_a_refused_login_pauses_the_credential_and_refuses_no_message(sandbox: Sandbox) -> None:
    sandbox.settings(unauthorized=True)
    account = login(sandbox.url)
    job = taken(20, account)
    assert sending.send_claimed_job(job.pk, job.fence).left
    account.refresh_from_db()
    assert account.paused and "401" in account.paused_reason
    assert sums() == {"waiting": 20} and len(sandbox.books().entries) <= AFTER
    sandbox.settings(unauthorized=False)
    Credential.objects.update(paused=False)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 20}


def test_40_a_redirect_after_the_letter_was_taken_pauses_and_is_doubt(sandbox: Sandbox) -> None:
    """It answers 303 after it has taken the letter; after a resume nothing is sent again."""
    account = login(sandbox.url, lookup="strong")
    job = taken([f"moved+{number}@sandbox.example" for number in range(20)], account)
    assert sending.send_claimed_job(job.pk, job.fence).left
    account.refresh_from_db()
    assert account.paused and "http 303" in account.paused_reason
    called = len(sandbox.books().entries)
    assert 1 <= called <= AFTER and sums() == {"in doubt": called, "waiting": 20 - called}
    while Credential.objects.filter(paused=True).update(paused=False):
        take_again(job)
        sending.send_claimed_job(job.pk, job.fence)
    send_the_rest(job)
    settled()
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 20}
    assert len(sandbox.books().entries) == 20


def test_41_a_key_is_trusted_only_as_long_as_the_vendor_surely_knows_it(sandbox: Sandbox) -> None:
    """lost@ was accepted: while the key is young the vendor says so; afterwards nobody asks it to send."""
    sandbox.settings(dedupe=True)
    sent(taken(["lost+old@sandbox.example"], login(sandbox.url, dedupe=True, dedupe_ttl=600)))
    settled()
    assert sums() == {"in doubt": 1} and len(sandbox.books().entries) == 1
    sent(taken(["lost+young@sandbox.example"], login(sandbox.url, dedupe=True, dedupe_ttl=7200)))
    settled()
    assert sums() == {"in doubt": 1, "accepted": 1}
    assert sandbox.books().verdicts == {"accepted": 2, "repeat": 1}
    assert judge(sandbox.books()) == []


def test_42_a_look_up_that_does_not_find_or_does_not_answer_proves_nothing(sandbox: Sandbox) -> None:
    sandbox.settings(lookup_delay=7200.0)
    job = sent(taken(["lost@sandbox.example"], login(sandbox.url, lookup="weak")))
    settled()
    assert sums() == {"in doubt": 1}
    sandbox.settings(lookup_delay=0.0, down="503")
    settled()
    assert sums() == {"in doubt": 1}
    sandbox.settings(down="")
    settled()
    assert Job.objects.get(pk=job.pk).accepted == 1 and len(sandbox.books().entries) == 1
    assert judge(sandbox.books()) == []
