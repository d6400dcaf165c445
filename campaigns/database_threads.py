"""Threads of a process in which Django's queries run for many callers, and what holds for their connections."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from django.db import connection
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from psycopg.errors import LockNotAvailable

from campaigns.connections import LOCKED_SECONDS, is_clean
from campaigns.lifecycle import tells_locked
from campaigns.loop_thread import T

BLOCKING = 3  # connections to the database of a process, beside those of its streams
# So long a statement of Django's waits for a lock, on connections that are opened in this context.
locked_most: ContextVar[str] = ContextVar("locked_most", default="")
# Else PostgreSQL plans each statement anew, which was a third of what a child cost it.
PREPARED = {"server_side_binding": True, "prepare_threshold": 3}
# A plan that was made while a table was small is kept until it is analysed, a minute or more after a million rows came.
BY_INDEX = "SET enable_seqscan = off"


@receiver(connection_created)
def _set_up(connection: Any, **_: Any) -> None:
    with connection.cursor() as cursor:
        if most := locked_most.get():
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [most])
        if connection.settings_dict["OPTIONS"].items() >= PREPARED.items():
            cursor.execute(BY_INDEX)


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
    if connection.connection is not None and (connection.errors_occurred or not is_clean(connection.connection)):
        connection.close()
