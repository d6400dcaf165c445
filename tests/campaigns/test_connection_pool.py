"""Connections to the database that belong to no thread: used again while they are good, and only then."""

import psycopg
import pytest
from django.db import connection, transaction

from campaigns.intake.requests import ConnectionPool


@pytest.fixture
def lines():
    made = ConnectionPool()
    yield made
    made.close()


def process(line):
    """The database's process behind it."""
    return line.execute("SELECT pg_backend_pid()").fetchone()[0]


def end(process_id):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [process_id])  # waits until it has ended
        assert cursor.fetchone() == (True,)


@pytest.mark.django_db(transaction=True)
def test_the_line_that_was_used_last_is_used_next_and_two_at_once_are_two(lines):
    with lines.one() as first:
        mine = process(first)
        with lines.one() as second:
            other = process(second)
    assert mine != other
    with lines.one() as again:
        assert process(again) == mine


@pytest.mark.django_db(transaction=True)
def test_a_line_that_broke_or_was_left_in_the_middle_of_something_is_not_used_again(lines):
    with lines.one() as line:
        first = process(line)
        line.execute("BEGIN")
    with lines.one() as line:
        second = process(line)
        assert second != first
        end(second)
    with pytest.raises(psycopg.OperationalError), lines.one() as line:
        process(line)
    with lines.one() as line:
        assert process(line) not in (first, second)


@pytest.mark.django_db
def test_within_a_transaction_it_is_the_transactions_own_line(lines):
    with transaction.atomic(), lines.one() as line:
        assert line is connection.connection
