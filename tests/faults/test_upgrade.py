"""Tables that change under a sender: it calls nobody whose answer it could not store, and `migrate` waits for it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from campaigns.casting import mailcaster as casting_queries
from campaigns.failover import guard
from campaigns.models import Job, Store
from mailhub import checks
from tests import factories
from tests.faults.checker import judge, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, meanwhile, send_the_rest, taken
from tests.sandbox import Sandbox
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
MANY = 400  # more than are called before a slow machine has done what is to stop them


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def a_migration_to_do() -> Iterator[None]:
    """The last one is not written down as done; `migrate --fake` writes it down again."""
    execute(
        "DELETE FROM django_migrations WHERE app = 'vendors' AND name ="
        " (SELECT max(name) FROM django_migrations WHERE app = 'vendors')"
    )
    try:
        yield
    finally:
        call_command("migrate", fake=True, force=True, verbosity=0)


def migrate(**options: bool) -> None:
    call_command("migrate", fake=True, verbosity=0, **options)


def test_a_sender_whose_answers_the_schema_refuses_calls_nobody_else_and_keeps_what_it_has(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """As seen: a migration took the constraint away that RECORD names, and 417 of 20,000 came into doubt."""
    sandbox.settings(latency_ms=500.0)
    job = taken(MANY, login(sandbox.url))
    with being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        execute("ALTER TABLE vendors_minute DROP CONSTRAINT one_row_a_minute")
        try:
            wait_until(lambda: "the schema does not match this version" in caplog.text, "the sender says so")
            called = len(sandbox.books().entries)
        finally:
            execute("ALTER TABLE vendors_minute ADD CONSTRAINT one_row_a_minute UNIQUE (at, vendor_id, sponsor, share)")
        assert sending.result().left
    assert called <= len(sandbox.books().entries) <= called + CONCURRENCY, "what was claimed by then, and no other"
    assert sums()["accepted"] == len(sandbox.books().entries)
    assert Job.objects.get(pk=job.pk).waits_for == guard.OTHER_TABLES
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}


@pytest.mark.parametrize("tables", ["", "campaigns.0999_of_tomorrow"])
def test_tables_of_another_version_stop_every_sender_before_its_next_claim(sandbox: Sandbox, tables: str) -> None:
    sandbox.settings(latency_ms=100.0)
    job, other = taken(MANY, login(sandbox.url)), factories.campaign_with_job(1, status="DISPATCHED")
    ours = guard.tables()
    with being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        Store.objects.update(tables=tables)
        assert sending.result().left
    assert sums()["waiting"] > 0 and sums()["in doubt"] == 0
    assert Job.objects.get(pk=job.pk).waits_for == (guard.OTHER_TABLES if tables else guard.MIGRATING)
    assert casting_queries.lock(factories.caster(other.vendor).pk) is None, "nothing is taken either"
    Store.objects.update(tables=ours)
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books(), final=False) == []


def test_what_migrate_writes_down_is_what_the_program_knows() -> None:
    assert Store.objects.get().tables == guard.tables() and guard.halted() is None


@pytest.mark.parametrize(
    ("storage", "way_out"), [("0003_storage_units", "tables of 0.1"), ("0002_storage", "install that")]
)
def test_a_database_of_another_version_is_refused_with_the_way_out_and_nothing_is_changed(
    storage: str, way_out: str
) -> None:
    """One of 0.1 had no 0002_storage; one that has it and more is newer than the program, and is to be kept."""
    before = Store.objects.values().get()
    execute("INSERT INTO django_migrations (app, name, applied) VALUES ('campaigns', '0022_of_another', now())")
    rename = "UPDATE django_migrations SET name = '{}' WHERE app = 'campaigns' AND name = '{}'"
    execute(rename.format(storage, "0002_storage"))
    try:
        for how in ({}, {"plan": True}, {"force": True}):
            with pytest.raises(CommandError, match=rf"it has campaigns\.0022_of_another\): {re.escape(way_out)}"):
                migrate(**how)
        assert [error.id for error in checks.tables_are_of_this_version()] == ["mailhub.E008"]
        assert Store.objects.values().get() == before
    finally:
        execute("DELETE FROM django_migrations WHERE name = '0022_of_another'")
        execute(rename.format("0002_storage", storage))
    migrate()
    assert checks.tables_are_of_this_version() == []


def test_migrate_refuses_while_mail_is_being_sent_and_changes_nothing(settings: Any) -> None:
    settings.LEASE_SECONDS = 600.0  # nobody beats for the job: it is not to run out before it is looked at
    job = taken(5, login("http://127.0.0.1:1"))
    with a_migration_to_do():
        with pytest.raises(CommandError, match="1 job is being sent: end the workers first, or say --wait"):
            migrate()
        assert guard.halted() is None
        Job.objects.filter(pk=job.pk).update(heartbeat_at="2000-01-01T00:00Z")
        migrate()
    assert guard.halted() is None


def test_migrate_that_waits_lets_open_calls_end_and_leaves_no_doubt(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=500.0)
    job = taken(MANY, login(sandbox.url))
    with a_migration_to_do(), being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        with meanwhile(lambda: migrate(wait=True)) as migrating:
            assert sending.result().left
            migrating.result()
        assert sums()["in doubt"] == 0 and sums()["waiting"] > 0 and guard.halted() is None
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}
