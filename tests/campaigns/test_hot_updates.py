"""The hot statements update rows in place: no index is touched, and the page has free space."""

import pytest
from django.db import connection

from campaigns.models import Message, OpsMessage
from tests.faults.sending import login, sent, taken
from tests.programs import wait_until
from tests.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)
ROWS, JOBS = 3000, 5


def updates(table: str) -> tuple[int, int]:
    """(all updates since the database was made, those that were heap-only)"""
    with connection.cursor() as cursor:
        cursor.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s", [table])
        done, hot = cursor.fetchone()
    return int(done), int(hot)


def holders() -> list[tuple[int, str, str]]:
    """Sessions of others that hold a snapshot: what they may still see is not pruned, and pages fill up."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, state, query FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
            " AND (datname IS NULL OR datname = current_database())"
        )
        return list(cursor.fetchall())


def heap_only(table: str, url: str) -> float:
    """The share of heap-only updates while a job is sent."""
    wait_until(lambda: not holders(), "nobody holds a snapshot", log=lambda: str(holders()))
    before = updates(table)
    sent(taken(ROWS, login(url, concurrency=100)))
    wait_until(lambda: updates(table)[0] >= before[0] + 2 * ROWS, "the statistics know of the job")
    done, hot = (now - then for now, then in zip(updates(table), before, strict=True))
    return hot / done


@pytest.mark.parametrize(("model", "least"), [(Message, 0.9), (OpsMessage, 0.6)])
def test_updates_of_a_job_that_is_sent_are_heap_only(model: type, least: float, sandbox: Sandbox) -> None:
    """A statement that touches an index is never heap-only: with one of the two that update, half of them at most.

    Pages that fill up before they are pruned send rows elsewhere, too; on a busy machine that may happen to any job.
    """
    table = model._meta.db_table  # type: ignore[attr-defined]
    shares: list[float] = []
    while not shares or (shares[-1] <= least and len(shares) < JOBS):
        shares.append(heap_only(table, sandbox.url))
    assert shares[-1] > least, f"heap-only updates of {table}: {shares}; {holders()}"
