"""A receiving domain that asks us to slow down waits; all others go on."""

from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.engine import sending
from campaigns.models import Message
from tests.faults.sending import send_the_rest, take_again, taken
from tests.receivers.relays import account, moody_relay
from vendors.models import ReceiverWait

pytestmark = pytest.mark.django_db(transaction=True)

NINE = [f"nine{number}.example" for number in range(9)]
SLOW = "450 4.7.1 too many messages, slow down"
TSS04 = "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user complaints"
CONCURRENCY = 4


def each(domains: list[str], number: int) -> list[str]:
    """Addresses at all of these domains by turns."""
    return [f"r{n}@{domain}" for n in range(number) for domain in domains]


def opened() -> None:
    """The waits are over."""
    ReceiverWait.objects.update(until=timezone.now() - timedelta(seconds=1))


def test_one_domain_that_defers_holds_up_none_of_the_other_nine() -> None:
    """It is called by the connections that are under way, and no more."""
    moods = {"gmail.com": SLOW}
    with moody_relay(lambda to: moods.get(to.rpartition("@")[2])) as (relay, port):
        login = account(port, CONCURRENCY)
        job = taken(each(["gmail.com", *NINE], 40), login)
        assert sending.send_claimed_job(job.pk, job.fence).left
        assert relay.took == dict.fromkeys(NINE, 40), "all of the nine, in one pass"
        assert 1 <= relay.called["gmail.com"] <= 3 * CONCURRENCY
        login.refresh_from_db()
        job.refresh_from_db()
        assert login.retry_after_until is None and not login.paused
        assert (job.accepted, job.refused, job.in_doubt) == (360, 0, 0)
        assert "gmail waits" in job.waits_for and job.not_before
        [wait] = ReceiverWait.objects.all()
        assert (wait.receiver, wait.cause, wait.refused) == ("gmail", "capacity", False)
        assert "too many messages" in wait.answer and "@" not in wait.answer

        moods.clear()
        opened()
        job.not_before = None
        job.save(update_fields=["not_before"])
        job = send_the_rest(job)
    assert relay.took == dict.fromkeys(["gmail.com", *NINE], 40) and max(map(relay.taken.count, relay.taken)) == 1
    assert not ReceiverWait.objects.exists(), "it has accepted mail again"
    assert (job.accepted, job.refused) == (400, 0)


def test_letters_that_count_by_size_wait_for_their_receiver_alone_too() -> None:
    with moody_relay(lambda to: SLOW if to.endswith("@gmail.com") else None) as (relay, port):
        login = account(port, CONCURRENCY, {"unit_kb": 1})
        job = taken(each(["gmail.com", *NINE], 5), login)
        assert sending.send_claimed_job(job.pk, job.fence).left
    assert relay.took == dict.fromkeys(NINE, 5) and 1 <= relay.called["gmail.com"] <= 3 * CONCURRENCY
    login.refresh_from_db()
    job.refresh_from_db()
    assert login.retry_after_until is None and (job.accepted, job.in_doubt) == (45, 0)


def test_a_wait_that_is_asked_for_again_is_twice_as_long() -> None:
    with moody_relay(lambda to: TSS04) as (relay, port):
        login = account(port)
        job = taken(each(["yahoo.com"], 30), login)
        lengths = []
        for _ in range(5):
            assert sending.send_claimed_job(job.pk, job.fence).left
            [wait] = ReceiverWait.objects.all()
            lengths.append(wait.seconds)
            assert (wait.receiver, wait.cause) == ("yahoo", "us")
            opened()
            job = take_again(job)
    assert lengths == [1800, 3600, 7200, 14400, 14400]
    assert relay.called["yahoo.com"] <= CONCURRENCY + 4 * 2, "after the first time one at a time"
    assert Message.objects.filter(dequeued_at=None).count() == 30


def test_an_answer_that_two_receivers_hear_is_the_relays() -> None:
    """Nobody is refused, and the credential waits as before."""
    with moody_relay(lambda to: SLOW) as (relay, port):
        login = account(port, 1)
        job = taken(each(["gmail.com", "yahoo.com", "web.de"], 5), login)
        assert sending.send_claimed_job(job.pk, job.fence).left
        login.refresh_from_db()
    assert login.retry_after_until and login.retry_after_until > timezone.now() and not login.paused
    assert sum(relay.called.values()) <= 3
    job.refresh_from_db()
    assert (job.accepted, job.refused, job.in_doubt) == (0, 0, 0)


def test_a_refusal_for_us_pauses_the_credential_once_a_second_receiver_says_the_same() -> None:
    blocked = "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org"
    with moody_relay(lambda to: blocked if to.endswith("@web.de") else None) as (relay, port):
        login = account(port)
        job = taken(each(["web.de", "gmx.de"], 10), login)
        assert sending.send_claimed_job(job.pk, job.fence).left
        login.refresh_from_db()
        assert not login.paused and relay.took == {"gmx.de": 10}
        [wait] = ReceiverWait.objects.all()
        assert wait.refused and wait.until > timezone.now() + timedelta(minutes=5)
        relay.mood = lambda to: blocked
        other = taken(each(["gmx.de", "t-online.de"], 10), login)
        assert sending.send_claimed_job(other.pk, other.fence).left
        login.refresh_from_db()
    assert login.paused and "blocked using" in login.paused_reason
    assert Message.objects.filter(error_code__isnull=False).count() == 0


def test_a_domain_in_no_group_waits_alone() -> None:
    with moody_relay(lambda to: SLOW if to.endswith("@small.example") else None) as (relay, port):
        job = taken(each(["small.example", "other.example"], 20), account(port))
        assert sending.send_claimed_job(job.pk, job.fence).left
    assert relay.took == {"other.example": 20}
    assert ReceiverWait.objects.values_list("receiver", flat=True).get() == "small.example"
