"""Connections to the database that outlive their use are used again only while they are good."""

import psycopg
import pytest
from django.db import connection, transaction

from campaigns.lists.intake.shared_connections import ConnectionPool
from campaigns.tasks import finish_parent
from tests.programs import worker
from tests.waiting import wait_until


@pytest.fixture
def pool():
    made = ConnectionPool()
    yield made
    made.close()


def process(pooled):
    """The process id of the connection's server process."""
    return pooled.execute("SELECT pg_backend_pid()").fetchone()[0]


def end(process_id):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [process_id])  # waits until it has ended
        assert cursor.fetchone() == (True,)


@pytest.mark.django_db(transaction=True)
def test_the_connection_that_was_used_last_is_used_next_and_two_at_once_are_two(pool):
    with pool.lend_one() as first:
        mine = process(first)
        with pool.lend_one() as second:
            other = process(second)
    assert mine != other
    with pool.lend_one() as again:
        assert process(again) == mine


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_broke_or_was_left_in_a_transaction_is_not_used_again(pool):
    with pool.lend_one() as pooled:
        first = process(pooled)
        pooled.execute("BEGIN")
    with pool.lend_one() as pooled:
        second = process(pooled)
        assert second != first
        end(second)
    with pytest.raises(psycopg.OperationalError), pool.lend_one() as pooled:
        process(pooled)
    with pool.lend_one() as pooled:
        assert process(pooled) not in (first, second)


@pytest.mark.django_db
def test_within_a_transaction_it_is_the_transactions_own_connection(pool):
    with transaction.atomic(), pool.lend_one() as pooled:
        assert pooled is connection.connection


def of_the_worker():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"  # autovacuum comes when it likes
        )
        return [pid for (pid,) in cursor.fetchall()]


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow("processes")
def test_a_process_of_the_hub_keeps_its_connection_from_task_to_task_and_opens_another_if_it_was_lost():
    before = set(of_the_worker())

    def after_a_task():
        finish_parent.delay(0).get(timeout=60)
        # What the worker has asked while it started may be on its way out.
        wait_until(lambda: len(set(of_the_worker()) - before) == 1, "the process has one connection")
        return set(of_the_worker()) - before

    with worker(processes=1, queues="hub"):
        (kept,) = after_a_task()
        assert after_a_task() == {kept}
        end(kept)
        (another,) = after_a_task()
        assert another != kept
