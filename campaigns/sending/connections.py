"""The connections of a sending process, to the database, Redis and vendors. They stay open from one job to the next.

Nothing of a job stays in them: one is kept only if its job came to its end in order, and none is handed out again
that has heard anything meanwhile. What nobody has used for a minute is closed.
"""

import asyncio
import select
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import psycopg
from django.conf import settings
from django.db import connection
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads

from campaigns.claiming import claims
from campaigns.claiming.leased_job import LeasedJob
from campaigns.failover import guard
from vendors import redis_clients
from vendors.adapters.base import Adapter
from vendors.health import AsyncHealth
from vendors.limits.throttle import AsyncThrottle

KEPT = 60.0  # seconds that they wait for the next job
ROWS_MOST = 2  # connections to the database: claims and results
VENDORS_MOST = 8  # adapters; each may hold its whole number of connections


class Connections:
    """Used in one event loop, by one job at a time."""

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self._ways: dict[int, tuple[bytes, Adapter]] = {}  # by credential; the last used stands last
        self._redis: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def to_vendor(self, work: LeasedJob) -> AsyncIterator[Adapter]:
        """An open adapter with the job's settings and secret; closed where the block ends with an error."""
        await self._rest(False)
        known, kept = self._ways.pop(work.credential_id, (b"", None))
        if kept is not None and known != work.way:  # they were edited
            await kept.close()
            kept = None
        if kept is None:
            kept = work.adapter
            await kept.open()
        try:
            yield kept
        except BaseException:
            await kept.close()
            raise
        else:
            self._ways[work.credential_id] = work.way, kept
            if len(self._ways) > VENDORS_MOST:
                await self._ways.pop(next(iter(self._ways)))[1].close()
        finally:
            await self._rest(True)

    async def to_rows(self) -> Any:
        """A connection to the database; its user gives it back or closes it."""
        while self._rows:
            kept = self._rows.pop()
            if _unheard(kept):
                return kept
            await kept.close()
        return await connect()

    async def give_back(self, rows: Any) -> None:
        idle = not rows.closed and rows.pgconn.transaction_status == TransactionStatus.IDLE
        if idle and len(self._rows) < ROWS_MOST:
            self._rows.append(rows)
        else:
            await rows.close()

    def to_redis(self) -> tuple[AsyncThrottle, AsyncHealth]:
        """Its client looks by itself whether a kept connection has heard anything."""
        if self._redis is None:
            self._redis = redis_clients.connect_async(settings.REDIS_URL)
        return AsyncThrottle(self._redis), AsyncHealth(self._redis)

    async def close(self) -> None:
        await self._rest(False)
        await self._close()

    async def _rest(self, resting: bool) -> None:
        """Between two jobs a timer runs; a job that begins while it closes them waits for that."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        closing, self._closing = self._closing, None
        if closing is not None:
            await closing
        if resting:
            self._timer = asyncio.get_running_loop().call_later(KEPT, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        ways, rows, redis = self._ways, self._rows, self._redis
        self._ways, self._rows, self._redis = {}, [], None
        for _, adapter in ways.values():
            await adapter.close()
        for kept in rows:
            await kept.close()
        if redis is not None:
            await redis.aclose()


def _unheard(rows: Any) -> bool:
    """Open, and nothing has arrived since its last answer: neither its end nor an error."""
    if rows.closed:
        return False
    poll = select.poll()
    poll.register(rows.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


async def connect() -> Any:
    """A connection of an event loop, each statement its own transaction."""
    words = connection.get_connection_params()
    for ours in ("cursor_factory", "context", "client_encoding", "prepare_threshold"):
        words.pop(ours, None)
    made = await psycopg.AsyncConnection.connect(**words, autocommit=True, prepare_threshold=1)
    set_json_loads(orjson.loads, made)  # intake wrote them with it
    await made.execute(claims.BY_KEY)
    await made.execute(f"SELECT {guard.NOTED}", {"tables": guard.tables()})
    made.prepared_max = 20
    return made
