"""Statements of pages that many people look at: planned once a connection, or written once a process.

PostgreSQL has to keep its sessions for this (docs/explanation/capacity.md).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import QuerySet


class _PreparingCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        usual = self.connection.prepare_threshold  # None with Django: its own cursors cannot prepare
        self.connection.prepare_threshold = 0
        try:
            return super().execute(query, params, prepare=True)
        finally:
            self.connection.prepare_threshold = usual


def rows(statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """All rows of a statement, by Django's connection of this thread; parsed and planned once. Errors are Django's.

    For long statements whose best plan is the same for all values. A plan for all values uses no partial index whose
    condition is among them, and expects ten elements of each array.
    """
    connection.ensure_connection()
    with _wrapped(_PreparingCursor(connection.connection)) as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())


def _wrapped(cursor: Any) -> CursorWrapper:
    """As Django wraps its own: errors are its own, and statements are counted where it counts them."""
    return connection.make_debug_cursor(cursor) if connection.queries_logged else connection.make_cursor(cursor)


class ByKey:
    """The values of a queryset for rows of given keys. Django writes its statement once in a process.

    build: makes the queryset, without a condition and without an order.
    """

    def __init__(self, build: Callable[[], QuerySet[Any, Any]]) -> None:
        self._build = build

    @cached_property
    def _statement(self) -> tuple[str, tuple[Any, ...]]:
        found = self._build()
        statement, params = found.query.get_compiler(connection=connection).as_sql()
        key: Any = found.model._meta.pk
        named = f"{connection.ops.quote_name(found.model._meta.db_table)}.{connection.ops.quote_name(key.column)}"
        return f"{statement} WHERE {named} = ANY(%s)", tuple(params)

    def of(self, keys: Iterable[int]) -> list[tuple[Any, ...]]:
        statement, params = self._statement
        with connection.cursor() as cursor:
            cursor.execute(statement, [*params, list(keys)])
            return list(cursor.fetchall())
