"""Connections that a process keeps from job to job: to the database, Redis and vendors.

All streams of a process share its few connections to the database, one statement at a time. An adapter serves one
stream at a time. A connection is kept only if its use ended without an error, and reused only if nothing has arrived on
it since. After a minute without use it is closed.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

import orjson
import psycopg
from django.conf import settings
from django.db import connection
from psycopg.adapt import Loader
from psycopg.errors import LockNotAvailable
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from campaigns.engine import ports
from campaigns.engine.failover import guard
from campaigns.engine.lifecycle import LOCKED_BRIEFLY
from campaigns.engine.suppressed.recent import RecentSuppressions
from campaigns.engine.threads import LOCKED_SECONDS, T, cut_off, is_clean
from vendors import histograms, redis_clients
from vendors.adapters.base import Adapter
from vendors.health import AsyncHealth
from vendors.limits.throttle import AsyncThrottle
from vendors.not_now import is_not_now

log = logging.getLogger(__name__)

KEPT = 60.0  # seconds before an unused one is closed
LOOK_SECONDS = 5.0  # between two looks for those, and two additions to the histograms
CLAIMING, RECORDING = 2, 2  # connections of a process to the database
SET_SIZE = """UPDATE vendors_credential SET relay_size = %(size)s::bigint
WHERE id = %(credential)s AND relay_size IS DISTINCT FROM %(size)s::bigint"""
VENDORS_MOST = 64  # idle adapters; each may keep all its connections open


class ReceivedRows:
    """The rows of a statement, with the interface of a cursor."""

    def __init__(self, rows: list[TupleRow]) -> None:
        self._rows = rows

    async def fetchone(self) -> TupleRow | None:
        return self._rows[0] if self._rows else None

    async def fetchall(self) -> list[TupleRow]:
        return self._rows


class SharedRows:
    """A few database connections shared by many streams, one statement at a time, in order of request.

    locked_most: lock timeout of a statement in PostgreSQL's notation; "0": none.
    """

    def __init__(self, most: int, locked_most: str = "0") -> None:
        self._places, self._locked_most = asyncio.Semaphore(most), locked_most
        self._idle: list[tuple[float, Any]] = []  # (idle since, connection), most recently used last

    async def execute(self, statement: Any, params: Any = None) -> "ReceivedRows":
        return await self.run_with_rows(lambda connection: connection.execute(statement, params))

    async def run_with_rows(self, work: Callable[[Any], Awaitable[T]], over: Callable[[], bool] = bool) -> T:
        """Run the work with a connection and return its result: one transaction, or several that may be repeated.

        If the work meets a lock, it is retried, and others use the connection in between. Raises LockNotAvailable once
        `over` returns True.
        """
        while True:
            try:
                async with self.lend_connection() as connection:
                    return await work(connection)
            except LockNotAvailable:
                if over():
                    raise
                await asyncio.sleep(LOCKED_SECONDS)

    @asynccontextmanager
    async def lend_connection(self) -> AsyncIterator[Any]:
        """Lend a connection for the block. It is kept if the block leaves no transaction open."""
        async with self._places:
            connection = await self._clean_connection()
            refused = False
            try:
                yield connection
            except BaseException as error:
                refused = is_not_now(error)  # a read-only session may stay read-only
                raise
            finally:
                if (
                    not refused
                    and not connection.closed
                    and connection.pgconn.transaction_status == TransactionStatus.IDLE
                ):
                    self._idle.append((time.monotonic(), connection))
                else:
                    await connection.close()

    async def close(self, unused_since: float) -> None:
        """Close the connections unused since then."""
        gone = [one for since, one in self._idle if since <= unused_since]
        self._idle = [(since, one) for since, one in self._idle if since > unused_since]
        for one in gone:
            await one.close()

    async def _clean_connection(self) -> Any:
        while self._idle:
            _, kept = self._idle.pop()
            if is_clean(kept):
                return kept
            await kept.close()
        return await open_connection(self._locked_most)


class KeptAdapter(NamedTuple):
    """An open adapter not in use by any stream."""

    since: float
    credential_id: int
    key: bytes
    adapter: Adapter


async def close_adapter(adapter: Adapter) -> None:
    """Close an adapter. An error of it is only logged: all calls are over, and others wait to be closed."""
    try:
        await adapter.close()
    except Exception as error:
        log.info("%s does not close its connections: %r", type(adapter).__name__, error)


class Connections:
    """The connections of one process, shared by all its streams.

    `results` is apart from `claims`, so that storing a result never waits behind claims.
    """

    def __init__(self) -> None:
        self.claims, self.results = SharedRows(CLAIMING, LOCKED_BRIEFLY), SharedRows(RECORDING)
        self.attachments = ports.letters.cache_files(self.claims)
        self._sizes: dict[int, tuple[float, int]] = {}  # by credential: time of storing, and the sizes
        self._suppressions: dict[int, RecentSuppressions] = {}
        self._adapters: list[KeptAdapter] = []  # most recently used last
        self._redis: Any = None
        self._expiry: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def lend_adapter(self, credential_id: int, key: bytes, adapter: Adapter) -> AsyncIterator[Adapter]:
        """Lend an open adapter of the credential to one stream: a kept one with the same key, or `adapter`.

        `adapter` is opened if it is used. An error in the block closes the adapter.
        """
        if self._expiry is None:
            self._expiry = asyncio.create_task(self._close_unused())
        used = await self._take_adapter(credential_id, key)
        if used is None:
            used = adapter
            await used.open()
        try:
            yield used
        except BaseException:
            await close_adapter(used)
            raise
        finally:
            await self._store_size(credential_id, used.size_offered)
        self._adapters.append(KeptAdapter(time.monotonic(), credential_id, key, used))
        if len(self._adapters) > VENDORS_MOST:
            await close_adapter(self._adapters.pop(0).adapter)

    def redis_stores(self) -> tuple[AsyncThrottle, AsyncHealth]:
        """Return the throttle and the health store. Redis's client checks its idle connections itself."""
        if self._redis is None:
            self._redis = redis_clients.connect_async(settings.REDIS_URL)
            self._throttle, self._health = AsyncThrottle(self._redis), AsyncHealth(self._redis)
        return self._throttle, self._health

    def recent_suppressions(self, adoptions: int) -> RecentSuppressions:
        """Return the suppressions newer than the jobs' imports.

        A takeover of the store discards them: the store may have lost some known before.
        """
        self._suppressions = {adoptions: self._suppressions.get(adoptions) or RecentSuppressions()}
        return self._suppressions[adoptions]

    async def _store_size(self, credential_id: int, size: int | None) -> None:
        """Store the size of mails that the vendor said it takes, if it is new or was stored a minute ago.

        Intake reads it. A failure is left to the next stream.
        """
        now, (stored_at, known) = time.monotonic(), self._sizes.get(credential_id, (float("-inf"), None))
        if size is None or (size == known and now - stored_at < KEPT):
            return
        values = {"size": size or None, "credential": credential_id}
        with suppress(psycopg.Error, OSError):
            await self.claims.run_with_rows(lambda connection: connection.execute(SET_SIZE, values), over=lambda: True)
            self._sizes[credential_id] = (now, size)

    async def close(self) -> None:
        if self._expiry is not None:
            await cut_off(self._expiry)
            self._expiry = None
        await self._close_unused_since(float("inf"))
        redis, self._redis = self._redis, None
        if redis is not None:
            await redis.aclose()

    async def _take_adapter(self, credential_id: int, key: bytes) -> Adapter | None:
        """Return the most recently used adapter with this key.

        Closes adapters made from the credential's former settings or secret.
        """
        of_credential = [kept for kept in self._adapters if kept.credential_id == credential_id]
        same = [kept for kept in of_credential if kept.key == key]
        former = [kept for kept in of_credential if kept.key != key]
        self._adapters = [kept for kept in self._adapters if kept not in former and kept not in same[-1:]]
        for kept in former:
            await close_adapter(kept.adapter)
        return same[-1].adapter if same else None

    async def _close_unused(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._close_unused_since(time.monotonic() - KEPT)
            await self._store_histograms()

    async def _store_histograms(self) -> None:
        """Add what this process has observed to the sums in Redis. While Redis is away it is lost."""
        if self._redis is None or not (taken := histograms.counts.take_counts()):
            return
        try:
            async with asyncio.timeout(histograms.PATIENCE):
                pipeline = self._redis.pipeline(transaction=False)
                histograms.add_to(pipeline, taken)
                await pipeline.execute()
        except Exception as error:  # its client raises many kinds; nothing depends on these counts
            log.info("histograms are not stored: %s", error)

    async def _close_unused_since(self, unused_since: float) -> None:
        gone = [kept for kept in self._adapters if kept.since <= unused_since]
        self._adapters = [kept for kept in self._adapters if kept.since > unused_since]
        for kept in gone:
            await close_adapter(kept.adapter)
        await self.claims.close(unused_since)
        await self.results.close(unused_since)


# For a sender's own connections: statements find rows by key, even if a table has outgrown its statistics.
BY_KEY = """SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_generic_plan"""


class SenderConnection(psycopg.AsyncConnection[TupleRow]):
    """Executes all statements with one cursor, because a new cursor looks up the dumper of each type again."""

    @cached_property
    def _kept_cursor(self) -> psycopg.AsyncCursor[TupleRow]:
        return self.cursor()

    async def execute(self, statement: Any, params: Any = None) -> ReceivedRows:  # type: ignore[override]
        await self._kept_cursor.execute(statement, params)
        result = self._kept_cursor.pgresult
        return ReceivedRows(await self._kept_cursor.fetchall() if result and result.nfields else [])


class JsonLoader(Loader):
    load = staticmethod(orjson.loads)  # type: ignore[assignment]  # intake wrote them with it


async def open_connection(locked_most: str = "0") -> SenderConnection:
    """Open a connection for an event loop, with autocommit. locked_most: as in SharedRows."""
    options = connection.get_connection_params()
    for ours in ("cursor_factory", "context", "client_encoding", "prepare_threshold"):
        options.pop(ours, None)
    made = await SenderConnection.connect(**options, autocommit=True, prepare_threshold=1)
    try:
        for kind in ("json", "jsonb"):
            made.adapters.register_loader(kind, JsonLoader)
        await made.execute(BY_KEY)
        idle = str(round(settings.TRANSACTION_IDLE_SECONDS * 1000))  # as in every session: mailhub/apps.py
        noted = f"""SELECT set_config('idle_in_transaction_session_timeout', %(idle)s, false),
            set_config('lock_timeout', %(locked)s, false), {guard.NOTED}"""
        await made.execute(noted, {"idle": idle, "locked": locked_most, "tables": guard.newest_migrations()})
    except BaseException:  # such as the end of its stream
        await made.close()
        raise
    made.prepared_max = 20
    return made
