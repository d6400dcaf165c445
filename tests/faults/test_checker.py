"""Who judges the judge: for each promise the classic bug is planted, and the checker must say so.

A limiter that stamps its permits at the grant is caught in tests/properties/test_throttle_strict.py; breaches that the
rows alone show, in tests/campaigns/test_audit.py.
"""

import asyncio
from typing import Any

import pytest
from django.utils import timezone

from campaigns import sending as sender
from campaigns.claiming import claims, limits
from campaigns.connections import connect
from campaigns.decisions import Verdict
from campaigns.finishing import finalizer
from campaigns.models import Job, Message, OpsMessage
from campaigns.operators import actions
from campaigns.sending import recording
from tests.enqueueing import started
from tests.faults.checker import judge
from tests.faults.sending import login, sent, take_again, taken
from tests.sandbox import Sandbox
from vendors.limits.throttle import AsyncThrottle
from vendors.outcomes import Accepted, Refused

pytestmark = pytest.mark.django_db(transaction=True)


def broken(vendor: Sandbox, **more: Any) -> set[str]:
    return {fault.partition(":")[0] for fault in judge(vendor.books(), **more)}


def planted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, right: str, wrong: str) -> None:
    """Puts a mistake into the statement."""
    assert right in getattr(module, name)
    monkeypatch.setattr(module, name, getattr(module, name).replace(right, wrong))


def test_without_a_bug_the_judge_is_content(sandbox: Sandbox) -> None:
    job = sent(taken(["ann@x.example", "lost@sandbox.example", "bounce@sandbox.example"], login(sandbox.url)))
    assert (job.accepted, job.refused, job.in_doubt) == (1, 1, 1)
    assert broken(sandbox, windows=[(3, 5, None)]) == set()


def test_p1_a_blind_requeue_of_what_was_in_flight(vendor: Sandbox) -> None:
    """As acks_late, visibility timeouts and Celery's own retries do."""
    job = taken(["ann@x.example", "lost@sandbox.example"], login(vendor.url))
    sender.send(job.pk, job.fence)
    OpsMessage.objects.filter(in_doubt_at__isnull=False).update(sent_at=None, in_doubt_at=None, error_sub_type=None)
    Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
    sent(take_again(job))
    assert broken(vendor) == {"P1"}


def test_p1_a_retry_that_takes_the_doubts_along(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    job = sent(taken(["ann@x.example", "lost@sandbox.example"], login(vendor.url)))
    planted(monkeypatch, actions, "FREE", "AND m.in_doubt_at IS NULL", "")
    planted(monkeypatch, actions, "FREE", "OR m.sent_at IS NULL", "OR m.delivered_at IS NULL")
    planted(monkeypatch, actions, "FREE", "delivered_at = NULL,", "delivered_at = NULL, in_doubt_at = NULL,")
    assert actions.retry([job.pk])[0].verdict == Verdict.DONE
    sent(take_again(job))
    assert "P1" in broken(vendor)


def test_p2_a_job_that_is_logged_while_calls_are_open(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    job = taken(3, login(vendor.url))
    sender.send(job.pk, job.fence)
    OpsMessage.objects.filter(id=job.first_message).update(delivered_at=None, message_id=None)
    planted(monkeypatch, finalizer, "OPEN", "AND sent_at IS NOT NULL", "AND false")
    assert finalizer.finalise(job.pk)
    assert "P2" in broken(vendor)


def test_p3_an_update_without_a_guard(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that comes late, from a sender that was thought dead, writes over an acceptance."""
    job = taken(1, login(vendor.url))
    sender.send(job.pk, job.fence)
    guard = "AND (a.kind = 'a' OR o.fence = %(fence)s AND o.sent_at IS NOT NULL AND o.delivered_at IS NULL)"
    late = (job.first_message, Refused("timeout"))
    recorded(job, late)
    assert broken(vendor, final=False) == set()
    planted(monkeypatch, recording, "RECORD", guard, "")
    planted(monkeypatch, recording, "RECORD", "AND o.message_id IS NULL", "")
    recorded(job, late)
    assert "P3" in broken(vendor, final=False)


def recorded(job: Job, *answers: tuple[int, Accepted | Refused]) -> None:
    async def tell() -> None:
        rows = await connect()
        await recording.record(rows, claims.Lease(job.pk, 1), answers)
        await rows.close()

    asyncio.run(tell())


def test_p3_an_acceptance_that_the_vendor_knows_nothing_of(vendor: Sandbox) -> None:
    job = taken(1, login(vendor.url))
    started(job)
    recorded(job, (job.first_message, Accepted("sb-0")))
    assert broken(vendor, final=False) == {"P3"}


def test_p4_permits_that_are_given_back_as_soon_as_the_call_is_over(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = (5, 30.0)
    monkeypatch.setattr(AsyncThrottle, "done", AsyncThrottle.cancel)
    sent(taken(20, login(sandbox.url, limit)))
    assert "P4" in broken(sandbox, windows=[(*limit, None)])


def test_p5_a_sender_that_does_not_look_at_the_job(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    job = taken(3, login(vendor.url))
    lease = claims.take(job.pk, job.fence)
    assert lease
    actions.stop([job.pk])
    planted(monkeypatch, claims, "ENQUEUE", "AND status = 'SENDING'", "")
    planted(monkeypatch, claims, "CLAIM", "AND status = 'SENDING'", "")
    planted(monkeypatch, limits, "READ", "j.status", "'SENDING' AS status")
    monkeypatch.setattr(claims, "take", lambda *_: lease)
    monkeypatch.setattr(claims, "start", lambda _: True)
    drained = iter([False, True])
    monkeypatch.setattr(recording, "drain", lambda *_: next(drained))
    sender.send(job.pk, job.fence)
    assert broken(vendor, final=False) >= {"P5"}


def test_p7_finalising_without_a_look_at_whose_rows_they_are(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Postman's fault: it un-dequeues the messages of other campaigns."""
    ours, other = taken(2, login(vendor.url)), taken(2, login(vendor.url))
    started(other)
    OpsMessage.objects.filter(id=other.first_message).update(sent_at=timezone.now())
    planted(monkeypatch, finalizer, "BACK", "id >= %(low)s AND id < %(high)s AND job_id = %(job)s", "true")
    before = list(Message.objects.filter(id__gte=other.first_message).values("id", "dequeued_at"))
    sent(ours)
    assert list(Message.objects.filter(id__gte=other.first_message).values("id", "dequeued_at")) != before
    assert "P2" in broken(vendor, final=False)
