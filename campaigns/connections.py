"""What a sending process keeps open from job to job: connections to the database, Redis and vendors, and a loop.

Nothing of a job stays in a connection: it is kept only if its job ended without an error, and is not used again if
anything has arrived on it meanwhile. Connections that are idle for a minute are closed. The event loop has a thread of
its own, so that open connections are looked after between two jobs.
"""

import asyncio
import select
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import orjson
import psycopg
import uvloop
from django.conf import settings
from django.db import connection
from psycopg.pq import TransactionStatus
from psycopg.types.json import set_json_loads

from campaigns.failover import guard
from vendors import redis_clients
from vendors.adapters.base import Adapter
from vendors.health import AsyncHealth
from vendors.limits.throttle import AsyncThrottle

T = TypeVar("T")

KEPT = 60.0  # seconds that they wait for the next job
ROWS_MOST = 2  # connections to the database: claims and results
VENDORS_MOST = 8  # adapters; each may hold its whole number of connections


class Connections:
    """The connections of one process, used in one event loop by one job at a time."""

    def __init__(self) -> None:
        self._rows: list[Any] = []
        self._adapters: dict[int, tuple[bytes, Adapter]] = {}  # by credential; the last used is last
        self._redis: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def to_vendor(self, credential_id: int, key: bytes, adapter: Adapter) -> AsyncIterator[Adapter]:
        """The credential's open adapter: the kept one if it has the same key, else `adapter`, which is opened.

        An error in the block closes it.
        """
        await self._idle_timer(False)
        known, kept = self._adapters.pop(credential_id, (b"", None))
        if kept is not None and known != key:  # settings or secret were edited
            await kept.close()
            kept = None
        if kept is None:
            kept = adapter
            await kept.open()
        try:
            yield kept
        except BaseException:
            await kept.close()
            raise
        else:
            self._adapters[credential_id] = key, kept
            if len(self._adapters) > VENDORS_MOST:
                await self._adapters.pop(next(iter(self._adapters)))[1].close()
        finally:
            await self._idle_timer(True)

    async def to_rows(self) -> Any:
        """A connection to the database; return it by `give_back`, or close it."""
        while self._rows:
            kept = self._rows.pop()
            if _is_clean(kept):
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
        """Redis's client checks its kept connections by itself."""
        if self._redis is None:
            self._redis = redis_clients.connect_async(settings.REDIS_URL)
        return AsyncThrottle(self._redis), AsyncHealth(self._redis)

    async def close(self) -> None:
        await self._idle_timer(False)
        await self._close()

    async def _idle_timer(self, start: bool) -> None:
        """Stops the timer; starts it anew between two jobs. A job that begins while it closes them waits for that."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        closing, self._closing = self._closing, None
        if closing is not None:
            await closing
        if start:
            self._timer = asyncio.get_running_loop().call_later(KEPT, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._closing = asyncio.get_running_loop().create_task(self._close())

    async def _close(self) -> None:
        adapters, rows, redis = self._adapters, self._rows, self._redis
        self._adapters, self._rows, self._redis = {}, [], None
        for _, adapter in adapters.values():
            await adapter.close()
        for kept in rows:
            await kept.close()
        if redis is not None:
            await redis.aclose()


def _is_clean(rows: Any) -> bool:
    """Whether it is open and nothing has arrived since its last answer, neither its end nor an error."""
    if rows.closed:
        return False
    poll = select.poll()
    poll.register(rows.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


# For a sender's own connections, whose statements all find rows by key. Ops is filled faster than it is analysed, and a
# planner without statistics read and sorted the rest of the job at each claim, or merged all of it with a few answers.
BY_KEY = """SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off;
SET enable_mergejoin = off; SET jit = off"""


async def connect() -> Any:
    """A connection of an event loop, each statement its own transaction."""
    options = connection.get_connection_params()
    for ours in ("cursor_factory", "context", "client_encoding", "prepare_threshold"):
        options.pop(ours, None)
    made = await psycopg.AsyncConnection.connect(**options, autocommit=True, prepare_threshold=1)
    set_json_loads(orjson.loads, made)  # intake wrote them with it
    await made.execute(BY_KEY)
    await made.execute(f"SELECT {guard.NOTED}", {"tables": guard.tables()})
    made.prepared_max = 20
    return made


NOTICED = 1.0
"""Seconds after which a caller wakes by itself. A signal that arrives between Python's check for signals and the wait
for a lock does not end that wait: without this, a time limit or a shutdown would be noticed when the coroutine ends."""


class LoopThread:
    """Runs coroutines for one caller that blocks. Made after a fork, never before: a thread does not survive it."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._live, args=(started,), name="sender", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns or raises what the coroutine does. If interrupted, cancels the coroutine and waits for its end."""
        tasks: list[asyncio.Task[T]] = []
        ended: SimpleQueue[object] = SimpleQueue()  # written in C: an exception out of a signal cannot leave it locked

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(ended.put)

        def cut_off() -> None:
            if not tasks:  # interrupted before it was handed over
                begin()
            tasks[0].cancel()

        try:
            self._loop.call_soon_threadsafe(begin)
            _wait(tasks, ended)
        except BaseException:
            self._loop.call_soon_threadsafe(cut_off)  # after `begin`, perhaps before the coroutine's first step
            _wait(tasks, ended)
            raise
        return tasks[0].result()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Starts a coroutine, which reports its result by itself."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Ends the loop; everything that was opened in it must be closed before."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _live(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            started.set_result(runner.get_loop())
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._over.wait()


def _wait(tasks: list[asyncio.Task[T]], ended: SimpleQueue[object]) -> None:
    while not (tasks and tasks[0].done()):
        with suppress(Empty):
            ended.get(timeout=NOTICED)
