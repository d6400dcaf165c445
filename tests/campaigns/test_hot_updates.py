"""A message is updated once, in place: no index is touched, and the page has free space. Answers never are."""

import pytest
from django.db import connection
from django.db.models import Model

from campaigns.models import AnswerBatch, Message
from tests.faults.sending import login, sent, taken
from tests.programs import wait_until
from tests.sandbox import Sandbox

pytestmark = pytest.mark.django_db(transaction=True)
ROWS, JOBS, LEAST = 3000, 5, 0.9


def updates(model: type[Model]) -> tuple[int, int]:
    """(all updates since the database was made, those that were heap-only)"""
    table = model._meta.db_table
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


def heap_only(url: str) -> float:
    """The share of heap-only updates of messages while a job is sent, each of which is updated once.

    0 if there were more: a session that is idle may report those of an earlier job as late as ten seconds afterwards.
    """
    wait_until(lambda: not holders(), "nobody holds a snapshot", log=lambda: str(holders()))
    before = updates(Message)
    sent(taken(ROWS, login(url, concurrency=100)))
    wait_until(lambda: updates(Message)[0] >= before[0] + ROWS, "the statistics know of the job")
    done, hot = (now - then for now, then in zip(updates(Message), before, strict=True))
    return hot / done if done == ROWS else 0.0


def test_a_message_that_is_sent_is_updated_once_and_heap_only(sandbox: Sandbox) -> None:
    """A statement that touches an index is never heap-only.

    Pages that fill up before they are pruned send rows elsewhere, too; on a busy machine that may happen to any job.
    """
    before = updates(AnswerBatch)
    shares: list[float] = []
    while not shares or (shares[-1] <= LEAST and len(shares) < JOBS):
        shares.append(heap_only(sandbox.url))
    assert shares[-1] > LEAST, f"heap-only updates: {shares}; {holders()}"
    assert updates(AnswerBatch) == before
