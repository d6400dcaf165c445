"""Windows of receivers: by the relay's own book they are never over their limit, and others are not held up."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from psycopg import AsyncConnection

from campaigns.engine import sending
from campaigns.engine.claiming import contexts
from campaigns.engine.claiming.letters import Lease
from campaigns.models import Job, Message
from tests.faults.sending import send_the_rest, taken
from tests.receivers.relays import Moody, account, moody_relay
from tests.windows import worst_window
from vendors import redis_clients
from vendors.models import AT_A_TIME, ReceiverLimit, Usage, Vendor

pytestmark = [pytest.mark.slow("servers"), pytest.mark.django_db(transaction=True)]


def each(domains: list[str], number: int, name: str = "r") -> list[str]:
    return [f"{name}{n}@{domain}" for n in range(number) for domain in domains]


def of_domain(relay: Moody, domain: str) -> list[float]:
    return [at for to, at in relay.calls if to == domain]


def sent_by_threads(jobs: list[Job]) -> None:
    """Each job by a sender of its own, until it is logged."""

    def run(job: Job) -> None:
        try:
            sending.send_claimed_job(job.pk, job.fence)
            send_the_rest(job)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(jobs)) as threads:
        list(threads.map(run, jobs))


def test_two_senders_keep_the_window_of_a_receiver_by_the_relays_own_book() -> None:
    """gmail.com and googlemail.com are one receiver."""
    with moody_relay(lambda to: None) as (relay, port):
        login = account(port)
        ReceiverLimit.objects.create(vendor=login.vendor, receiver="gmail", units=5, seconds=1.0)
        domains = ["gmail.com", "googlemail.com", "web.de", "other.example"]
        sent_by_threads([taken(each(domains, 10, name), login) for name in ("a", "b")])
    assert relay.took == dict.fromkeys(domains, 20) and max(map(relay.taken.count, relay.taken)) == 1
    both = sorted(of_domain(relay, "gmail.com") + of_domain(relay, "googlemail.com"))
    assert worst_window(both, 1.0) <= 5
    others = of_domain(relay, "web.de") + of_domain(relay, "other.example")
    assert max(others) < both[-10], "the others did not wait for gmail"


class Slow(Moody):
    """Counts the mails of a domain that are under way at the same time."""

    now = most = 0

    async def handle_RCPT(self, *given: Any) -> str:
        is_slow = given[3].endswith("@gmail.com")
        self.now += is_slow
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.02)
        self.now -= is_slow
        return await super().handle_RCPT(*given)


def test_a_receiver_has_no_more_calls_at_a_time_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.receivers.relays.Moody", Slow)
    with moody_relay(lambda to: None) as (relay, port):
        login = account(port, 6)
        ReceiverLimit.objects.create(vendor=login.vendor, receiver="gmail", units=2, seconds=AT_A_TIME)
        sent_by_threads([taken(each(["gmail.com", "web.de"], 15, name), login) for name in ("a", "b")])
    assert isinstance(relay, Slow) and 1 <= relay.most <= 2
    assert relay.took == {"gmail.com": 30, "web.de": 30}


def test_a_window_that_redis_lost_is_rebuilt_from_the_ledger() -> None:
    with moody_relay(lambda to: None) as (relay, port):
        login = account(port)
        ReceiverLimit.objects.create(vendor=login.vendor, receiver="gmail", units=3, seconds=3600.0)
        job = taken(each(["gmail.com", "web.de"], 3), login)
        sending.send_claimed_job(job.pk, job.fence)
        assert relay.took == {"gmail.com": 3, "web.de": 3}
        assert sum((row.receivers or {}).get("gmail", 0) for row in Usage.objects.all()) == 3
        with redis_clients.make_client(settings.REDIS_URL) as redis:
            for key in redis.scan_iter(f"mailhub:{{v{login.vendor_id}}}*"):
                redis.delete(key)
        other = taken(each(["gmail.com", "web.de"], 3, "b"), login)
        assert sending.send_claimed_job(other.pk, other.fence).left
        assert relay.took == {"gmail.com": 3, "web.de": 6}, "the hour's places are taken"
        other.refresh_from_db()
        assert "gmail" in other.waits_for and other.not_before
        ReceiverLimit.objects.update(units=6)
        Job.objects.update(not_before=None)
        send_the_rest(other)
    assert relay.took == {"gmail.com": 6, "web.de": 6}, "an edit is in force at once"
    assert Message.objects.filter(dequeued_at=None).count() == 0


def test_a_warm_up_follows_the_clock_of_its_vendor_at_once() -> None:
    """Where the day is the last one again, so is the step."""
    east, west = ("Pacific/Kiritimati", "Pacific/Honolulu")  # 24 hours apart, so always a day
    of = account(9)
    Vendor.objects.filter(pk=of.vendor_id).update(time_zone=east)
    today = timezone.localdate(timezone=ZoneInfo(west))
    row = {"units": 10, "seconds": 86400.0, "grows_from": today, "growth": 2.0}
    ReceiverLimit.objects.create(vendor=of.vendor, receiver="gmail", **row)
    job = taken(["a@gmail.com"], of)
    params = connection.get_connection_params()

    async def steps() -> list[int | None]:
        found, known = [], contexts.KnownRows()
        asked = {name: params[name] for name in ("host", "port", "user", "dbname", "password") if name in params}
        async with await AsyncConnection.connect(**asked, autocommit=True) as rows:
            for zone in (east, west):
                await rows.execute("UPDATE vendors_vendor SET time_zone = %s", [zone])
                [one] = await contexts.read_contexts(
                    rows, [contexts.Read(Lease(job.pk, job.fence), of.vendor_id, of.pk)], known
                )
                found.append(one.scope.smallest_of("gmail"))
        return found

    assert asyncio.run(steps()) == [20, 10]


@contextmanager
def day_of(limit: ReceiverLimit, days: int) -> Iterator[None]:
    today = timezone.localdate(timezone=ZoneInfo(limit.vendor.time_zone))
    ReceiverLimit.objects.update(grows_from=today - timedelta(days=days))
    yield


@pytest.mark.parametrize(("days", "allowed"), [(0, 4), (1, 6), (2, 9)])
def test_a_warm_up_allows_half_as_many_again_each_day(days: int, allowed: int) -> None:
    with moody_relay(lambda to: None) as (relay, port):
        login = account(port)
        limit = ReceiverLimit.objects.create(vendor=login.vendor, receiver="gmail", units=4, seconds=86400.0)
        with day_of(limit, days):
            job = taken(each(["gmail.com"], 12), login)
            assert sending.send_claimed_job(job.pk, job.fence).left
    assert relay.took == {"gmail.com": allowed}
