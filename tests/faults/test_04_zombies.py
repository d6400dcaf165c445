"""Fault 4: a sender freezes (SIGSTOP), is thought dead, its job is finished by others, and then it wakes up.

Fault 33: it froze in a transaction, with the locks of rows that others need.
"""

import asyncio
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns import sending as sender
from campaigns.claiming import claims as sending
from campaigns.claiming import limits
from campaigns.connections import connect
from campaigns.dispatch import dispatcher
from campaigns.finishing import finalizer
from campaigns.models import Job, OpsMessage
from campaigns.sending import recording
from campaigns.sending.stream import SLACK
from tests.enqueueing import started
from tests.faults import rounds
from tests.faults.checker import judge, sums
from tests.faults.rounds import CONCURRENCY, Driver, Mail
from tests.faults.sending import login, take_again, taken
from tests.sandbox import Sandbox
from vendors.outcomes import NotSent

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
def test_a_zombie_doubles_nothing_and_what_it_knows_of_acceptances_counts(
    at: str, vendor: Sandbox, driver: Driver
) -> None:
    mail = rounds.mail(vendor.url)
    pid, since = frozen(mail, at, driver), time.monotonic()
    rounds.finish(mail, driver)
    doubts = sums()["in doubt"]
    wakes_too_late(pid, since, driver)
    assert judge(vendor.books()) == []
    if at in ("after_call:1", "before_record:1"):  # the vendor had accepted the first ones
        assert sums()["in doubt"] < doubts
    rounds.finish(mail, driver)
    assert judge(vendor.books()) == []


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
    lost = asyncio.run(claims_one(job, started(job)))
    Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(hours=1))
    assert finalizer.recover(job.pk, timedelta(minutes=1))
    sender.send(job.pk, take_again(job).fence)
    assert Job.objects.get(pk=job.pk).status == "SENT" and sums() == {"accepted": 2, "in doubt": 1}
    asyncio.run(proves_that_it_called_nobody(lost, job))
    assert not finalizer.finalise(job.pk)
    assert Job.objects.get(pk=job.pk).status == "READY" and not OpsMessage.objects.exists()
    dispatcher.dispatch_ready()
    sender.send(job.pk, take_again(job).fence)
    assert finalizer.finalise(job.pk)
    assert judge(vendor.books()) == [] and sums() == {"accepted": 3}


def test_what_a_zombie_says_of_its_own_call_says_nothing_of_a_later_one(vendor: Sandbox) -> None:
    """It reports again that its call was not made, while another sender's call of the message is open."""
    job = taken(1, login(vendor.url))
    message = asyncio.run(claims_one(job, started(job)))
    asyncio.run(proves_that_it_called_nobody(message, job))
    finalizer.recover(job.pk, timedelta())
    assert asyncio.run(claims_one(job, started(take_again(job)))) == message
    before = OpsMessage.objects.values().get()
    asyncio.run(proves_that_it_called_nobody(message, job))
    assert OpsMessage.objects.values().get() == before and rounds.open_calls() == 1


def test_a_zombie_claims_nothing_of_a_job_that_another_sender_holds(vendor: Sandbox) -> None:
    """It knows today's limits and generation, and the job is being sent; only its fence is an older one."""
    job = taken(2, login(vendor.url))
    old = started(job)
    finalizer.recover(job.pk, timedelta())
    holder = started(take_again(job))
    assert asyncio.run(claims(job, old)) == [] and rounds.open_calls() == 0
    assert asyncio.run(claims(job, holder)) == [job.first_message]


async def claims_one(job: Job, lease: sending.Lease) -> int:
    (message,) = await claims(job, lease)
    return message


async def claims(job: Job, lease: sending.Lease) -> list[int]:
    """Claims like a sender, at most one message, up to the moment before the call."""
    rows = await connect()
    context = await limits.read(rows, lease, job.vendor_id, job.credential_id)
    params = {
        "job": job.pk, "fence": lease.fence, "vendor": job.vendor_id,
        "limits_version": context.limits_version, "hold": 5.0,
        "credential": job.credential_id, "generation": context.scope.generation,
        "adoptions": context.adoptions, "cursor": 0, "end": job.end, "most": 1,
    }  # fmt: skip
    claimed = await sending.claim(rows, params)
    await rows.close()
    return [message.id for message in claimed]


async def proves_that_it_called_nobody(message_id: int, job: Job) -> None:
    rows = await connect()
    await recording.record(rows, sending.Lease(job.pk, 2), [(message_id, NotSent("its permit was too old"))])
    await rows.close()


def test_33_a_zombie_with_the_locks_of_a_job_holds_up_nobody_for_long(vendor: Sandbox, driver: Driver) -> None:
    with rounds.driver(TRANSACTION_IDLE_SECONDS="3") as impatient:
        mail = rounds.mail(vendor.url)
        pid = frozen(mail, "mid_finalise:1", impatient)
        rounds.finish(mail, driver)  # waits until the database has ended the zombie's transaction
        assert judge(vendor.books()) == []
        assert impatient.wake(pid, failing=True)["end"] == "exit 1"
        assert judge(vendor.books()) == []
