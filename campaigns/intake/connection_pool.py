"""Lines to the database that belong to no thread: who stores takes the one that was used last, and gives it back.

A server has dozens of threads, and only one or two of them store at a time. Over a connection of each thread's own the
same statement costs nearly half as much again: the database's process behind it has to find everything anew.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus


class ConnectionPool:
    def __init__(self) -> None:
        self._free: list[BaseDatabaseWrapper] = []
        os.register_at_fork(after_in_child=self._forget)

    @contextlib.contextmanager
    def one(self) -> Iterator[Any]:
        """A psycopg connection in autocommit; within a transaction it is the transaction's own."""
        if connection.in_atomic_block:
            yield connection.connection
            return
        line = self._take()
        try:
            line.ensure_connection()
            yield line.connection
        finally:
            self._give_back(line)

    def close(self) -> None:
        """Those that nobody uses."""
        while self._free:
            self._take().close()

    def _take(self) -> BaseDatabaseWrapper:
        try:
            return self._free.pop()
        except IndexError:
            line = connection.copy()
            line.inc_thread_sharing()
            return line

    def _give_back(self, line: BaseDatabaseWrapper) -> None:
        """Only if it is as it was."""
        if line.connection is not None and line.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._free.append(line)
        else:
            line.close()

    def _forget(self) -> None:
        self._free = []


connection_pool = ConnectionPool()
