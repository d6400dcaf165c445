"""A receiver's limit that is set or changed counts the calls of before, and in doubt it counts too many."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from campaigns.engine import sending
from campaigns.engine.claiming import rebuild
from campaigns.engine.failover import recovery
from campaigns.models import Job
from tests.faults.sending import taken
from tests.receivers.relays import Moody, account, moody_relay
from vendors import receiver_domains, receivers
from vendors.history import Actor
from vendors.limits.values import Granted
from vendors.models import Credential, RateLimit, ReceiverLimit, Usage

pytestmark = pytest.mark.django_db(transaction=True)
HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture
def relay() -> Iterator[tuple[Moody, Credential]]:
    with moody_relay(lambda to: None) as (relay, port):
        yield relay, account(port)


def limited(of: Credential, units: int, receiver: str = "gmail", seconds: float = HOUR) -> ReceiverLimit:
    return ReceiverLimit.objects.create(vendor=of.vendor, receiver=receiver, units=units, seconds=seconds)


def sent_to(login: Credential, **domains: int) -> Job:
    """So many to each of these domains; those that have to wait are left."""
    job = taken([f"r{n}@{domain}.com" for domain, number in domains.items() for n in range(number)], login)
    sending.send_claimed_job(job.pk, job.fence)
    return job


def test_a_limit_that_is_added_later_counts_the_calls_of_before(relay: tuple[Moody, Credential]) -> None:
    """Nobody knows to whom they went, so each may have gone there."""
    took, login = relay[0], relay[1]
    sent_to(login, gmail=3, firm=2)
    limited(login, 7)
    sent_to(login, gmail=5, firm=5)
    assert took.took == {"gmail.com": 3 + (7 - 5), "firm.com": 7}


def ago(span: timedelta) -> None:
    """Let the calls of before have been so long ago."""
    Usage.objects.update(at=F("at") - span, until=F("until") - span, ended_at=F("ended_at") - span)


def test_a_days_limit_counts_the_calls_of_the_morning(relay: tuple[Moody, Credential]) -> None:
    """The sweep has been there since, and no window of then was longer than a second."""
    took, login = relay[0], relay[1]
    RateLimit.objects.create(vendor=login.vendor, units=100, seconds=1)
    sent_to(login, gmail=4)
    ago(timedelta(hours=20))
    assert rebuild.forget_old_usage(timedelta(hours=1)) == 0
    limited(login, 5, seconds=DAY)
    sent_to(login, gmail=5)
    assert took.took == {"gmail.com": 5}


def test_the_ledger_forgets_calls_that_no_window_reaches(relay: tuple[Moody, Credential]) -> None:
    login = relay[1]
    limited(login, 5, seconds=2 * DAY)
    sent_to(login, firm=1)
    ago(timedelta(hours=48))
    assert rebuild.forget_old_usage(timedelta(hours=1)) == 0
    ReceiverLimit.objects.update(seconds=HOUR)
    assert rebuild.forget_old_usage(timedelta(hours=1)) == 1


def test_calls_while_a_limit_was_cleared_count_once_it_is_back(relay: tuple[Moody, Credential]) -> None:
    took, login = relay[0], relay[1]
    limit = limited(login, 5)
    sent_to(login, gmail=2, firm=9)
    limit.delete()
    sent_to(login, gmail=2)
    limited(login, 5)
    sent_to(login, gmail=4)
    assert took.took == {"gmail.com": 5, "firm.com": 9}, "of the first claims it is known that nine went elsewhere"


def test_an_edit_keeps_what_is_known_of_other_receivers(relay: tuple[Moody, Credential]) -> None:
    took, login = relay[0], relay[1]
    limit = limited(login, 20)
    limited(login, 4, "yahoo")
    sent_to(login, gmail=10)
    limit.units = 12
    limit.save()
    sent_to(login, gmail=5, yahoo=5)
    assert took.took == {"gmail.com": 12, "yahoo.com": 4}


def test_a_domain_that_operators_put_into_a_group_counts_there_with_its_calls_of_before(
    relay: tuple[Moody, Credential],
) -> None:
    took, login = relay[0], relay[1]
    limited(login, 5)
    sent_to(login, firm=2)
    try:
        receiver_domains.put_domain("firm.com", "gmail", Actor("ann"))
        receivers.replace_own_domains({})  # as a sender elsewhere, which has not heard of it
        sent_to(login, firm=5, gmail=5, other=1)
    finally:
        receivers.replace_own_domains({})
    assert took.took["firm.com"] + took.took["gmail.com"] == 5 and took.took["other.com"] == 1


def test_calls_that_a_recovery_enters_count_for_every_receiver(relay: tuple[Moody, Credential]) -> None:
    took, login = relay[0], relay[1]
    at = timezone.now().timestamp()
    recovery._enter_in_ledger(login.vendor, Granted("lost", 3, f"{login.pk}@0 1 9 3", at, 3))
    assert Usage.objects.get(grant="lost").receivers is None
    limited(login, 5)
    sent_to(login, gmail=9, firm=1)
    assert took.took == {"gmail.com": 2, "firm.com": 1}


def test_more_places_than_a_limit_can_count_are_not_rebuilt(relay: tuple[Moody, Credential]) -> None:
    """A day of mails to others is no reason to fill Redis."""
    took, login = relay[0], relay[1]
    at = timezone.now() - timedelta(minutes=1)
    many = {"vendor": login.vendor, "credential": login, "at": at, "until": at, "ended_at": at}
    Usage.objects.bulk_create(Usage(units=50_000_000, **many) for _ in range(20))
    limited(login, 3)
    sent_to(login, gmail=2, firm=2)
    assert took.took == {"firm.com": 2}


def test_a_recovery_without_a_witness_waits_as_long_as_the_longest_window_of_a_receiver() -> None:
    login = account(9)
    limited(login, 100)
    taken(["ann@gmail.com"], login)
    recovery.recover_store(Actor("ann"), "restored", since=timezone.now())
    login.refresh_from_db()
    assert login.retry_after_until and login.retry_after_until > timezone.now() + timedelta(seconds=HOUR - 60)
