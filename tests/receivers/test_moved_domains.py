"""A domain that operators move is in its new group from the next claim on, by the relay's own book."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.utils import timezone

from campaigns.engine import sending
from campaigns.models import Job
from tests.faults.sending import send_the_rest, taken
from tests.receivers.relays import Moody, account, moody_relay
from vendors import receiver_domains, receivers
from vendors.history import Actor
from vendors.models import Credential, ReceiverDomain, ReceiverLimit, ReceiverWait

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = 3600.0


@pytest.fixture
def relay() -> Iterator[tuple[Moody, Credential]]:
    with moody_relay(lambda to: None) as (relay, port):
        yield relay, account(port)


def limited(of: Credential, units: int, receiver: str = "gmail") -> ReceiverLimit:
    return ReceiverLimit.objects.create(vendor=of.vendor, receiver=receiver, units=units, seconds=HOUR)


def sent_to(login: Credential, name: str, **domains: int) -> Job:
    """So many to each of these domains; those that have to wait are left."""
    addresses = [f"{name}{n}@{domain}.com" for domain, number in domains.items() for n in range(number)]
    job = taken(addresses, login)
    sending.send_claimed_job(job.pk, job.fence)
    return job


def test_a_sender_that_learns_of_a_row_from_the_database_counts_by_it(relay: tuple[Moody, Credential]) -> None:
    """The row is another process's: this one has read nothing by itself."""
    took, login = relay
    limited(login, 5)
    ReceiverDomain.objects.create(domain="firm.com", receiver="gmail")
    assert receivers.group_of("firm.com") == receivers.OTHERS
    sent_to(login, "a", firm=3, gmail=4, other=2)
    assert took.took["firm.com"] + took.took["gmail.com"] == 5 and took.took["other.com"] == 2


def test_calls_of_before_count_in_the_group_that_gains_the_domain(relay: tuple[Moody, Credential]) -> None:
    took, login = relay
    limited(login, 5)
    sent_to(login, "a", firm=3, gmail=1)
    receiver_domains.put_domain("firm.com", "gmail", Actor("ann"))
    sent_to(login, "b", gmail=4, firm=4, other=2)
    assert took.took["firm.com"] + took.took["gmail.com"] == 5 and took.took["other.com"] == 2


def test_a_domain_that_leaves_its_group_keeps_what_was_counted_there(relay: tuple[Moody, Credential]) -> None:
    took, login = relay
    limited(login, 5)
    sent_to(login, "a", gmail=2, googlemail=2)
    receiver_domains.put_domain("googlemail.com", receivers.OTHERS, Actor("ann"))
    sent_to(login, "b", gmail=4, googlemail=4)
    assert took.took == {"gmail.com": 3, "googlemail.com": 6}


def test_a_domain_moved_into_a_group_that_waits_waits_with_it(relay: tuple[Moody, Credential]) -> None:
    took, login = relay
    now = timezone.now()
    wait = {"since": now, "until": now + timedelta(minutes=5), "seconds": 300.0, "cause": "us", "answer": "slow down"}
    ReceiverWait.objects.create(credential=login, receiver="gmail", **wait)
    ReceiverDomain.objects.create(domain="firm.com", receiver="gmail")
    job = sent_to(login, "a", firm=3, other=3)
    assert took.took == {"other.com": 3}
    ReceiverWait.objects.all().delete()
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert took.took == {"other.com": 3, "firm.com": 3}
