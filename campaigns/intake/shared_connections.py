"""Database connections that belong to no thread, for what many threads of a server store.

A server has dozens of threads, of which one or two store at a time; with a connection for each thread the same
statement costs nearly half as much again, because the PostgreSQL process behind it has nothing in its caches.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from vendors.not_now import is_not_now


class ConnectionPool:
    """Database connections that are shared by threads; the one used last is taken first."""

    def __init__(self) -> None:
        self._free: list[BaseDatabaseWrapper] = []
        os.register_at_fork(after_in_child=self._forget)

    @contextlib.contextmanager
    def one(self) -> Iterator[Any]:
        """A psycopg connection in autocommit; within a transaction the connection of that transaction."""
        if connection.in_atomic_block:
            yield connection.connection
            return
        pooled = self._take()
        try:
            pooled.ensure_connection()
            yield pooled.connection
        except BaseException as error:
            if is_not_now(error):  # a session that is read-only may stay so
                pooled.close()
            raise
        finally:
            self._give_back(pooled)

    def close(self) -> None:
        """Closes the connections that are not in use."""
        while self._free:
            self._take().close()

    def _take(self) -> BaseDatabaseWrapper:
        try:
            return self._free.pop()
        except IndexError:
            pooled = connection.copy()
            pooled.inc_thread_sharing()
            return pooled

    def _give_back(self, pooled: BaseDatabaseWrapper) -> None:
        """Keeps the connection only if it is not in a transaction."""
        if pooled.connection is not None and pooled.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._free.append(pooled)
        else:
            pooled.close()

    def _forget(self) -> None:
        self._free = []


connection_pool = ConnectionPool()
