"""Faults 6 to 8: a finaliser is killed (test_01_crash_points.py), meets another one, or other jobs that are sent."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from campaigns.engine import sending
from campaigns.engine.decisions import Verdict
from campaigns.engine.finishing import finalizer
from campaigns.models import AnswerBatch, Claim, Job, Message
from campaigns.operations import actions
from tests import factories
from tests.calling import append, by_sender, claim, started
from tests.faults.checker import judge, sums
from tests.faults.sending import being_sent, calls, login, send_the_rest, sent, take_again, taken
from tests.sandbox import Sandbox
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


def test_07_of_many_finalisers_one_logs(vendor: Sandbox) -> None:
    job = taken(["ann@x.example", "lost@sandbox.example", "bounce@sandbox.example"], login(vendor.url))
    sending.send_claimed_job(job.pk, job.fence)
    together = Barrier(6)

    def finalise(_: int) -> bool:
        try:
            together.wait()
            return finalizer.finalise_job(job.pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(finalise, range(6))) == [False] * 5 + [True]
    assert judge(vendor.books()) == [] and sums() == {"accepted": 1, "in doubt": 1, "refused": 1}


def rows(of: Job) -> list[Any]:
    messages = Message.objects.filter(id__gte=of.first_message, id__lt=of.end).order_by("id")
    of_job = [list(table.objects.filter(job=of).values()) for table in (Claim, AnswerBatch)]
    return [list(messages.values()), *of_job]


def test_08_finalising_touches_no_row_of_another_job_not_even_of_its_campaign(vendor: Sandbox) -> None:
    """Postman's finaliser un-dequeued the messages of everybody else (S2, T3)."""
    campaign = factories.campaign(["lost@sandbox.example", *"bcdef"], of=login(vendor.url))
    first = campaign.first_message
    ours, other = (take_again(factories.job(campaign, "DISPATCHED", first_message=first + at, size=3)) for at in (0, 3))
    lease = started(other)
    claimed = by_sender(lambda rows: claim(rows, other, lease, most=2))
    called = [(message.id, Refused("bounce")) for message in claimed.messages[:1]]
    by_sender(lambda rows: append(rows, lease, claimed.claim, called))
    sending.send_claimed_job(ours.pk, ours.fence)
    before = rows(other)
    assert finalizer.finalise_job(ours.pk)
    assert rows(other) == before and list(map(len, before)) == [3, 1, 1]
    assert finalizer.recover_job(other.pk, timedelta()) and sums() == {
        "accepted": 2,
        "refused": 1,
        "in doubt": 2,
        "waiting": 1,
    }


def test_08_while_one_job_is_sent_others_of_its_campaign_are_finalised(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=50.0)
    account = login(sandbox.url)
    campaign = factories.campaign(48, of=account)
    first = campaign.first_message
    long = take_again(factories.job(campaign, "DISPATCHED", first_message=first, size=40))
    short = [factories.job(campaign, "DISPATCHED", first_message=first + 40 + 2 * n, size=2) for n in range(4)]
    with being_sent(long):
        calls(sandbox, 4)
        for job in short:
            sent(take_again(job))
    send_the_rest(long)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 48}


@pytest.mark.parametrize(
    ("outcome", "becomes"),
    [
        (Accepted(""), "accepted"),
        (Refused(""), "refused"),
        (Refused("e" * 300, "n\0" * 300), "refused"),
        (InDoubt(""), "in doubt"),
        (InDoubt("\ud800 lone"), "in doubt"),
        (NotSent("later", retry_after=1e300), "waiting"),
        (NotSent("later", retry_after=math.inf), "waiting"),
        (NotSent("later", retry_after=math.nan), "waiting"),
    ],
    ids=lambda word: word if isinstance(word, str) else "",
)
def test_no_answer_that_an_adapter_makes_up_keeps_its_job_from_being_finalised(
    outcome: Outcome, becomes: str, vendor: Sandbox
) -> None:
    """Whoever locks the job merges its answers: one that the columns could not hold would be in everybody's way."""
    job = taken(2, login(vendor.url))
    lease = started(job)
    called = by_sender(lambda rows: claim(rows, job, lease))
    by_sender(lambda rows: append(rows, lease, called.claim, [(called.messages[0].id, outcome)]))
    assert actions.stop_jobs([job.pk])[0].verdict == Verdict.DONE and finalizer.finalise_job(job.pk)
    assert sums() == Counter([becomes, "waiting"])
