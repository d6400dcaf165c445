"""Database connections that many threads of a server share for storing.

Among dozens of threads one or two store at a time. With a connection for each, a statement would cost half as much
again, because the caches of its PostgreSQL process would be cold.
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
    """Database connections shared by threads; the last one used is taken first."""

    def __init__(self) -> None:
        self._free: list[BaseDatabaseWrapper] = []
        os.register_at_fork(after_in_child=self._forget_free)

    @contextlib.contextmanager
    def lend_one(self) -> Iterator[Any]:
        """Yield a psycopg connection in autocommit; within a transaction, the connection of that transaction."""
        if connection.in_atomic_block:
            yield connection.connection
            return
        pooled = self._take_or_copy()
        try:
            pooled.ensure_connection()
            yield pooled.connection
        except BaseException as error:
            if is_not_now(error):  # a read-only session may stay read-only
                pooled.close()
            raise
        finally:
            self._give_back_clean(pooled)

    def close(self) -> None:
        """Close the idle connections."""
        while self._free:
            self._take_or_copy().close()

    def _take_or_copy(self) -> BaseDatabaseWrapper:
        try:
            return self._free.pop()
        except IndexError:
            pooled = connection.copy()
            pooled.inc_thread_sharing()
            return pooled

    def _give_back_clean(self, pooled: BaseDatabaseWrapper) -> None:
        """Keep the connection unless it is in a transaction; then close it."""
        if pooled.connection is not None and pooled.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._free.append(pooled)
        else:
            pooled.close()

    def _forget_free(self) -> None:
        self._free = []


connection_pool = ConnectionPool()
