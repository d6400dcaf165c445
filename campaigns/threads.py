"""Threads of a process that callers that block share: its event loop, and a few in which Django's queries run."""

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import uvloop
from django.db import DatabaseError, connection, models
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from psycopg.errors import LockNotAvailable

from campaigns.lifecycle import tells_locked
from vendors.not_now import is_not_now

T = TypeVar("T")

AGAIN = 5.0  # seconds, in which a task that was cancelled has had time for what it does at its end
NOTICED = 1.0
"""Seconds after which a caller wakes by itself. A signal that arrives between Python's check for signals and the wait
for a lock does not end that wait; a time limit or a shutdown would be noticed when the coroutine ends."""
LOCKED_SECONDS = 0.2  # until it is tried again to lock what somebody has locked, for LOCKED_BRIEFLY each time
REFUSED = 0.0  # as the moment from which on Django does not use a session any more
BLOCKING = 3  # connections to the database of a process, beside those of its streams
# So long a statement of Django's waits for a lock, on connections that are opened in this context.
locked_most: ContextVar[str] = ContextVar("locked_most", default="")
# Else PostgreSQL plans each statement anew, which was a third of what a child cost it.
PREPARED = {"server_side_binding": True, "prepare_threshold": 3}
# A plan that was made while a table was small is kept until it is analysed, a minute or more after a million rows came.
BY_INDEX = "SET enable_seqscan = off"


def columns_of(model: type[models.Model], alias: str) -> str:
    """Each by its name: a prepared statement that asks for * fails once a migration has added a column."""
    return ", ".join(f"{alias}.{field.column}" for field in model._meta.concrete_fields)


class LoopThread:
    """Runs coroutines for callers that block. Made after a fork, never before: a thread does not survive it."""

    def __init__(self) -> None:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._live, args=(started,), name="sender", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Returns or raises what the coroutine does. If interrupted, cancels the coroutine and waits for its end."""
        tasks: list[asyncio.Task[Any]] = []
        ended: SimpleQueue[object] = SimpleQueue()  # written in C: an exception out of a signal cannot leave it locked

        def begin() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(ended.put)

        def interrupt() -> None:
            if not tasks:  # interrupted before it was handed over
                begin()
            tasks.append(self._loop.create_task(cut_off(tasks[0])))  # kept, or it might be collected as garbage

        try:
            self._loop.call_soon_threadsafe(begin)
            _wait(tasks, ended)
        except BaseException:
            self._loop.call_soon_threadsafe(interrupt)  # after `begin`, perhaps before the coroutine's first step
            _wait(tasks, ended)
            raise
        result: T = tasks[0].result()
        return result

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Starts a coroutine, which reports its result by itself."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Ends the loop; everything that was opened in it must be closed before."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _live(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.get_loop().set_exception_handler(_log_error)
            started.set_result(runner.get_loop())
            runner.run(self._wait())

    async def _wait(self) -> None:
        await self._over.wait()


def _log_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs errors that nobody waits for, but not that the host of a connection that was given up is not found.

    uvloop goes on looking for it, and would log an error for each such connection.
    """
    if not ("future" in context and isinstance(context.get("exception"), socket.gaierror)):
        loop.default_exception_handler(context)


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Waits until it has happened, or for so long; whether it has."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


def cut_off(*tasks: asyncio.Task[Any]) -> Coroutine[Any, Any, None]:
    """Cancels the tasks at once, and waits until they have ended, however they do.

    A task can miss it: asyncio.wait_for of Python 3.11, which a client or an adapter of others may use, drops a
    cancellation that comes as what it waits for has just ended. So it is repeated.
    """
    for task in tasks:
        task.cancel()
    return _ended(set(tasks))


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    while tasks:
        _, tasks = await asyncio.wait(tasks, timeout=AGAIN)
        for task in tasks:
            task.cancel()


def _wait(tasks: list[asyncio.Task[Any]], ended: SimpleQueue[object]) -> None:
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
    """Let Django close a session that was refused as soon as nothing is under way: it may stay read-only for ever.

    Django forgets the error when the transaction has been rolled back.
    """
    try:
        return execute(sql, params, many, context)
    except DatabaseError as error:
        if is_not_now(error):
            context["connection"].close_at = REFUSED
        raise


class DatabaseThreads:
    """Threads for Django's queries, which block: their few connections serve any number of callers, in turn.

    most: so long a statement waits for a lock; empty: as long as it takes.
    """

    def __init__(self, most: str = "") -> None:
        self._threads = ThreadPoolExecutor(BLOCKING, "database", initializer=_begin_thread, initargs=(most,))
        self._line = threading.Lock()

    def run(self, function: Callable[..., T], *args: Any, over: Callable[[], bool] = lambda: True) -> T:
        """Returns or raises what the function does; it must not wait for another one that runs here.

        If somebody has locked what it needs, it is tried again until it is over, and raises LockNotAvailable then. Of
        all that are tried again only one at a time has a thread: others need not wait, however many they are.
        """
        try:
            return self._once(function, args)
        except LockNotAvailable as error:
            locked = error
        while not over():
            time.sleep(LOCKED_SECONDS)
            with self._line, suppress(LockNotAvailable):
                if not over():
                    return self._once(function, args)
        raise locked

    def close(self) -> None:
        together = threading.Barrier(BLOCKING)
        for _ in range(BLOCKING):
            self._threads.submit(_close_together, together)
        self._threads.shutdown()

    def _once(self, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        return self._threads.submit(_with_connection, function, args).result()


def _begin_thread(most: str) -> None:
    locked_most.set(most)
    ours = connection.settings_dict  # this thread's alone: its connection is not opened yet
    connection.settings_dict = {**ours, "OPTIONS": {**ours["OPTIONS"], **PREPARED}}


def _close_together(barrier: threading.Barrier) -> None:
    """Closes this thread's connection, when all threads do so."""
    barrier.wait()
    connection.close()


def _with_connection(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    drop_lost_connection()
    with tells_locked():
        return function(*args)


def drop_lost_connection(**_: Any) -> None:
    """Closes Django's connection of this thread if it failed or the server has ended it; the next query opens one."""
    if connection.connection is None:
        return
    if connection.errors_occurred or connection.close_at == REFUSED or not is_clean(connection.connection):
        connection.close()


def is_clean(rows: Any) -> bool:
    """Whether it is open and nothing has arrived since its last answer, neither its end nor an error."""
    if rows.closed:
        return False
    poll = select.poll()
    poll.register(rows.pgconn.socket, select.POLLIN)
    return not poll.poll(0)
