"""Faults 29, 30: PostgreSQL has done what it was asked, and its reply is lost; at each statement of a job's life.

The connection is cut behind the statement by a proxy (tests/postgres_proxy.py). Whoever asked fails as its task would;
then a person stops what is left. Nothing is called after that, so the sweeps alone must bring all to an end.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from django.db import Error as DjangoError
from django.db import connection

from campaigns import audit, dispatcher, mailcaster, recovery, sender, settle
from campaigns.claims import finalising, people
from campaigns.models import Job, OpsMessage
from campaigns.states import DONE
from tests import factories
from tests.faults import rounds
from tests.faults.checker import judge
from tests.faults.sending import login, meanwhile
from tests.postgres_proxy import PostgresProxy
from tests.sandbox import Sandbox
from tests.waiting import wait_until
from vendors.models import Credential

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]
CONCURRENCY = 2
TO = [f"{who}@sandbox.example" for who in ("ann", "bounce", "lost", "ben", "error", "cat")]
NOW = timedelta()
TRIES = 200  # more statements than any story has
ROUNDS = 6  # sweeps until all is at its end


@contextmanager
def through(proxy: PostgresProxy) -> Iterator[None]:
    """Every connection that is opened in the block goes through the proxy."""
    words: dict[str, Any] = connection.settings_dict
    host = parse_qs(urlsplit(proxy.url).query)["host"][0]
    before = words["HOST"], words["OPTIONS"]
    connection.close()
    words["HOST"], words["OPTIONS"] = host, {name: word for name, word in before[1].items() if name != "host"}
    try:
        yield
    finally:
        connection.close()
        words["HOST"], words["OPTIONS"] = before


def attempt(step: Callable[..., Any], *args: Any) -> Any:
    """As a task that fails when its database is gone; the next one has a new connection."""
    try:
        return step(*args)
    except (DjangoError, psycopg.Error):
        connection.close()
        return None


def cast(job: Job) -> None:
    """Dispatched, and taken by the vendor's caster."""
    attempt(dispatcher.dispatch_ready, [job.pk])
    Job.objects.filter(pk=job.pk).update(not_before=None)
    mailcaster.claim(job.vendor.mailcasters.get().pk, job.created_at)


def send(job: Job, stopping: Callable[[], bool] = bool) -> None:
    job.refresh_from_db()
    sender.send(job.pk, job.fence, stopping)


def is_put_back(job: Job, vendor: Sandbox) -> None:
    """By a sender that has to end after its first calls."""
    asked = iter(range(4))
    attempt(cast, job)
    attempt(send, job, lambda: next(asked, None) is None)


def is_stopped(job: Job, vendor: Sandbox) -> None:
    """While calls are open."""
    before = len(vendor.books().entries)
    attempt(cast, job)
    with meanwhile(attempt, send, job) as sending:
        wait_until(lambda: sending.done() or len(vendor.books().entries) > before, "a call is made")
        attempt(people.stop, [job.pk])
    attempt(finalising.finalise, job.pk)


def come_to_an_end() -> None:
    """By sweeps and settlings, while no sender works."""
    for _ in range(ROUNDS):
        rounds.an_hour_passes()
        recovery.sweep(NOW)
        settle.settle()
        if not Job.objects.exclude(status__in=DONE).exists() and not OpsMessage.objects.exists():
            return
    raise AssertionError(f"stuck: {list(Job.objects.exclude(status__in=DONE).values())}")


@pytest.fixture
def way(sandbox: Sandbox, settings: Any) -> Credential:
    settings.LEASE_SECONDS = 1e-9  # the audit has no patience
    sandbox.settings(latency_ms=20.0)
    of = login(sandbox.url, concurrency=CONCURRENCY, lookup="strong")
    factories.caster(of.vendor)
    return of


@pytest.mark.parametrize("story", [is_put_back, is_stopped])
def test_29_30_whichever_reply_is_lost_a_stop_and_the_sweeps_bring_all_to_its_end(
    story: Callable[[Job, Sandbox], None], sandbox: Sandbox, way: Credential
) -> None:
    lost: set[str] = set()
    with PostgresProxy(os.environ["DATABASE_URL"]) as proxy:
        for number in range(TRIES):
            job = factories.campaign_with_job(TO, of=way)
            with through(proxy):
                proxy.lose_next(number)
                story(job, sandbox)
            people.stop([job.pk], by="ann")
            come_to_an_end()
            broken = [f"{check.question}: {check.examples}" for check in audit.run() if not check.ok]
            assert broken == [], f"reply {number} was lost: {proxy.lost}"
            if not proxy.lost:
                break
            lost.add(proxy.lost.pop())
        else:
            raise AssertionError("there are more statements than tries")
    assert judge(sandbox.books()) == []
    for part in ("INSERT INTO vendors_usage", "INSERT INTO vendors_minute", "COMMIT"):  # claims, results, verbs
        assert any(part in statement for statement in lost), part
