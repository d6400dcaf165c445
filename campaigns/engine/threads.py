"""Threads of a process shared by blocking callers: its event loop, and a few threads for Django's queries."""

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, ContextVar
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import uvloop
from django.db import DatabaseError, connection, models
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from psycopg.errors import LockNotAvailable

from campaigns.engine.lifecycle import tells_locked
from vendors.not_now import is_not_now

T = TypeVar("T")

AGAIN = 5.0  # seconds given to a cancelled task for its cleanup before it is cancelled again
NOTICED = 1.0
"""Seconds after which a caller wakes by itself. A signal that arrives between Python's check for signals and the wait
for a lock does not end that wait; a time limit or a shutdown would be noticed when the coroutine ends."""
LOCKED_SECONDS = 0.2  # seconds between attempts to lock a row; each attempt waits LOCKED_BRIEFLY
REFUSED = 0.0  # a `close_at` in the past, so that Django stops using the session
BLOCKING = 3  # connections of a process to the database, besides those of its streams
# Lock timeout of Django's statements, on connections opened in this context.
locked_most: ContextVar[str] = ContextVar("locked_most", default="")
# Otherwise PostgreSQL plans each statement anew, which costs a child much of its time.
PREPARED = {"server_side_binding": True, "prepare_threshold": 3}
# A plan made for a small table is kept until the table is analysed, which may be a minute after a million rows arrived.
BY_INDEX = "SET enable_seqscan = off"


def columns_of(model: type[models.Model], alias: str) -> str:
    """Return the columns by name: a prepared statement with * fails once a migration has added a column."""
    return ", ".join(f"{alias}.{field.column}" for field in model._meta.concrete_fields)


class LoopThread:
    """Runs coroutines for callers that block. Create it after a fork, because a thread does not survive one."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="sender", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return or raise the result of the coroutine. If interrupted, cancel the coroutine and wait for its end."""
        tasks: list[asyncio.Task[Any]] = []
        ended: SimpleQueue[object] = SimpleQueue()  # written in C: an exception from a signal cannot leave it locked

        def begin_task() -> None:
            # Tasks that streams share must not inherit the ids of the one that began them (vendors/log_ids.py).
            tasks.append(self._loop.create_task(coroutine, context=Context()))
            tasks[0].add_done_callback(ended.put)

        def interrupt_task() -> None:
            if not tasks:  # interrupted before it was handed over
                begin_task()
            tasks.append(self._loop.create_task(cut_off(tasks[0])))  # kept, or it might be garbage-collected

        try:
            self._loop.call_soon_threadsafe(begin_task)
            _wait_for_tasks(tasks, ended)
        except BaseException:
            self._loop.call_soon_threadsafe(
                interrupt_task
            )  # after `begin_task`, perhaps before the coroutine's first step
            _wait_for_tasks(tasks, ended)
            raise
        result: T = tasks[0].result()
        return result

    def start_coroutine(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine that reports its own result."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """End the loop. Everything opened in it must be closed before."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run_loop(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.get_loop().set_exception_handler(_log_error)
            started.set_result(runner.get_loop())
            runner.run(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        await self._over.wait()


def _log_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors that nobody awaits, except a failed DNS look-up for an abandoned connection.

    uvloop continues such look-ups, and would log an error for each of those connections.
    """
    if not ("future" in context and isinstance(context.get("exception"), socket.gaierror)):
        loop.default_exception_handler(context)


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, for this many seconds at most. Returns True if it happened."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


def cut_off(*tasks: asyncio.Task[Any]) -> Coroutine[Any, Any, None]:
    """Cancel the tasks immediately, then wait until they have ended in any way.

    The cancellation is repeated, because a task can miss it. asyncio.wait_for of Python 3.11 drops a cancellation that
    arrives just as its awaitable ends, and a client or a third-party adapter may use it.
    """
    for task in tasks:
        task.cancel()
    return _end_tasks(set(tasks))


async def _end_tasks(tasks: set[asyncio.Task[Any]]) -> None:
    while tasks:
        _, tasks = await asyncio.wait(tasks, timeout=AGAIN)
        for task in tasks:
            task.cancel()


def _wait_for_tasks(tasks: list[asyncio.Task[Any]], ended: SimpleQueue[object]) -> None:
    while not (tasks and tasks[0].done()):
        with suppress(Empty):
            ended.get(timeout=NOTICED if threading.current_thread() is threading.main_thread() else None)


@receiver(connection_created)
def _set_up(connection: Any, **_: Any) -> None:
    if _close_where_refused not in connection.execute_wrappers:
        connection.execute_wrappers.append(_close_where_refused)
    with connection.cursor() as cursor:
        if most := locked_most.get():
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [most])
        if connection.settings_dict["OPTIONS"].items() >= PREPARED.items():
            cursor.execute(BY_INDEX)


def _close_where_refused(execute: Callable[..., T], sql: str, params: Any, many: bool, context: Any) -> T:
    """Let Django close a refused session (`is_not_now`) once nothing is under way: it may stay read-only forever.

    Django itself forgets the error at the rollback.
    """
    try:
        return execute(sql, params, many, context)
    except DatabaseError as error:
        if is_not_now(error):
            context["connection"].close_at = REFUSED
        raise


class DatabaseThreads:
    """Threads for Django's blocking queries: a few connections serve any number of callers in turn.

    most: lock timeout of a statement in PostgreSQL's notation; empty: none.
    """

    def __init__(self, most: str = "") -> None:
        self._threads = ThreadPoolExecutor(BLOCKING, "database", initializer=_begin_thread, initargs=(most,))
        self._line = threading.Lock()

    def run_function(self, function: Callable[..., T], *args: Any, over: Callable[[], bool] = lambda: True) -> T:
        """Return or raise the function's result. The function must not wait for another one that runs here.

        If it meets a lock, it is retried until `over` returns True; then LockNotAvailable is raised. Only one retry at
        a time has a thread, so any number of them leaves the others free.
        """
        try:
            return self._run_once(function, args)
        except LockNotAvailable as error:
            locked = error
        while not over():
            time.sleep(LOCKED_SECONDS)
            with self._line, suppress(LockNotAvailable):
                if not over():
                    return self._run_once(function, args)
        raise locked

    def close(self) -> None:
        together = threading.Barrier(BLOCKING)
        for _ in range(BLOCKING):
            self._threads.submit(_close_together, together)
        self._threads.shutdown()

    def _run_once(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        return self._threads.submit(_call_with_connection, function, args).result()


def _begin_thread(most: str) -> None:
    locked_most.set(most)
    ours = connection.settings_dict  # of this thread only: its connection is not open yet
    connection.settings_dict = {**ours, "OPTIONS": {**ours["OPTIONS"], **PREPARED}}


def _close_together(barrier: threading.Barrier) -> None:
    """Close this thread's connection once all threads are here."""
    barrier.wait()
    connection.close()


def _call_with_connection(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    drop_lost_connection()
    with tells_locked():
        return function(*args)


def drop_lost_connection(**_: Any) -> None:
    """Close Django's connection of this thread if it failed or the server ended it; the next query opens a new one."""
    if connection.connection is None:
        return
    if connection.errors_occurred or connection.close_at == REFUSED or not is_clean(connection.connection):
        connection.close()


def is_clean(rows: Any) -> bool:
    """Tell if the connection is open and nothing unread has arrived on it, neither its end nor an error."""
    if rows.closed:
        return False
    poll = select.poll()
    poll.register(rows.pgconn.socket, select.POLLIN)
    return not poll.poll(0)
