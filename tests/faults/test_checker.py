"""Who judges the judge: for each promise the classic bug is planted, and the checker must say so.

A limiter that stamps its permits at the grant is caught in tests/properties/test_throttle_strict.py; breaches that the
rows alone show, in tests/campaigns/test_audit.py.
"""

from datetime import timedelta
from typing import Any

import pytest

from campaigns.engine import merging
from campaigns.engine import sending as sender
from campaigns.engine.claiming import claims, contexts
from campaigns.engine.decisions import Verdict
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending.sender import Drained
from campaigns.models import Job, Message
from campaigns.operations import actions
from tests.calling import answer, by_sender, claim, started
from tests.faults.checker import judge
from tests.faults.sending import being_sent, calls, login, sent, take_again, taken
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
    sender.send_claimed_job(job.pk, job.fence)
    Message.objects.filter(in_doubt_at__isnull=False).update(
        dequeued_at=None, sent_at=None, in_doubt_at=None, settle_at=None, error_sub_type=None
    )
    Job.objects.filter(pk=job.pk).update(status="DISPATCHED")
    sent(take_again(job))
    assert broken(vendor) == {"P1"}


def test_p1_a_retry_that_takes_the_doubts_along(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    job = sent(taken(["ann@x.example", "lost@sandbox.example"], login(vendor.url)))
    planted(monkeypatch, actions, "FREE", "AND m.in_doubt_at IS NULL", "")
    planted(monkeypatch, actions, "FREE", "OR m.sent_at IS NULL", "OR m.delivered_at IS NULL")
    planted(monkeypatch, actions, "FREE", "delivered_at = NULL,", "delivered_at = NULL, in_doubt_at = NULL,")
    assert actions.retry_jobs([job.pk])[0].verdict == Verdict.DONE
    sent(take_again(job))
    assert "P1" in broken(vendor)


def test_p2_a_job_that_is_logged_while_messages_wait(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    job = taken(3, login(vendor.url))
    started(job)
    Job.objects.filter(pk=job.pk).update(status="SENT")
    planted(monkeypatch, finalizer, "COUNT", "count(*) FILTER (WHERE dequeued_at IS NULL)", "0")
    assert finalizer.finalise_job(job.pk)
    assert "P2" in broken(vendor)


def test_p3_a_job_that_is_logged_while_calls_are_open(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.settings(lost_rate=1.0)
    job = taken(3, login(sandbox.url))
    planted(monkeypatch, finalizer, "ENDED", finalizer.OPEN, "false")
    with being_sent(job):
        calls(sandbox, 3)
        assert actions.stop_jobs([job.pk])[0].verdict == Verdict.DONE
        assert finalizer.finalise_job(job.pk)
        assert "P3" in broken(sandbox, final=False)
        sandbox.kill()  # ends the open calls


def test_p3_an_update_without_a_guard(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that comes late, from a sender that was thought dead, writes over an acceptance."""
    job = taken(1, login(vendor.url))
    lease = started(job)
    lost = by_sender(lambda rows: claim(rows, job, lease))
    late = [(job.first_message, Refused("timeout"))]
    assert finalizer.recover_job(job.pk, timedelta())
    Message.objects.update(dequeued_at=None, sent_at=None, in_doubt_at=None, settle_at=None, error_sub_type=None)
    Job.objects.update(in_doubt=0)
    sender.send_claimed_job(job.pk, take_again(job).fence)
    by_sender(lambda rows: answer(rows, lease, lost.claim, late))
    assert broken(vendor, final=False) == set()
    planted(monkeypatch, merging, "MERGE", "AND m.message_id IS NULL", "")
    for guard in ("a.known", "m.in_doubt_at IS NOT NULL AND m.sent_at = a.called_at"):
        planted(monkeypatch, merging, "MERGE", f"ELSE a.kind = 'a' OR {guard} END", "ELSE true END")
    by_sender(lambda rows: answer(rows, lease, lost.claim, late))
    assert "P3" in broken(vendor, final=False)


def test_p3_an_acceptance_that_the_vendor_knows_nothing_of(vendor: Sandbox) -> None:
    job = taken(1, login(vendor.url))
    lease = started(job)
    claimed = by_sender(lambda rows: claim(rows, job, lease))
    by_sender(lambda rows: answer(rows, lease, claimed.claim, [(job.first_message, Accepted("sb-0"))]))
    assert broken(vendor, final=False) == {"P3"}


def test_p4_permits_that_are_given_back_as_soon_as_the_call_is_over(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = (5, 30.0)

    async def free(throttle: AsyncThrottle, scope: Any, places: Any, receivers: Any = None) -> None:
        await throttle.cancel(scope, places)

    monkeypatch.setattr(AsyncThrottle, "done", free)
    sent(taken(20, login(sandbox.url, limit)))
    assert "P4" in broken(sandbox, windows=[(*limit, None)])


def test_p5_a_sender_that_does_not_look_at_the_job(vendor: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    job = taken(3, login(vendor.url))
    started = claims.start_job(job.pk, job.fence)
    assert started
    actions.stop_jobs([job.pk])
    planted(monkeypatch, claims, "CLAIM", "AND j.status = 'SENDING'", "")
    planted(monkeypatch, contexts, "READ", "j.status", "'SENDING' AS status")
    monkeypatch.setattr(claims, "start_job", lambda *_: started)
    drained = iter([Drained(False), Drained(True)])
    monkeypatch.setattr("campaigns.engine.sending.sender.drain_job", lambda *_: next(drained))
    sender.send_claimed_job(job.pk, job.fence)
    assert broken(vendor, final=False) >= {"P5"}


def test_p7_finalising_without_a_look_at_whose_rows_they_are(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Postman's fault: it un-dequeues messages of other campaigns. Here the open call of another one is forgotten."""
    ours = taken(2, login(sandbox.url))
    sender.send_claimed_job(ours.pk, ours.fence)
    sandbox.settings(lost_rate=1.0)
    other = taken(1, login(sandbox.url))
    with being_sent(other):
        calls(sandbox, 3)
        with monkeypatch.context() as bug:
            planted(bug, finalizer, "COUNT", "WHERE job_id = %(job)s)", ")")
            planted(bug, finalizer, "FORGET", "j.id = %(job)s AND c.job_id = j.id", "c.job_id = j.id")
            assert finalizer.finalise_job(ours.pk)
        assert "P3" in broken(sandbox, final=False)
        sandbox.kill()  # ends the open call
        sandbox.start()
    assert "P1" in broken(sandbox, final=False), "it was called again"
