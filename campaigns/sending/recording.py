"""Writes down what calls came to, over a connection of its own; an answer exists nowhere else until it is stored.

What a sender does to rows once it has come through its job: expire, look for what is left, drain.

Why a stream ended, and when its job may go on.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as DjangoError
from psycopg import AsyncConnection, Connection, InterfaceError, InternalError, OperationalError
from psycopg import Error as RowsError
from psycopg.rows import TupleRow

from campaigns import failpoints
from campaigns.claiming import claims
from campaigns.claiming.claims import REACHED, Lease
from campaigns.connections import Connections
from campaigns.failover import guard as store
from campaigns.lifecycle import holding, move
from campaigns.models import Job
from vendors.outcomes import Outcome


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Why the stream ended. drained: nothing was left. until: when it may go on; words: why it waits.

    held: the job itself has to wait until then; else its credential has, and a person may open that earlier.
    paused: only a person can.
    """

    drained: bool = False
    until: datetime | None = None
    words: str = ""
    held: bool = False
    paused: bool = False


def put_off(until: datetime) -> StreamEnd:
    """The vendor has put off all that is left; nobody waits for it meanwhile."""
    return StreamEnd(until=until, words="some are to be tried again", held=True)


EXPIRE = """
WITH held AS (
    SELECT FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING'
), late AS (
    UPDATE campaigns_opsmessage SET error_code = 'expired',
        error_sub_type = to_char(put_off_at AT TIME ZONE 'UTC', '"put off since" YYYY-MM-DD HH24:MI "UTC"')
    WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
        AND EXISTS (SELECT FROM held)
        AND (%(put_off)s::interval IS NULL OR put_off_at <= clock_timestamp() - %(put_off)s::interval)
    RETURNING id
)
UPDATE campaigns_job SET expired = expired + (SELECT count(*) FROM late) WHERE id = %(job)s
"""


async def expire(
    connection: AsyncConnection[TupleRow], lease: Lease, first: int, end: int, put_off: timedelta | None = None
) -> None:
    """The campaign's deadline has passed: what was not called is not called any more, visibly.

    put_off: only what the vendor has asked to be called later about, each time for so long.
    """
    words = {"job": lease.job_id, "fence": lease.fence, "first": first, "end": end, "put_off": put_off}
    await holding(connection, EXPIRE, words, jobs=[lease.job_id])


LEFT = f"""
SELECT ({REACHED}) < %(end)s OR (
    SELECT id FROM campaigns_opsmessage
    WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
    ORDER BY id LIMIT 1
) IS NOT NULL
"""


DUE = """
SELECT min(call_after) FROM campaigns_opsmessage
WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
HAVING min(coalesce(call_after, '-infinity')) > clock_timestamp()
"""


def due(connection: Connection, lease: Lease, first: int, end: int) -> datetime | None:
    """When the first of a job's messages may be called, if the vendor has put off all that are left; else None."""
    row = connection.execute(DUE, {"job": lease.job_id, "first": first, "end": end}).fetchone()
    return row[0] if row else None


def drain(connection: Connection, lease: Lease, first: int, end: int) -> bool:
    """SENDING -> SENT if nothing is left, to pick or to enqueue."""
    row = connection.execute(LEFT, {"job": lease.job_id, "first": first, "end": end}).fetchone()
    if row is None or row[0]:
        return False
    failpoints.here("before_drain")
    drained = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "drain") == 1
    failpoints.here("after_drain")
    return drained


log = logging.getLogger(__name__)

CallResult = tuple[int, Outcome]
NO_DATABASE = (OperationalError, InterfaceError, InternalError, DjangoError)  # Internal: it is read-only now


class Recorder:
    """Between `open` and `close`, for one job.

    refused: why nothing may be called: the database refuses our statements, its tables are another version's.
    """

    def __init__(self, lease: Lease, connections: Connections) -> None:
        self._lease, self._connections = lease, connections
        self._rows: Any = None
        self.refused = ""

    async def open(self) -> None:
        self._rows = await self._connections.to_rows()

    async def close(self) -> None:
        await self._connections.give_back(self._rows)

    async def store(self, answers: list[CallResult]) -> None:
        """Tried again for a minute where the database is lost or refuses; then the error is the caller's."""
        for pause in (0.1, 0.2, 0.5, 1, 2, 3, 5, 5, 5, 10, 10, 10):
            try:
                return await claims.record(self._rows, self._lease, answers)
            except NO_DATABASE as error:
                log.warning("job %s: results wait for the database: %s", self._lease.job_id, error)
            except RowsError as error:  # somebody may bring the old tables back
                self.refuse(error)
            await asyncio.sleep(pause)
            try:
                await self._rows.close()
                self._rows = await self._connections.to_rows()
            except NO_DATABASE:
                continue
        await claims.record(self._rows, self._lease, answers)
        return None

    def refuse(self, error: Exception) -> str:
        """A statement was refused. Returns why."""
        log.error("job %s: the schema does not match this version: %s", self._lease.job_id, error)
        self.refused = store.OTHER_TABLES
        return self.refused
