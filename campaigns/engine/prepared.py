"""Statements of busy pages: planned once for each connection, or compiled once for each process.

This needs PostgreSQL sessions that last (docs/explanation/capacity.md).
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Model, QuerySet
from django.db.models.query import ModelIterable
from django.db.models.sql.compiler import SQLCompiler

KeyedRow = TypeVar("KeyedRow", bound=Model)

_GENERIC = "SET plan_cache_mode = force_generic_plan"
_generic = WeakSet[Any]()  # connections whose prepared statements are planned once


class _PreparingCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        usual = self.connection.prepare_threshold  # None with Django: its cursors cannot prepare
        self.connection.prepare_threshold = 0
        try:
            return super().execute(query, params, prepare=True)
        finally:
            self.connection.prepare_threshold = usual


def fetch_prepared(statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement on Django's connection of this thread and return all rows. It is parsed and planned once.

    For long statements with one best plan for all values. Such a generic plan uses no partial index whose condition
    depends on a parameter, and expects ten elements in each array. Errors are Django's.
    """
    connection.ensure_connection()
    session = connection.connection
    if session not in _generic:
        # PostgreSQL would plan long statements anew each time if it expects more of such a plan, and planning them
        # takes longer than running them. A rollback takes this back, which costs time only.
        with connection.wrap_database_errors:
            session.execute(_GENERIC)
        _generic.add(session)
    with _wrap_cursor(_PreparingCursor(session)) as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())


def _wrap_cursor(cursor: Any) -> CursorWrapper:
    """Wrap a cursor like Django's own: errors become Django's, and queries are counted where Django counts them."""
    return connection.make_debug_cursor(cursor) if connection.queries_logged else connection.make_cursor(cursor)


class ByKey:
    """The values of a queryset for rows with given keys. Django compiles its statement once in a process.

    build: returns the queryset, without condition or order.
    """

    def __init__(self, build: Callable[[], QuerySet[Any, Any]]) -> None:
        self._build = build

    @cached_property
    def _build_statement(self) -> tuple[str, tuple[Any, ...]]:
        found = self._build()
        statement, params = found.query.get_compiler(connection=connection).as_sql()
        key: Any = found.model._meta.pk
        named = f"{connection.ops.quote_name(found.model._meta.db_table)}.{connection.ops.quote_name(key.column)}"
        return f"{statement} WHERE {named} = ANY(%s)", tuple(params)

    def of(self, keys: Iterable[int]) -> list[tuple[Any, ...]]:
        statement, params = self._build_statement
        with connection.cursor() as cursor:
            cursor.execute(statement, [*params, list(keys)])
            return list(cursor.fetchall())


class RowsByKey(Generic[KeyedRow]):
    """The rows of a queryset with given keys, and their related rows. Django compiles its statement once in a process.

    Compiling a statement with several related tables takes longer than running it. build: returns the queryset, without
    slice or groups. column: of its table. The rows come in no order.
    """

    def __init__(self, build: Callable[[], QuerySet[KeyedRow]], column: str = "id") -> None:
        self._build, self._column = build, column

    @cached_property
    def _compile_query(self) -> tuple[SQLCompiler, str, tuple[Any, ...]]:
        query = self._build().order_by().query
        compiler = query.get_compiler(connection=connection)
        statement, params = compiler.as_sql()
        named = f"{connection.ops.quote_name(query.get_meta().db_table)}.{connection.ops.quote_name(self._column)}"
        return compiler, f"{statement} {'AND' if query.where else 'WHERE'} {named} = ANY(%s)", tuple(params)

    def of(self, keys: Iterable[int]) -> list[KeyedRow]:
        known, statement, params = self._compile_query
        compiler: Any = copy(known)  # it remembers the columns, from which Django makes the rows
        compiler.connection, compiler.as_sql = connection, lambda: (statement, (*params, list(keys)))
        query = SimpleNamespace(get_compiler=lambda using: compiler)
        found: Any = SimpleNamespace(db=connection.alias, query=query, _known_related_objects={})
        return list(ModelIterable(found))
