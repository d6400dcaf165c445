"""Fault 50, for messages claimed ahead of the connections: they are neither called after a stop or a pause nor lost.

Hundreds are claimed while CONCURRENCY calls are open. The 50 ms for which a confirmation holds are the matter of
campaigns/test_claims_ahead.py; here rows and the vendor's books must agree.
"""

from collections.abc import Callable
from typing import Any

import pytest

from campaigns.engine import audit, decisions
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import stream
from campaigns.models import Claim, Job, Message
from campaigns.operations import actions, pausing
from campaigns.suppression import lists
from campaigns.suppression.lists import NewSuppression
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, login, send_the_rest, taken
from tests.sandbox import Sandbox
from tests.waiting import result_of, wait_until
from vendors.models import Credential, RateLimit, Vendor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]
MANY = 3_000
NEVER_BINDS = (1_000_000, 1.0)


@pytest.fixture
def job(sandbox: Sandbox, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Job:
    """As much is claimed as a job may have, however slow the database is. The vendor takes long to call it all."""
    monkeypatch.setattr(stream, "FRESH", 3600.0)
    settings.CLAIM_AHEAD_SECONDS = 100.0
    sandbox.settings(latency_ms=30.0)
    return taken(MANY, login(sandbox.url, NEVER_BINDS))


def is_claimed_ahead() -> bool:
    return any(len(messages) > CONCURRENCY for messages in Claim.objects.values_list("messages", flat=True))


CHANGES: dict[str, tuple[Callable[[Job], object], Callable[[Job], object]]] = {
    "its campaign is paused": (
        lambda job: pausing.pause_jobs([job.pk], "ann"),
        lambda job: pausing.resume_jobs([job.pk], "ann"),
    ),
    "its vendor is paused": (
        lambda job: Vendor.objects.filter(pk=job.vendor_id).update(paused=True),
        lambda job: Vendor.objects.filter(pk=job.vendor_id).update(paused=False),
    ),
    "its credential is paused": (
        lambda job: Credential.objects.filter(pk=job.credential_id).update(paused=True),
        lambda job: Credential.objects.filter(pk=job.credential_id).update(paused=False),
    ),
    "its limit becomes 0": (
        lambda job: RateLimit.objects.filter(vendor=job.vendor_id).update(units=0),
        lambda job: RateLimit.objects.filter(vendor=job.vendor_id).update(units=NEVER_BINDS[0]),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_50_what_was_claimed_ahead_waits_until_somebody_resumes(what: str, job: Job, sandbox: Sandbox) -> None:
    change, undo = CHANGES[what]
    with being_sent(job) as sending:
        wait_until(is_claimed_ahead, "more is claimed than there are connections", every=0.01)
        change(job)
        assert result_of(sending, "the sender puts the job back").left
    called = len(sandbox.books().entries)
    assert sums() == {"accepted": called, "waiting": MANY - called} and called < MANY
    assert not Claim.objects.exists() and judge(sandbox.books(), final=False) == []
    first = Message.objects.filter(dequeued_at=None).order_by("pk").values_list("pk", flat=True)[0]
    job.refresh_from_db()
    assert job.next_message is None or job.next_message <= first, "what was given back goes first again"
    sandbox.settings(latency_ms=0.0)
    undo(job)
    send_the_rest(job)
    assert len(sandbox.books().entries) == MANY and sums() == {"accepted": MANY}
    assert judge(sandbox.books()) == [] and not [check for check in audit.ask_all_questions() if not check.is_kept]


def test_50_after_a_stop_what_was_claimed_ahead_is_not_called(job: Job, sandbox: Sandbox) -> None:
    with being_sent(job) as sending:
        wait_until(is_claimed_ahead, "more is claimed than there are connections", every=0.01)
        assert actions.stop_jobs([job.pk], by="ann")[0].verdict == decisions.Verdict.DONE
        assert not result_of(sending, "the sender ends").left
    called = len(sandbox.books().entries)
    assert sums() == {"accepted": called, "waiting": MANY - called} and called < MANY
    assert finalizer.finalise_job(job.pk) and not Claim.objects.exists()
    assert judge(sandbox.books()) == []


def test_50_who_is_suppressed_while_claimed_ahead_is_not_called(job: Job, sandbox: Sandbox) -> None:
    last = list(Message.objects.order_by("-pk").values_list("recipient", flat=True)[:500])
    with being_sent(job) as sending:
        wait_until(is_claimed_ahead, "more is claimed than there are connections", every=0.01)
        lists.add_suppressions(None, "email", [NewSuppression(one, "stop") for one in last])
        sandbox.settings(latency_ms=0.0)
        assert not result_of(sending, "all is sent").left
    called = {entry.recipient for entry in sandbox.books().entries}
    assert finalizer.finalise_job(job.pk) and not called & set(last)
    assert sums() == {"accepted": MANY - len(last), "suppressed": len(last)}
    assert judge(sandbox.books()) == []
