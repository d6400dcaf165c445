"""Long statements that are read often: parsed and planned once a connection, and not each time.

Django's cursors put values into the text, so that nothing is prepared; of a statement with ten joins, planning takes
longer than reading its few rows. PostgreSQL has to keep its sessions for this (docs/explanation/capacity.md).
"""

from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper


class _PreparingCursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **_: Any) -> Any:
        return super().execute(query, params, prepare=True)


def rows(statement: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """All rows of this statement, by Django's connection of this thread; errors are Django's.

    Parameters are bound by the server, so a type that it cannot see from their place needs a cast: %(ids)s::bigint[].
    """
    connection.ensure_connection()
    with CursorWrapper(_PreparingCursor(connection.connection), connection) as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())
