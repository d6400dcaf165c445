"""Fault 4: a sender freezes (SIGSTOP), is thought dead, its job is finished by others, and then it wakes up.

Fault 33: it froze in a transaction, with the locks of rows that others need.
"""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from campaigns.engine import sending as sender
from campaigns.engine.claiming.claims import Lease
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import merge_answers
from campaigns.engine.sending.stream import SLACK
from campaigns.models import Claim, Job, Message
from tests.calling import answer, append, by_sender, claim, started
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.rounds import CONCURRENCY, Driver, Mail
from tests.faults.sending import login, take_again, taken
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


def frozen(mail: Mail, at: str, driver: Driver) -> int:
    result = driver.round(f"{at}:STOP")
    assert result["end"] == "frozen"
    assert rounds.open_calls() <= CONCURRENCY
    return result["pid"]


def wakes_too_late(pid: int, since: float, driver: Driver) -> None:
    """Wakes the sender once all its permits are too old to start a call."""
    while time.monotonic() < since + SLACK:
        time.sleep(0.05)
    assert driver.wake(pid)["end"] == "exit 0"


@pytest.mark.parametrize("at", ["after_claim:2", "before_call:3", "after_call:1", "before_record:1", "before_drain:1"])
@pytest.mark.slow("processes")
def test_a_zombie_doubles_nothing_and_what_it_knows_of_acceptances_counts(
    at: str, vendor: Sandbox, driver: Driver
) -> None:
    mail = rounds.mail(vendor.url)
    pid, since = frozen(mail, at, driver), time.monotonic()
    rounds.finish(mail, driver)
    doubts = sums()["in doubt"]
    wakes_too_late(pid, since, driver)
    assert judge(vendor.books()) == []
    finalizer.merge_answers(timedelta())  # as the next sweep but one does
    if at in ("after_call:1", "before_record:1"):  # the vendor had accepted the first ones
        assert sums()["in doubt"] < doubts
    assert judge(vendor.books()) == []
    rounds.finish(mail, driver)
    assert judge(vendor.books()) == []


@pytest.mark.slow("processes")
def test_a_zombie_does_not_make_the_vendor_faster(sandbox: Sandbox, driver: Driver) -> None:
    limit = (8, 1.0)
    mail = rounds.mail(sandbox.url, timeout=2)
    mail.vendor.limits.update(units=limit[0])
    pid, since = frozen(mail, "before_call:6", driver), time.monotonic()
    driver.round()
    wakes_too_late(pid, since, driver)
    rounds.finish(mail, driver)
    assert judge(sandbox.books(), windows=[(*limit, None)]) == []


def test_a_call_that_was_never_made_is_made_although_its_job_was_thought_to_be_through(vendor: Sandbox) -> None:
    """The zombie reports it after another sender has drained the job, and before it is finalised."""
    job = taken(3, login(vendor.url))
    zombie, lost = claims_some(job, 1)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(hours=1))
    assert finalizer.recover_job(job.pk, timedelta(minutes=1))
    sender.send_claimed_job(job.pk, take_again(job).fence)
    assert Job.objects.get(pk=job.pk).status == "SENT" and sums() == {"accepted": 2, "in doubt": 1}
    proves_that_it_called_nobody(zombie, lost)
    assert not finalizer.finalise_job(job.pk)
    assert Job.objects.get(pk=job.pk).status == "READY" and sums() == {"accepted": 2, "waiting": 1}
    dispatcher.dispatch_ready()
    sender.send_claimed_job(job.pk, take_again(job).fence)
    assert finalizer.finalise_job(job.pk)
    assert judge(vendor.books()) == [] and sums() == {"accepted": 3}


@pytest.mark.parametrize(
    "outcome",
    [NotSent("its permit was too old"), Refused("bounce"), InDoubt("no answer")],
    ids=["not sent", "refused", "in doubt"],
)
def test_what_a_zombie_says_of_its_own_call_says_nothing_of_a_later_one(outcome: Outcome, vendor: Sandbox) -> None:
    """It reports again that its call was not made, while another sender's call of the message is open."""
    job = taken(2, login(vendor.url))
    zombie, lost = claims_some(job, 2)
    proves_that_it_called_nobody(zombie, lost)
    finalizer.recover_job(job.pk, timedelta())
    _, later = claims_some(take_again(job), 1)
    assert later.messages == lost.messages[:1] and sums() == {"in flight": 1, "in doubt": 1}
    before = list(Message.objects.order_by("pk").values())
    by_sender(lambda rows: answer(rows, zombie, lost.claim, [(lost.messages[0].id, outcome)]))
    assert list(Message.objects.order_by("pk").values()) == before and rounds.open_calls() == 1


def test_what_a_zombie_says_of_its_own_call_says_nothing_of_a_doubt_about_a_later_one(vendor: Sandbox) -> None:
    """The later sender was lost in its call, too: that one may have been made."""
    job = taken(2, login(vendor.url))
    zombie, lost = claims_some(job, 2)
    proves_that_it_called_nobody(zombie, lost)
    finalizer.recover_job(job.pk, timedelta())
    claims_some(take_again(job), 1)
    finalizer.recover_job(job.pk, timedelta())
    before = list(Message.objects.order_by("pk").values())
    proves_that_it_called_nobody(zombie, lost)
    assert list(Message.objects.order_by("pk").values()) == before and sums() == {"in doubt": 2}


@pytest.mark.parametrize("first", ["accepted", "other"])
@pytest.mark.parametrize("merged", [True, False], ids=["one by one", "together"])
@pytest.mark.parametrize("other", [Refused("bounce"), InDoubt("no answer"), NotSent("later", retry_after=60.0)])
def test_an_acceptance_wins_over_whatever_else_is_said_of_its_message_and_counts_once(
    first: str, merged: bool, other: Outcome, vendor: Sandbox
) -> None:
    job = taken(2, login(vendor.url))
    lease, claimed = claims_some(job, 2)
    say = answer if merged else append
    for outcome in (Accepted("v-1"), other) if first == "accepted" else (other, Accepted("v-1")):
        said = [(claimed.messages[0].id, outcome)]
        by_sender(lambda rows, said=said: say(rows, lease, claimed.claim, said))  # type: ignore[misc]
    by_sender(lambda rows: merge_answers(rows, [job.pk]))
    job.refresh_from_db()
    assert sums() == {"accepted": 1, "in flight": 1} and (job.accepted, job.refused, job.in_doubt) == (1, 0, 0)


def test_a_call_that_was_never_made_is_not_in_doubt_if_the_sender_dies_in_another_one_of_the_same_claim(
    vendor: Sandbox,
) -> None:
    """The proof was merged long before. Letters of several units: their costs stay with their messages."""
    job = taken(3, login(vendor.url))
    lease, lost = claims_some(job, 3)
    Claim.objects.update(units=[1, 2, 3])
    proves_that_it_called_nobody(lease, lost)
    assert Claim.objects.values_list("messages", "units").get() == ([one.id for one in lost.messages[1:]], [2, 3])
    assert finalizer.recover_job(job.pk, timedelta())
    job.refresh_from_db()
    assert sums() == {"waiting": 1, "in doubt": 2} and (job.in_doubt, job.units) == (2, 5)


def test_a_zombie_claims_nothing_of_a_job_that_another_sender_holds(vendor: Sandbox) -> None:
    """It knows today's limits and generation, and the job is being sent; only its fence is an older one."""
    job = taken(2, login(vendor.url))
    old = started(job)
    finalizer.recover_job(job.pk, timedelta())
    holder = started(take_again(job))
    assert by_sender(lambda rows: claim(rows, job, old)).claim is None and rounds.open_calls() == 0
    [message] = by_sender(lambda rows: claim(rows, job, holder)).messages
    assert message.id == job.first_message


def claims_some(job: Job, most: int) -> tuple[Lease, Any]:
    """Begins to send the job and claims some messages; returns the lease and the claim."""
    lease = started(job)
    claimed = by_sender(lambda rows: claim(rows, job, lease, most))
    assert len(claimed.messages) == most
    return lease, claimed


def proves_that_it_called_nobody(lease: Lease, of: Any) -> None:
    proof = [(of.messages[0].id, NotSent("its permit was too old"))]
    by_sender(lambda rows: answer(rows, lease, of.claim, proof))


@pytest.mark.slow("processes")
def test_33_a_zombie_with_the_locks_of_a_job_holds_up_nobody_for_long(vendor: Sandbox, driver: Driver) -> None:
    with rounds.driver(TRANSACTION_IDLE_SECONDS="3") as impatient:
        mail = rounds.mail(vendor.url)
        pid = frozen(mail, "mid_finalise:1", impatient)
        wait_until(lambda: in_idle_transactions() == 0, "the database has ended the zombie's transaction")
        rounds.finish(mail, driver)
        assert judge(vendor.books()) == []
        assert impatient.wake(pid, failing=True)["end"] == "exit 1"
        assert judge(vendor.books()) == []


@pytest.mark.slow("processes")
def test_33_a_zombie_that_was_merging_loses_its_locks_too(vendor: Sandbox, driver: Driver) -> None:
    """They are of a connection of its event loop; what it was merging is merged by others."""
    with rounds.driver(TRANSACTION_IDLE_SECONDS="3") as impatient:
        mail = rounds.mail(vendor.url)
        pid = frozen(mail, "mid_merge:1", impatient)
        assert in_idle_transactions() == 1
        wait_until(lambda: in_idle_transactions() == 0, "the database has ended the zombie's transaction")
        rounds.finish(mail, driver)
        assert judge(vendor.books()) == []
        assert impatient.wake(pid)["end"] == "exit 0"
        assert judge(vendor.books()) == []


def in_idle_transactions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        return int(cursor.fetchone()[0])
