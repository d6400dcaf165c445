"""Tables that change under a sender: it calls nobody whose answer it could not store, and `migrate` waits for it."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from campaigns.engine.casting import mailcaster as casting_queries
from campaigns.engine.dispatch.dispatcher import notify_vendors
from campaigns.engine.doubts.reconciler import reconcile_due_doubts
from campaigns.engine.failover import guard
from campaigns.engine.finishing import finalizer
from campaigns.engine.sending.sender import Sender
from campaigns.models import Claim, Job, Message, Store
from mailhub import checks, upgrades
from tests import factories, forks
from tests.faults import rounds
from tests.faults.checker import judge, rows, sums
from tests.faults.sending import CONCURRENCY, being_sent, calls, login, meanwhile, send_the_rest, take_again, taken
from tests.programs import environment, worker
from tests.sandbox import Sandbox
from tests.waiting import DEADLINE, wait_until
from vendors.models import RateLimit

pytestmark = [pytest.mark.slow("processes"), pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
MANY = 400  # more than are called before a slow machine has done what is to stop them


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def a_migration_to_do() -> Iterator[None]:
    """A migration that stops calls, and all since, are not written down as done; `migrate --fake` writes them again."""
    since = " OR ".join(f"(app = '{app}' AND name > '{name}')" for app, name in upgrades.RELEASES["0.3.0"].items())
    execute(f"DELETE FROM django_migrations WHERE {since} OR (app, name) = ('campaigns', '0082_class_of_jobs')")
    try:
        yield
    finally:
        call_command("migrate", fake=True, force=True, verbosity=0)


def migrate(**options: bool) -> None:
    call_command("migrate", fake=True, verbosity=0, **options)


@pytest.mark.parametrize(
    ("breaks", "mends"),
    [
        (
            "ALTER TABLE campaigns_answerbatch RENAME COLUMN waits TO pauses",
            "ALTER TABLE campaigns_answerbatch RENAME COLUMN pauses TO waits",
        ),
        (
            "ALTER TABLE vendors_minute DROP CONSTRAINT one_row_a_minute",
            "ALTER TABLE vendors_minute ADD CONSTRAINT one_row_a_minute UNIQUE (at, vendor_id, sponsor, share)",
        ),
    ],
    ids=["append", "merge"],
)
def test_a_sender_whose_answers_the_schema_refuses_calls_nobody_else_and_keeps_what_it_has(
    breaks: str, mends: str, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """As seen: a migration took a constraint away that was named in the statement: 417 of 20,000 came into doubt."""
    sandbox.settings(latency_ms=500.0)
    job = taken(MANY, login(sandbox.url))
    with being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        execute(breaks)
        try:
            wait_until(lambda: "the schema does not match this version" in caplog.text, "the sender says so")
            called = len(sandbox.books().entries)
        finally:
            execute(mends)
        assert sending.result().left
    assert called <= len(sandbox.books().entries) <= called + CONCURRENCY, "what was claimed by then, and no other"
    assert sums()["accepted"] == len(sandbox.books().entries)
    assert Job.objects.get(pk=job.pk).waits_for == guard.OTHER_TABLES
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}


def test_a_process_whose_statement_was_refused_sends_the_next_job(sandbox: Sandbox) -> None:
    job = taken(5, login(sandbox.url))
    with closing(Sender()) as one:
        execute("ALTER TABLE campaigns_claim RENAME COLUMN units TO cost")
        try:
            assert one.send_claimed_job(job.pk, job.fence).left
        finally:
            execute("ALTER TABLE campaigns_claim RENAME COLUMN cost TO units")
        Job.objects.update(not_before=None)
        one.send_claimed_job(job.pk, take_again(job).fence)
    assert Job.objects.get(pk=job.pk).status == "SENT"


@pytest.mark.parametrize("tables", ["", "campaigns.0999_of_tomorrow"])
def test_tables_of_another_version_stop_every_sender_before_its_next_claim(sandbox: Sandbox, tables: str) -> None:
    sandbox.settings(latency_ms=100.0)
    job, other = taken(MANY, login(sandbox.url)), factories.campaign_with_job(1, status="DISPATCHED")
    ours = Store.objects.values("tables", "applied").get()
    with being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        Store.objects.update(tables=tables, applied=tables)
        assert sending.result().left
    assert sums()["waiting"] > 0 and sums()["in doubt"] == 0
    assert Job.objects.get(pk=job.pk).waits_for == (guard.OTHER_TABLES if tables else guard.MIGRATING)
    assert casting_queries.lock_mailcaster(factories.caster(other.vendor).pk) is None, "nothing is taken either"
    Store.objects.update(**ours)
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books(), final=False) == []


def test_what_migrate_writes_down_is_what_the_program_knows() -> None:
    assert Store.objects.get().tables == guard.newest_migrations() and guard.halt_reason() is None


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
        assert Store.objects.values().get() == before
        with_it = {"tables": "campaigns.0022_of_another", "applied": "campaigns.0022_of_another"}
        Store.objects.update(**with_it)
        assert [error.id for error in checks.tables_are_of_this_version()] == ["mailhub.E008"]
        Store.objects.update(**{**with_it, "tables": guard.newest_migrations()})
        if storage == "0002_storage":
            assert checks.tables_are_of_this_version() == [], "they are ahead by additive migrations alone"
    finally:
        Store.objects.update(tables=before["tables"], applied=before["applied"])
        execute("DELETE FROM django_migrations WHERE name = '0022_of_another'")
        execute(rename.format("0002_storage", storage))
    migrate()
    assert checks.tables_are_of_this_version() == []


NOTE_CLOSINGS = """
CREATE TABLE noted_closing (id serial, tables text, at float8, allowed bigint, being_sent bigint);
CREATE FUNCTION note_closing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO noted_closing (tables, at, allowed, being_sent)
    SELECT NEW.tables, extract(epoch FROM clock_timestamp()), coalesce(sum(units), 0),
        (SELECT count(*) FROM campaigns_job WHERE status = 'SENDING')
    FROM vendors_usage;
    RETURN NULL;
END $$;
CREATE TRIGGER zz_note_closing AFTER UPDATE OF tables ON campaigns_store FOR EACH ROW EXECUTE FUNCTION note_closing();
"""


class Closing(NamedTuple):
    """tables: empty: the store is closed for calls; at: Unix seconds; allowed: calls by then; being_sent: jobs."""

    tables: str
    at: float
    allowed: int
    being_sent: int


@contextmanager
def noted_closings() -> Iterator[Callable[[], list[Closing]]]:
    """Each time that the store is closed or opened.

    It is noted in the same transaction, after the trigger that locks the vendors: no claim is under way then, and none
    comes before the commit.
    """

    def read() -> list[Closing]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT tables, at, allowed, being_sent FROM noted_closing ORDER BY id")
            return list(map(Closing._make, cursor.fetchall()))

    execute(NOTE_CLOSINGS)
    try:
        yield read
    finally:
        execute("DROP FUNCTION note_closing CASCADE; DROP TABLE noted_closing")


def test_migrate_refuses_while_mail_is_being_sent_and_changes_nothing(settings: Any) -> None:
    settings.LEASE_SECONDS = 600.0  # nobody beats for the job: it is not to run out before it is looked at
    job = taken(5, login("http://127.0.0.1:1"))
    with a_migration_to_do(), noted_closings() as closings:
        with pytest.raises(CommandError, match="1 job is being sent: end the workers first, or say --wait"):
            migrate()
        assert guard.halt_reason() is None and closings() == [], "no sender is stopped for a moment"
        Job.objects.filter(pk=job.pk).update(heartbeat_at="2000-01-01T00:00Z")
        migrate()
    assert guard.halt_reason() is None


class TerminalInput(StringIO):
    """What a person types at a terminal."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_migrate_asks_before_calls_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_migration_to_do(), noted_closings() as closings:
        monkeypatch.setattr(sys, "stdin", TerminalInput("\n"))
        with pytest.raises(CommandError, match="Nothing was changed"):
            migrate()
        assert closings() == []
        monkeypatch.setattr(sys, "stdin", TerminalInput("y\n"))
        migrate()
        assert [one.tables for one in closings()] == ["", guard.newest_migrations()]


def test_migrate_that_waits_lets_open_calls_end_and_leaves_no_doubt(sandbox: Sandbox) -> None:
    sandbox.settings(latency_ms=500.0)
    job = taken(MANY, login(sandbox.url))
    with a_migration_to_do(), being_sent(job) as sending:
        calls(sandbox, CONCURRENCY)
        with meanwhile(lambda: migrate(wait=True)) as migrating:
            assert sending.result().left
            migrating.result()
        assert sums()["in doubt"] == 0 and sums()["waiting"] > 0 and guard.halt_reason() is None
    sandbox.settings(latency_ms=0.0)
    Job.objects.update(not_before=None)
    send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": MANY}


def test_from_the_commit_that_closes_the_store_no_call_is_allowed_until_the_tables_are_those_of_the_program(
    sandbox: Sandbox,
) -> None:
    """Real senders and the real command: judged by the ledger and by the vendor's books."""
    sandbox.settings(latency_ms=500.0)
    account = login(sandbox.url, (20, 1.0), concurrency=16)
    factories.caster(account.vendor)
    two = [factories.campaign_with_job(MANY, of=account, status="DISPATCHED") for _ in range(2)]
    queues = f"hub,{account.vendor.queue}"
    with noted_closings() as closings, worker(queues=queues) as one, worker(queues=queues) as other:
        notify_vendors([account.vendor_id])
        calls(sandbox, CONCURRENCY)
        with a_migration_to_do():
            done = forks.run(["manage.py", "migrate", "--wait", "--fake"], env=environment(), timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        assert (one.end(signal.SIGTERM), other.end(signal.SIGTERM)) == (0, 0)
        closed, opened, *_ = closings()
    assert closed.tables == "" and opened.tables == guard.newest_migrations() and closed.at < opened.at
    assert 0 < closed.allowed == opened.allowed < 2 * MANY, "the ledger has not grown between the two commits"
    assert closed.being_sent > 0 == opened.being_sent, "open calls were awaited"
    assert 0 < sum(entry.wall < opened.at for entry in sandbox.books().entries) <= closed.allowed
    assert sums()["in doubt"] == 0
    sentences = (
        "no call starts from now on",
        r"no call is open any more, after \d+\.\d s",
        r"the tables were changed in \d+\.\d s: processes of this version may start calls again",
    )
    assert re.search(".*".join(sentences), done.stderr, re.DOTALL), done.stderr
    sandbox.settings(latency_ms=0.0)
    RateLimit.objects.all().delete()
    Job.objects.update(not_before=None)
    for job in two:
        send_the_rest(job)
    assert judge(sandbox.books()) == [] and sums() == {"accepted": 2 * MANY}


def test_that_migrations_are_to_be_applied_is_known_before_django_has_read_them() -> None:
    assert not guard.has_unapplied()
    with a_migration_to_do():
        assert guard.has_unapplied()
    assert not guard.has_unapplied()


@contextmanager
def let_go_of(job: Job) -> Iterator[None]:
    """After the block, whatever came of it, no sender has the job."""
    try:
        yield
    finally:
        Job.objects.filter(pk=job.pk).update(heartbeat_at="2000-01-01T00:00Z")


def test_a_second_migrate_waits_for_the_first_and_neither_opens_what_the_other_has_closed(
    settings: Any, sandbox: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.LEASE_SECONDS = 600.0
    job = taken(5, login(sandbox.url))
    with a_migration_to_do(), noted_closings() as closings:
        with meanwhile(lambda: migrate(wait=True)) as first, let_go_of(job):
            wait_until(lambda: guard.halt_reason() == guard.MIGRATING, "the first has closed the store")
            with meanwhile(lambda: migrate()) as second, let_go_of(job):
                wait_until(lambda: "waits for another migrate" in capsys.readouterr().err or second.done(), "it waits")
                assert not second.done() and guard.halt_reason() == guard.MIGRATING
            second.result()
            first.result()
        assert [one.tables for one in closings()] == ["", guard.newest_migrations(), guard.newest_migrations()]


@contextmanager
def tables_of_0_2() -> Iterator[None]:
    """The tables as version 0.2 had them; at the end of the block they are converted."""
    MigrationExecutor(connection).migrate([("campaigns", "0003_status_since")])
    try:
        yield
    finally:
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())


# What version 0.2 kept of each message of a job in ops while the job was sent.
IN_OPS = {
    "waiting": "",
    "put off": "put_off_at = now() - interval '2 minutes', call_after = now() - interval '1 second'",
    "called": "fence = 2, units = 2, sent_at = '2026-01-01T00:00Z'",
    "called then": "fence = 2, sent_at = '2026-01-01T00:00Z'",
    "called later": "fence = 2, sent_at = '2026-01-01T00:01Z'",
    "accepted": "fence = 2, sent_at = now(), delivered_at = now(), message_id = 'sb-1'",
    "refused": "fence = 2, sent_at = now(), delivered_at = now(), error_code = 'bounce', error_sub_type = 'nobody'",
    "in doubt": "fence = 1, sent_at = now(), in_doubt_at = now(), error_sub_type = 'read timeout'",
    "expired": "error_code = 'expired'",
    "reported": "fence = 2, sent_at = now()",  # the vendor's report came before the answer of the call
}


def in_ops(job: Job) -> None:
    """The job's messages as a sender of 0.2 had left them when it died; the last one was not copied to ops yet."""
    for id, facts in zip(range(job.first_message, job.end), IN_OPS.values(), strict=False):
        execute(f"INSERT INTO campaigns_opsmessage (id, job_id) VALUES ({id}, {job.pk})")
        execute(f"UPDATE campaigns_message SET dequeued_at = now() WHERE id = {id}")
        if facts:
            execute(f"UPDATE campaigns_opsmessage SET {facts} WHERE id = {id}")
    execute(
        "UPDATE campaigns_message SET sent_at = now(), delivered_at = now(), message_id = 'receipt:r', report_no = 0,"
        f" report = 'delivered', report_at = now() WHERE id = {job.first_message + len(IN_OPS) - 1}"
    )
    execute(
        "UPDATE campaigns_job SET accepted = 2, refused = 1, in_doubt = 1, expired = 1,"
        f" heartbeat_at = '2026-01-01T00:02Z' WHERE id = {job.pk}"
    )


def test_a_job_that_version_0_2_had_half_sent_goes_on_with_all_that_was_known_of_it(sandbox: Sandbox) -> None:
    account = login(sandbox.url, lookup="strong")
    job = factories.campaign_with_job(len(IN_OPS) + 1, of=account, status="SENDING", fence=2)
    stopped = factories.campaign_with_job(2, of=account, status="STOPPED", fence=1, stopped_at=timezone.now())
    logged = factories.campaign_with_job(1, of=account, status="LOGGED", fence=1, finished_at=timezone.now())
    with tables_of_0_2():
        in_ops(job)
        execute(
            "INSERT INTO campaigns_opsmessage (id, job_id, fence, sent_at)"
            f" VALUES ({stopped.first_message}, {stopped.pk}, 1, now())"
        )
        execute(
            "UPDATE campaigns_message SET dequeued_at = now(), sent_at = now(), delivered_at = now(), message_id = 'l'"
            f" WHERE id = {logged.first_message}"
        )
    names = [*IN_OPS, "not copied"]
    states = {name: row.state for name, row in zip(names, rows(), strict=False)}
    flight = dict.fromkeys(("called", "called then", "called later"), "in flight")
    assert states == {
        **dict.fromkeys(("waiting", "put off", "not copied"), "waiting"), **flight, "accepted": "accepted",
        "refused": "refused", "in doubt": "in doubt", "expired": "expired", "reported": "accepted",
    }  # fmt: skip
    messages = dict(zip(names, Message.objects.order_by("pk"), strict=False))
    assert messages["put off"].put_off_at and messages["put off"].call_after and messages["in doubt"].settle_at
    claimed = Claim.objects.filter(job=job).order_by("at").values_list("fence", "messages", "units")
    called, then, later = (messages[name].pk for name in flight)
    assert list(claimed)[:2] == [(2, [called, then], [2, 1]), (2, [later], [1])]
    assert not finalizer.finalise_job(stopped.pk), "its call may have been made"
    assert finalizer.recover_job(job.pk, timedelta(minutes=1))
    job.refresh_from_db()
    assert (job.in_doubt, job.units) == (1 + 3, 2 + 1 + 1)
    send_the_rest(job)
    assert {entry.reference for entry in sandbox.books().entries} == {
        messages[name].reference for name in ("waiting", "put off", "not copied")
    }
    Job.objects.update(heartbeat_at=None)
    send_the_rest(stopped)
    wait_until(nothing_is_in_doubt, "the vendor was asked, and has none of them")
    assert sums() == {"accepted": 2 + 3 + 4 + 1, "refused": 1, "expired": 1, "waiting": 1, "in doubt": 1}
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM campaigns_opsmessage")
        assert cursor.fetchone()[0] == 0


def nothing_is_in_doubt() -> bool:
    """Nothing but what was called for the job that was stopped: that is not called again."""
    rounds.an_hour_passes()
    reconcile_due_doubts()
    return Message.objects.filter(in_doubt_at__isnull=False).count() == 1
