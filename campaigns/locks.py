"""The locks of jobs: one order, and each lock a statement of its own.

In READ COMMITTED a statement sees the rows as they were when it began. One that waits for a lock and reads as well
decides by what was so before the wait. So whoever decides about a job or its messages holds the job first, and reads
in the next statement; nobody else changes what it reads then.

The order is: jobs by id, by which a parent comes before its children; then messages. A hold ends with its transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db import connection
from django.db.transaction import TransactionManagementError
from psycopg import AsyncConnection, AsyncCursor

# No key: a child that is cut from its parent, and a campaign's session, may refer to the row meanwhile.
HOLD = "SELECT id FROM campaigns_job WHERE id = ANY(%(jobs)s) ORDER BY id FOR NO KEY UPDATE"
HOLD_CHILDREN = "SELECT id FROM campaigns_job WHERE parent_id = ANY(%(parents)s) ORDER BY id FOR NO KEY UPDATE"
# A message that was called has all its jobs already: what is cut later is cut from what was never called.
HOLD_AROUND = """
SELECT id FROM campaigns_job WHERE id IN (
    SELECT j.id FROM campaigns_message m JOIN campaigns_job j ON j.campaign_id = m.campaign_id
        AND m.id >= j.first_message AND m.id < j.first_message + j.size
    WHERE m.id = ANY(%(messages)s)
) ORDER BY id FOR NO KEY UPDATE
"""


def hold(job_ids: Iterable[int]) -> list[int]:
    """These jobs, until the transaction ends; those that there are."""
    return _hold(HOLD, {"jobs": list(job_ids)})


def hold_family(job_id: int) -> list[int]:
    """The job with its parent, then its children: those that were cut before we held it."""
    held = _hold("SELECT parent_id FROM campaigns_job WHERE id = %(job)s AND parent_id IS NOT NULL", {"job": job_id})
    return hold([*held, job_id]) + _hold(HOLD_CHILDREN, {"parents": [job_id]})


def hold_around(message_ids: Iterable[int]) -> list[int]:
    """The jobs in which these messages are, parents and leaves."""
    return _hold(HOLD_AROUND, {"messages": list(message_ids)})


def _hold(statement: str, words: Mapping[str, Any]) -> list[int]:
    if not connection.in_atomic_block:
        raise TransactionManagementError("outside of a transaction nothing stays held")
    with connection.cursor() as cursor:
        cursor.execute(statement, words)
        return [job_id for (job_id,) in cursor.fetchall()]


async def holding(
    connection: AsyncConnection[Any],
    statement: str,
    words: Mapping[str, Any],
    *,
    jobs: Sequence[int] = (),
    messages: Sequence[int] = (),
) -> AsyncCursor[Any]:
    """Executes the statement while these jobs are held, or those around these messages.

    Not as a pipeline, which would save round trips: to the database, who freezes in the middle of one is not idle, and
    keeps the locks for as long as that lasts.
    """
    async with connection.transaction():
        if jobs:
            await connection.execute(HOLD, {"jobs": list(jobs)})
        if messages:
            await connection.execute(HOLD_AROUND, {"messages": list(messages)})
        return await connection.execute(statement, words)
