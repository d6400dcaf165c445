"""The tables as `migrate` left them, after each test that commits its rows.

Django empties all tables then and emits `post_migrate`, which makes content types, permissions, groups and beat's rows
anew: 120 ms of processor time after each of hundreds of tests. Here these rows are kept in a schema of their own, and
only tables that are not as they were are emptied and filled again.

TRUNCATE makes new files for each table, each of its indexes and each table that refers to it, and every process forgets
what it knew of them: 50 ms for ten rows in ten tables. So rows are deleted, as long as plans cannot tell.
"""

from collections.abc import Iterable
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import DeadlockDetected

KEPT = "kept"
REFERENCES = """
SELECT DISTINCT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND connamespace = 'public'::regnamespace
"""
# Without statistics PostgreSQL plans as if a table had ten pages where it has fewer: no page, or one in which all rows
# are deleted. With more pages than at first and these, or with new statistics, a table is worn: it gets a new file.
FEW = 8 * 8192  # bytes
STATE = "SELECT relname, pg_relation_size(oid), reltuples >= 0 FROM pg_class WHERE oid = ANY(%s::regclass[])"
CHANGED = """SELECT '{table}' WHERE EXISTS (
    (TABLE {table} EXCEPT ALL TABLE {kept}.{table}) UNION ALL (TABLE {kept}.{table} EXCEPT ALL TABLE {table}))"""


class Emptying:
    """Of the database that the connection has now; its rows are those to come back to."""

    def __init__(self) -> None:
        tables = sorted(connection.introspection.django_table_names(only_existing=True, include_views=False))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {KEPT}")
            cursor.execute(" UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (TABLE {table})" for table in tables))
            self._filled = [table for (table,) in cursor.fetchall()]
            for table in self._filled:
                cursor.execute(f"CREATE TABLE {KEPT}.{table} AS TABLE {table}")
            cursor.execute(REFERENCES)
            self._references = cursor.fetchall()
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            self._skips_triggers = cursor.fetchone() == (True,)
            cursor.execute(STATE, [tables])
            self._most = {table: size + FEW for table, size, _ in cursor.fetchall()}
        self._look = " UNION ALL ".join(CHANGED.format(table=table, kept=KEPT) for table in self._filled)

    def put_back(self) -> None:
        """The rows are again those that were kept, and no others. Numbers go on: none is given twice.

        Whoever still writes locks tables in an order of his own; PostgreSQL may end either of the two.
        """
        while True:
            try:
                return self._put_back_once()
            except OperationalError as error:
                if not isinstance(error.__cause__, DeadlockDetected):
                    raise

    def _put_back_once(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(STATE, [list(self._most)])
            state = [(table, size, known and table not in self._filled) for table, size, known in cursor.fetchall()]
            worn = {table for table, size, known in state if known or size > self._most[table]}
            grew = {table for table, size, _ in state if size and table not in self._filled}  # or rows to be committed
            cursor.execute(self._look)
            tables = self._with_those_that_refer(worn | grew | {table for (table,) in cursor.fetchall()})
            if tables and (worn or not self._skips_triggers):
                cursor.execute(f"TRUNCATE {', '.join(sorted(tables))}")
            elif tables:
                self._delete(cursor, sorted(tables))
            for table in tables.intersection(self._filled):
                cursor.execute(f"INSERT INTO {table} TABLE {KEPT}.{table}")

    @staticmethod
    def _delete(cursor: Any, tables: list[str]) -> None:
        """Waits for whoever still writes, as TRUNCATE does. All rows go: references need not be asked about."""
        cursor.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        rows = "".join(f"DELETE FROM {table}; " for table in tables)
        cursor.execute(
            f"SET LOCAL session_replication_role = replica; {rows} SET LOCAL session_replication_role = origin"
        )

    def _with_those_that_refer(self, tables: Iterable[str]) -> set[str]:
        """PostgreSQL empties no table while another one refers to it."""
        found: set[str] = set()
        more = set(tables)
        while more - found:
            found |= more
            more = {table for table, other in self._references if other in found}
        return found


def forget_keys() -> None:
    """A process trusts for a second the keys that it has read; rows that are put back may have other ones."""
    from campaigns.doors import token_keys  # when Django knows its models
    from campaigns.engine.suppressed import digests

    token_keys.known.forget_value()
    digests.known.forget_value()
