"""Senders' threads for Django's queries prepare their statements, and a migration meanwhile makes none of them fail."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from django.db import connection, transaction
from django.utils import timezone

from campaigns.engine.casting import mailcaster
from campaigns.engine.claiming import claims
from campaigns.engine.finishing import finalizer
from campaigns.engine.lifecycle import LOCKED_BRIEFLY
from campaigns.engine.sending import sender
from campaigns.engine.threads import PREPARED, DatabaseThreads
from campaigns.models import Job
from campaigns.suppression.refused import REFUSED_SO
from tests import factories
from vendors.models import Mailcaster

pytestmark = pytest.mark.django_db(transaction=True)
OFTEN = int(PREPARED["prepare_threshold"]) + 7  # PostgreSQL plans the first five times for their parameters


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[DatabaseThreads]:
    monkeypatch.setattr("campaigns.engine.threads.BLOCKING", 1)
    with closing(DatabaseThreads(LOCKED_BRIEFLY)) as threads:
        yield threads


@contextmanager
def one_more_column(table: str) -> Iterator[None]:
    """As between a migration and the restart of the senders; it rolls back nothing."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} ADD COLUMN of_the_next_version int")
        try:
            yield
        finally:
            cursor.execute(f"ALTER TABLE {table} DROP COLUMN of_the_next_version")


def prepared() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [statement for (statement,) in cursor.fetchall()]


def claim_and_put_back(caster: Mailcaster) -> int:
    """Its fence. The job is started and waits again, as if nobody had taken it."""
    claimed = mailcaster.claim_next_job(caster.pk, timezone.now())
    assert claimed, "it is idle, and a job waits"
    started = claims.start_job(claimed.job_id, claimed.fence)
    assert started and started.waits
    Job.objects.filter(pk=claimed.job_id).update(status="DISPATCHED", mailcaster=None, heartbeat_at=None)
    return claimed.fence


def test_a_claim_is_planned_once_in_a_sender_and_anew_elsewhere(threads: DatabaseThreads) -> None:
    caster = factories.caster(factories.vendor())
    factories.campaign_with_job(1, of=factories.credential(caster.vendor), status="DISPATCHED")
    fences = [threads.run_function(claim_and_put_back, caster) for _ in range(OFTEN)]
    assert fences == list(range(1, 2 * OFTEN, 2)), "the start counts, too"
    kept = threads.run_function(prepared)
    for part in ("FROM vendors_mailcaster m", "FROM campaigns_job j", 'UPDATE "campaigns_job"'):
        assert any(part in statement for statement in kept), part
    for _ in range(OFTEN):
        claim_and_put_back(caster)
    assert prepared() == []


@pytest.mark.parametrize("table", ["campaigns_job", "vendors_mailcaster", "vendors_credential", "campaigns_campaign"])
def test_a_column_that_a_migration_adds_meanwhile_makes_no_prepared_claim_fail(
    table: str, threads: DatabaseThreads
) -> None:
    caster = factories.caster(factories.vendor())
    login = factories.credential(caster.vendor, exclusive=True)
    factories.campaign_with_job(1, of=login, status="DISPATCHED")
    before = [threads.run_function(claim_and_put_back, caster) for _ in range(OFTEN)]
    with one_more_column(table):
        assert threads.run_function(claim_and_put_back, caster) == before[-1] + 2
    assert threads.run_function(claim_and_put_back, caster) == before[-1] + 4


def test_plans_that_were_made_for_small_tables_read_no_full_one_from_its_beginning(threads: DatabaseThreads) -> None:
    """A plan is kept until PostgreSQL analyses the table again, a minute or more after a million rows have come."""
    caster = factories.caster(factories.vendor())
    job = factories.campaign_with_job(3, of=factories.credential(caster.vendor), status="DISPATCHED")
    its = {"job": job.pk, "fence": 1, "first": job.first_message, "end": job.end}

    def all_of_a_job() -> int:
        with connection.cursor() as cursor:
            for statement in (
                sender.DRAIN_ALL_CALLED,
                sender.WAITING,
                finalizer.COUNT.format(refused_so=REFUSED_SO),
                finalizer.NOT_PUT_OFF,
                claims.FIRST_WAITING,
                claims.START,
            ):
                cursor.execute(statement, its)
        finalizer.look_at(job.pk)
        return claim_and_put_back(caster)

    @transaction.atomic
    def read_from_the_beginning() -> list[tuple[str, int]]:
        all_of_a_job()
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT relname, seq_scan FROM pg_stat_xact_user_tables "
                "WHERE relname IN ('campaigns_job', 'campaigns_message') AND seq_scan > 0"
            )
            return list(cursor.fetchall())

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE campaigns_job, campaigns_message")
    for _ in range(OFTEN):
        threads.run_function(all_of_a_job)
    assert threads.run_function(read_from_the_beginning) == []


def test_a_statement_that_fails_leaves_the_next_ones_a_good_connection(threads: DatabaseThreads) -> None:
    job = factories.campaign_with_job(1)

    @transaction.atomic
    def divide(by: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT size / %s FROM campaigns_job WHERE id = %s", [by, job.pk])
            return int(cursor.fetchone()[0])

    assert [threads.run_function(divide, 1) for _ in range(OFTEN)] == [1] * OFTEN
    with pytest.raises(Exception, match="division by zero"):
        threads.run_function(divide, 0)
    assert threads.run_function(divide, 1) == 1
