"""Messages are enqueued in slices while those before them are sent: a kill, a freeze, a stop, a deadline in between."""

from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns import decisions
from campaigns import sending as sender
from campaigns.finishing import finalizer
from campaigns.models import Campaign, Message, OpsMessage
from campaigns.operators import actions
from campaigns.sending import stream
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.rounds import Driver, Mail
from tests.faults.sending import being_sent, calls, login, send_the_rest, taken
from tests.sandbox import Sandbox
from vendors.models import Mailcaster

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
SLICE = 10


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SLICE", SLICE)


def waiting() -> int:
    return Message.objects.filter(dequeued_at=None).count()


@pytest.mark.usefixtures("small_slices")
def test_the_first_call_waits_for_one_slice_only(sandbox: Sandbox) -> None:
    """A sender that has to end after its first calls has not touched the rest."""
    job = taken(5 * SLICE, login(sandbox.url))
    sent = sender.send(job.pk, job.fence, lambda: bool(sandbox.books().entries))
    assert sent.left and sandbox.books().entries
    assert OpsMessage.objects.count() < 5 * SLICE and OpsMessage.objects.count() + waiting() == 5 * SLICE
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 5 * SLICE}


@pytest.mark.usefixtures("small_slices")
def test_a_stop_between_two_slices_leaves_the_rest_waiting_and_a_retry_sends_it(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    job = taken(20 * SLICE, login(sandbox.url))
    with being_sent(job) as sending:
        calls(sandbox, 8)
        assert actions.stop([job.pk])[0].verdict == decisions.Verdict.DONE
        assert not sending.result().left
    assert waiting() > 0 and finalizer.finalise(job.pk)
    job.refresh_from_db()
    assert job.status == "LOGGED" and not OpsMessage.objects.exists()
    assert job.accepted + waiting() == 20 * SLICE and judge(sandbox.books()) == []
    sandbox.settings(latency_ms=0.0)
    assert actions.retry([job.pk])[0].verdict == decisions.Verdict.DONE
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 20 * SLICE}


@pytest.mark.usefixtures("small_slices")
def test_what_is_not_enqueued_by_the_deadline_expires_like_the_rest(sandbox: Sandbox) -> None:
    job = taken(5 * SLICE + 3, login(sandbox.url))
    sender.send(job.pk, job.fence, lambda: bool(sandbox.books().entries))
    assert waiting() > 0
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now() - timedelta(seconds=1))
    job = send_the_rest(job)
    assert job.accepted > 0 and job.accepted + job.expired == job.size and waiting() == 0
    assert judge(sandbox.books()) == []


@pytest.mark.usefixtures("small_slices")
def test_nothing_is_called_while_the_rest_is_enqueued_to_expire(sandbox: Sandbox) -> None:
    """It may take many slices."""
    job = taken(40 * SLICE, login(sandbox.url))
    sender.send(job.pk, job.fence, lambda: bool(sandbox.books().entries))
    called = len(sandbox.books().entries)
    assert waiting() > 20 * SLICE
    Campaign.objects.filter(pk=job.campaign_id).update(deadline=timezone.now() - timedelta(seconds=1))
    job = send_the_rest(job)
    assert len(sandbox.books().entries) == called
    assert (job.accepted, job.expired) == (called, job.size - called) and waiting() == 0


@pytest.mark.usefixtures("small_slices")
def test_what_was_sent_before_a_retry_is_passed_over(sandbox: Sandbox) -> None:
    """Whole slices are skipped, too."""
    odd = {0: "bounce", 2 * SLICE: "bounce", 5 * SLICE - 1: "bounce"}
    job = taken([f"{odd.get(n, 'ann')}+{n}@sandbox.example" for n in range(5 * SLICE)], login(sandbox.url))
    send_the_rest(job)
    for _ in range(2):
        actions.retry([job.pk])
        send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 5 * SLICE - 3, "refused": 3}
    assert len(sandbox.books().entries) == 5 * SLICE + 2 * 3


def mail(url: str) -> Mail:
    """One job of more than two slices, as a worker makes them."""
    of = login(url, concurrency=20)
    factories.caster(of.vendor, "MC1", "small-only")
    of.vendor.small_audience_threshold = 10_000
    of.vendor.save()
    job = factories.campaign_with_job(2 * stream.SLICE + 100, of=of, status="RENDERED")
    return Mail(of.vendor, job, job)


@pytest.mark.parametrize("point", ["before_enqueue:2", "after_enqueue:2"])
def test_a_kill_between_two_slices_loses_nothing_and_doubles_nothing(
    point: str, vendor: Sandbox, driver: Driver
) -> None:
    of = mail(vendor.url)
    assert driver.round(point)["end"] == "killed"
    assert waiting() + OpsMessage.objects.count() == of.small.size
    assert rounds.open_calls() <= 20
    rounds.finish(of, driver)
    assert judge(vendor.books()) == [] and sums().total() == of.small.size


def test_a_sender_that_was_thought_dead_enqueues_nothing_when_it_wakes_up(vendor: Sandbox, driver: Driver) -> None:
    of = mail(vendor.url)
    result = driver.round("before_enqueue:2:STOP")
    assert result["end"] == "frozen"
    finalizer.recover(of.small.pk, timedelta())
    before = waiting()
    assert before == stream.SLICE + 100
    Mailcaster.objects.update(enabled=False)  # else its caster takes the job anew, and that enqueues
    assert driver.wake(result["pid"])["end"] == "exit 0"
    assert waiting() == before
    Mailcaster.objects.update(enabled=True)
    rounds.finish(of, driver)
    assert judge(vendor.books()) == [] and sums().total() == of.small.size
