"""Faults 14 and 28 to 30: the database is read-only, cuts all connections, loses the answer to a commit.

A restart of the server is part of `make chaos`; locks held by a frozen process: test_04_zombies.py.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from campaigns.engine import sending as sender
from campaigns.engine.claiming import claims as sending
from campaigns.engine.sending import recording
from campaigns.models import Job
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, send_the_rest, sent, taken
from tests.sandbox import Sandbox

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(240)]


@contextmanager
def administrator() -> Iterator[Callable[[str], Any]]:
    """Statements about the test's database, from a connection to another one; {} is its name."""
    options = connection.get_connection_params()
    keep = {name: options[name] for name in ("host", "port", "user", "password") if options.get(name)}
    name = sql.Identifier(connection.settings_dict["NAME"])
    with psycopg.connect(**keep, dbname="postgres", autocommit=True) as other:
        yield lambda statement: other.execute(sql.SQL(statement).format(name))


@contextmanager
def away() -> Iterator[None]:
    """Cuts every connection and accepts none during the block, like a server that restarts."""
    connection.close()
    name = connection.settings_dict["NAME"]
    with administrator() as tell:
        tell("ALTER DATABASE {} ALLOW_CONNECTIONS false")
        try:
            tell(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            yield
        finally:
            tell("ALTER DATABASE {} ALLOW_CONNECTIONS true")


def test_14_nobody_is_called_without_a_row_that_says_so(sandbox: Sandbox) -> None:
    """A standby after a failover, or a full disk: it can be read and not written."""
    job = taken(5, login(sandbox.url))
    with administrator() as tell:
        tell("ALTER DATABASE {} SET default_transaction_read_only = on")
        try:
            assert sender.send_claimed_job(job.pk, job.fence).left  # its claims come from new connections
        finally:
            tell("ALTER DATABASE {} RESET default_transaction_read_only")
    assert sandbox.books().entries == [] and sums() == {"waiting": 5}
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 5}


def test_28_answers_outlive_the_database(sandbox: Sandbox) -> None:
    """The database goes away when all messages are called and none is answered, and returns after the answers."""
    sandbox.settings(latency_ms=1000.0)
    job = taken(CONCURRENCY, login(sandbox.url))
    with being_sent(job):
        calls(sandbox, CONCURRENCY)
        with away():
            pass
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": CONCURRENCY}


def test_28_a_database_that_goes_in_the_middle_costs_no_more_than_a_kill(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=100.0)
    job = taken(60, login(sandbox.url))
    try:
        with being_sent(job) as sending:
            calls(sandbox, 10)
            with away():
                pass
            sending.exception()
    except psycopg.Error:
        pass
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums()["in doubt"] <= CONCURRENCY and sums().total() == 60


Verb = Callable[..., Awaitable[Any]]


def once_cut_at_the_commit(verb: Verb) -> Verb:
    """Lets the statement be executed, and loses its reply."""
    cuts = iter([True])

    async def cut(*args: Any, **options: Any) -> Any:
        done = await verb(*args, **options)
        if next(cuts, False):
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return done

    return cut


def test_29_a_claim_that_may_have_been_committed_starts_no_call(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender knows that it made no call, so nothing is in doubt either."""
    job = taken(10, login(sandbox.url))
    monkeypatch.setattr(sending, "claim_for_jobs", once_cut_at_the_commit(sending.claim_for_jobs))
    sender.send_claimed_job(job.pk, job.fence)
    assert sandbox.books().entries == []
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == []
    assert sums() == {"accepted": 10}


@pytest.mark.parametrize("verb", ["append_results", "merge_answers"])
def test_29_30_a_result_that_may_have_been_stored_is_stored_again(
    verb: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, verb, once_cut_at_the_commit(getattr(recording, verb)))
    job = sent(taken(["ann@x.example", "bounce@sandbox.example", "lost@sandbox.example"], login(sandbox.url)))
    assert (job.accepted, job.refused, job.in_doubt) == (1, 1, 1)
    assert judge(sandbox.books()) == []
