"""Calls that have ended leave a rebuilt window at their own end; those that may be open stay until their deadline."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from campaigns.engine import ground_truth, lifecycle
from campaigns.engine.claiming import claims, rebuild
from campaigns.engine.claiming.claims import Lease
from campaigns.engine.doubts import calls, queries
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending import sender
from campaigns.models import Claim, Job, Message
from tests import calling, factories
from tests.campaigns.rows import in_doubt, logged
from tests.campaigns.test_claims_and_answers import answered, claim, recovered, sending
from tests.campaigns.test_claims_that_wait import in_doubt_of, scope_of
from vendors.models import Usage

pytestmark = pytest.mark.django_db(transaction=True)
DEADLINE = 5.0  # seconds; of tests/calling.py


def held(job: Job, longest: float = 3600.0) -> tuple[int, int]:
    """(units that are over, units that may be open) of what a rebuilt window of the job's vendor holds."""
    rows = rebuild.read_ledger(job.vendor_id, longest)
    assert all(credential == job.credential_id for credential, _, _ in rows)
    assert all(left <= DEADLINE for _, left, _ in rows)
    return sum(units for _, left, units in rows if left <= 0), sum(units for _, left, units in rows if left > 0)


def held_for(job: Job, receiver: str, longest: float = 3600.0) -> tuple[int, int]:
    """The same of what the rebuilt window of a receiver holds."""
    rows = rebuild.read_receiver_ledger(job.vendor_id, receiver, longest, 1000)
    return sum(units for _, left, units in rows if left <= 0), sum(units for _, left, units in rows if left > 0)


def merge(job: Job) -> None:
    with transaction.atomic():
        lifecycle.hold_jobs([job.pk])


def the_claim(job: Job) -> Claim:
    return Claim.objects.get(job=job)


def test_all_calls_of_a_claim_may_be_open_until_they_are_answered() -> None:
    job = sending(3)
    claim(job)
    assert held(job) == (0, 3)


def test_an_answer_ends_its_call_when_it_is_stored_and_stays_so_when_it_is_merged() -> None:
    job = sending(4)
    claim(job)
    answered(the_claim(job), "ard", [0, 1, 2])
    assert held(job) == (3, 1)
    merge(job)
    assert held(job) == (3, 1)
    answered(the_claim(job), "a", [3], last=True)
    assert held(job) == (4, 0)
    merge(job)
    assert held(job) == (4, 0) and not Claim.objects.exists()


def test_the_end_is_when_the_last_answer_was_stored() -> None:
    job = sending(2)
    claim(job)
    ends = [timezone.now() + timedelta(seconds=1), timezone.now() + timedelta(seconds=2)]
    for number, at in enumerate(ends):
        answered(the_claim(job), "a", [number], last=number == 1, at=at)
        merge(job)
    assert Usage.objects.get().ended_at == ends[1]
    assert held(job) == (0, 2), "an end that lies ahead is not over"


def test_an_answer_that_is_stored_twice_ends_no_other_call() -> None:
    job = sending(2)
    claim(job)
    for _ in range(2):
        answered(the_claim(job), "a", [0])
        merge(job)
        answered(the_claim(job), "a", [0])
    assert held(job) == (1, 1)


def test_what_was_not_sent_has_ended() -> None:
    job = sending(3)
    claim(job)
    answered(the_claim(job), "n", [0])
    assert held(job) == (1, 2)
    merge(job)
    assert held(job) == (1, 2)


def test_units_count_and_not_messages() -> None:
    job = sending(3)
    ids = [job.first_message + number for number in range(3)]
    claim(job, units=dict(zip(ids, [2, 3, 5], strict=True)))
    answered(the_claim(job), "a", [1], units=[3])
    assert held(job) == (3, 7)
    merge(job)
    assert held(job) == (3, 7)


def test_what_was_claimed_together_ends_job_by_job() -> None:
    one, two = sending(2), None
    two = factories.campaign_with_job(3, of=one.credential, status="SENDING", fence=2)

    async def together(rows: Any) -> None:
        asked = [calling.asked(job, Lease(job.pk, job.fence), most=9) for job in (one, two)]
        await claims.claim_for_jobs(rows, await calling.to_claim(rows, one, Lease(one.pk, one.fence)), asked)

    calling.by_sender(together)
    assert Usage.objects.get().units == 5 and held(one) == (0, 5)
    answered(the_claim(one), "aa", last=True)
    assert held(one) == (2, 3)
    merge(one)
    assert held(one) == (2, 3)
    answered(the_claim(two), "aaa", last=True)
    merge(two)
    assert held(one) == (5, 0)


def test_a_receiver_waits_for_the_open_calls_of_a_claim_and_for_no_answered_one() -> None:
    job = sending(6)
    claim(job)
    Usage.objects.update(receivers={"gmail": 4, "web": 2})
    assert held_for(job, "gmail") == (0, 4) and held_for(job, "web") == (0, 2)
    answered(the_claim(job), "aaa", [0, 1, 2])
    assert held_for(job, "gmail") == (1, 3), "each of the three open calls may have gone there"
    assert held_for(job, "web") == (0, 2) and held_for(job, "never named") == (3, 3)
    answered(the_claim(job), "rd", [3, 4])
    merge(job)
    assert held_for(job, "gmail") == (3, 1) and held_for(job, "web") == (1, 1)
    answered(the_claim(job), "a", [5], last=True)
    assert held_for(job, "gmail") == (4, 0) and held_for(job, "web") == (2, 0)
    merge(job)
    assert not Claim.objects.exists() and held_for(job, "gmail") == (4, 0)
    assert rebuild.read_receiver_ledger(job.vendor_id, "gmail", 3600.0, 3)[0][2] == 3, "no more than can count"


def test_a_receiver_waits_until_the_deadline_for_a_sender_that_was_lost() -> None:
    job = sending(3)
    claim(job)
    Usage.objects.update(receivers={"gmail": 2})
    answered(the_claim(job), "aa", [0, 1])
    merge(job)
    recovered(job)
    assert held_for(job, "gmail") == (0, 2)
    Job.objects.filter(pk=job.pk).update(status="SENT")
    assert finalizer.finalise_job(job.pk) and not Claim.objects.exists()
    assert held_for(job, "gmail") == (0, 2)


def test_calls_of_a_sender_that_was_lost_may_be_open_until_their_deadline_whatever_becomes_of_the_job() -> None:
    job = sending(3)
    claim(job)
    answered(the_claim(job), "a", [0])
    merge(job)
    recovered(job)
    assert held(job) == (0, 3), "which of them were answered is known of its present sender alone"
    Job.objects.filter(pk=job.pk).update(status="SENT")
    assert finalizer.finalise_job(job.pk) and not Claim.objects.exists()
    assert held(job) == (0, 3)


def test_a_late_answer_of_a_lost_sender_ends_its_call() -> None:
    job = sending(2)
    claim(job)
    recovered(job)
    answered(the_claim(job), "aa", last=True)
    merge(job)
    assert held(job) == (2, 0)


@pytest.mark.parametrize("verb", ["release", "put back", "another pass", "drain"])
def test_what_was_claimed_and_never_called_has_ended(verb: str) -> None:
    job = sending(2)
    found = claim(job)
    assert found.claim
    lease, of = Lease(job.pk, job.fence), found.claim
    if verb == "release":
        calling.by_sender(lambda rows: claims.delete_claim(rows, lease, of))
    elif verb == "put back":
        assert sender.put_back(job.pk, job.fence)
    elif verb == "another pass":
        calling.by_sender(lambda rows: claims.new_pass(rows, lease, job.first_message, job.end))
    else:
        Message.objects.update(dequeued_at=timezone.now(), error_code="expired")
        assert sender.drain_job(lease, job.first_message, job.end).done
    assert not Claim.objects.exists() and held(job) == (2, 0)


def test_a_call_whose_letter_is_reported_as_delivered_has_arrived() -> None:
    job = sending(2)
    claim(job)

    calling.by_sender(lambda rows: ground_truth.accept_messages(rows, [(job.first_message, "v-1", 0)]))
    assert held(job) == (1, 1)


def test_rows_of_the_version_before_are_held_until_their_deadline() -> None:
    job = sending(2)
    claim(job)
    Claim.objects.update(ledger=None)
    answered(the_claim(job), "aa", last=True)
    merge(job)
    assert held(job) == (0, 2)


def test_no_end_is_later_than_the_deadline_and_none_is_of_before_the_longest_window() -> None:
    job = sending(1)
    claim(job)
    past = timezone.now() - timedelta(seconds=100)
    Usage.objects.update(until=past)
    answered(the_claim(job), "a", last=True)
    merge(job)
    [(_, left, units)] = rebuild.read_ledger(job.vendor_id, 3600.0)
    assert units == 1 and -101 - DEADLINE * 60 < left <= -100
    assert rebuild.read_ledger(job.vendor_id, 50.0) == []


@contextmanager
def doubts() -> Iterator[tuple[Job, Any, Any]]:
    job = logged(1, [{**in_doubt(), "settle_at": timezone.now()}])
    yield job, in_doubt_of(job), scope_of(job)


@pytest.mark.parametrize("is_repeat", [True, False])
def test_a_call_for_a_doubt_may_be_open_until_it_is_told_that_it_has_ended(is_repeat: bool) -> None:
    with doubts() as (job, doubt, scope):

        async def call(rows: Any) -> bool | None:
            if is_repeat:
                return await queries.allow_repeat(rows, scope, doubt, 5.0, units=2, young=1e9, closes=None, grant="g")
            return await queries.allow_look_up(rows, scope, doubt, 5.0, grant="g")

        assert calling.by_sender(call) is True
        units = 2 if is_repeat else 1
        assert held(job) == (0, units)
        calling.by_sender(lambda rows: calls.tell_ended(rows, job.vendor_id, "another"))
        assert held(job) == (0, units)
        calling.by_sender(lambda rows: calls.tell_ended(rows, job.vendor_id, "g"))
        assert held(job) == (units, 0)
