"""A job is claimed a few messages at a time: a kill, a freeze, a stop, a deadline, a new sender between two claims."""

from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.engine import decisions
from campaigns.engine import sending as sender
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import recording
from campaigns.models import AnswerBatch, Campaign, Claim, Job
from campaigns.operations import actions
from tests import factories
from tests.campaigns.test_joint_claims import in_use
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.rounds import Driver, Mail
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, send_the_rest, take_again, taken
from tests.sandbox import Sandbox
from vendors.models import Mailcaster

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
MANY = 50 * CONCURRENCY


def waiting() -> int:
    return sums()["waiting"]


def test_a_sender_that_ends_after_its_first_calls_leaves_the_rest_as_it_was(sandbox: Sandbox) -> None:
    job = taken(MANY, login(sandbox.url))
    assert sender.send_claimed_job(job.pk, job.fence, lambda: bool(sandbox.books().entries)).left
    assert sums() == {"accepted": len(sandbox.books().entries), "waiting": MANY - len(sandbox.books().entries)}
    assert waiting() > 0 and not Claim.objects.exists() and not AnswerBatch.objects.exists()
    assert Job.objects.get(pk=job.pk).next_message == job.first_message + MANY - waiting()
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}


def test_a_sender_that_is_told_to_end_between_its_permits_and_the_claim_claims_nothing(sandbox: Sandbox) -> None:
    job, places = taken(MANY, login(sandbox.url)), list[int]()

    def stopping() -> bool:
        places.append(in_use(job))
        return any(places)

    assert sender.send_claimed_job(job.pk, job.fence, stopping).left
    assert sandbox.books().entries == [] and waiting() == MANY
    assert places[0] == in_use(job) == 0, "the permits are free again"
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}


def test_the_next_sender_passes_over_nobody_who_was_put_off_before_the_last_claim(sandbox: Sandbox) -> None:
    """It begins behind them, and comes back to them in another pass."""
    odd = {0: "tempfail", 2: "tempfail"}
    job = taken([f"{odd.get(n, 'ann')}+{n}@sandbox.example" for n in range(MANY)], login(sandbox.url))
    assert sender.send_claimed_job(job.pk, job.fence, lambda: len(sandbox.books().entries) > CONCURRENCY).left
    assert Job.objects.get(pk=job.pk).next_message > job.first_message + 2
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}


def test_a_message_that_waits_again_behind_the_position_is_sent_too(sandbox: Sandbox) -> None:
    """As after a look-up which has proved that the call of a sender that was lost was never made."""
    job = taken(3, login(sandbox.url))
    Job.objects.filter(pk=job.pk).update(next_message=job.end)
    sender.send_claimed_job(job.pk, job.fence)
    assert finalizer.finalise_job(job.pk)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 3}


def test_a_stop_between_two_claims_leaves_the_rest_waiting_and_a_retry_sends_it(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    job = taken(MANY, login(sandbox.url))
    with being_sent(job) as sending:
        calls(sandbox, 2 * CONCURRENCY)
        assert actions.stop_jobs([job.pk])[0].verdict == decisions.Verdict.DONE
        assert not sending.result().left
    assert waiting() > 0 and finalizer.finalise_job(job.pk)
    job.refresh_from_db()
    assert job.status == "LOGGED" and not Claim.objects.exists()
    assert job.accepted + waiting() == MANY and judge(sandbox.books()) == []
    sandbox.settings(latency_ms=0.0)
    assert actions.retry_jobs([job.pk])[0].verdict == decisions.Verdict.DONE
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}


def test_a_stop_of_one_job_leaves_the_claims_of_another_alone(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    account = login(sandbox.url)
    campaign = factories.campaign(2 * MANY, of=account)
    first = campaign.first_message
    stopped, other = (
        take_again(factories.job(campaign, "DISPATCHED", first_message=first + at, size=MANY)) for at in (0, MANY)
    )
    with being_sent(stopped) as sending, being_sent(other):
        calls(sandbox, 4 * CONCURRENCY)
        assert actions.stop_jobs([stopped.pk])[0].verdict == decisions.Verdict.DONE
        assert not sending.result().left and finalizer.finalise_job(stopped.pk)
        sandbox.settings(latency_ms=0.0)
    other = send_the_rest(other)
    stopped.refresh_from_db()
    assert (other.accepted, stopped.accepted) == (MANY, MANY - waiting()) and judge(sandbox.books()) == []


def test_what_is_not_claimed_by_the_deadline_expires_and_nothing_is_called_meanwhile(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take many steps."""
    monkeypatch.setattr(recording, "EXPIRED_AT_ONCE", 10)
    job = taken(MANY + 3, login(sandbox.url))
    sender.send_claimed_job(job.pk, job.fence, lambda: bool(sandbox.books().entries))
    called = len(sandbox.books().entries)
    assert waiting() == MANY + 3 - called > 20
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now() - timedelta(seconds=1))
    job = send_the_rest(job)
    assert len(sandbox.books().entries) == called
    assert (job.accepted, job.expired) == (called, job.size - called) and waiting() == 0
    assert judge(sandbox.books()) == []


def test_what_was_sent_before_a_retry_is_passed_over(sandbox: Sandbox) -> None:
    odd = {0: "reject", MANY // 2: "reject", MANY - 1: "reject"}
    job = taken([f"{odd.get(n, 'ann')}+{n}@sandbox.example" for n in range(MANY)], login(sandbox.url))
    send_the_rest(job)
    for _ in range(2):
        actions.retry_jobs([job.pk])
        send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY - 3, "refused": 3}
    assert len(sandbox.books().entries) == MANY + 2 * 3


def mail(url: str) -> Mail:
    """One job of many claims, as a worker makes them."""
    of = login(url, concurrency=20)
    factories.caster(of.vendor, "MC1", "small-only")
    of.vendor.small_audience_threshold = 10_000
    of.vendor.save()
    job = factories.campaign_with_job(300, of=of, status="RENDERED")
    return Mail(of.vendor, job, job)


@pytest.mark.parametrize("point", ["before_grant:4", "after_claim:4"])
@pytest.mark.slow("processes")
def test_a_kill_between_two_claims_loses_nothing_and_doubles_nothing(
    point: str, vendor: Sandbox, driver: Driver
) -> None:
    of = mail(vendor.url)
    assert driver.round(point)["end"] == "killed"
    assert waiting() > 0 and rounds.open_calls() <= 20
    rounds.finish(of, driver)
    assert judge(vendor.books()) == [] and sums().total() == of.small.size


@pytest.mark.slow("processes")
def test_a_sender_that_was_thought_dead_claims_nothing_when_it_wakes_up(vendor: Sandbox, driver: Driver) -> None:
    of = mail(vendor.url)
    result = driver.round("before_grant:4:STOP")
    assert result["end"] == "frozen"
    finalizer.recover_job(of.small.pk, timedelta())
    before = waiting()
    assert before > 100
    Mailcaster.objects.update(enabled=False)  # else its caster takes the job anew, and that one claims
    assert driver.wake(result["pid"])["end"] == "exit 0"
    assert waiting() == before
    Mailcaster.objects.update(enabled=True)
    rounds.finish(of, driver)
    assert judge(vendor.books()) == [] and sums().total() == of.small.size
