"""The tables as `migrate` left them, after each test that commits its rows.

Django empties all tables then and emits `post_migrate`, which makes content types, permissions, groups and beat's rows
anew: 120 ms of processor time after each of hundreds of tests. Here these rows are kept in a schema of their own, and
only tables that are not as they were are emptied and filled again.
"""

from collections.abc import Iterable

from django.db import connection, transaction

KEPT = "kept"
REFERENCES = """
SELECT DISTINCT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND connamespace = 'public'::regnamespace
"""
# TRUNCATE leaves a file of no length. One that grew again is emptied even if its rows are gone: a plan counts pages.
GREW = "SELECT '{table}' WHERE pg_relation_size('{table}') > 0"
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
        looks = [GREW.format(table=table) for table in tables if table not in self._filled]
        looks += [CHANGED.format(table=table, kept=KEPT) for table in self._filled]
        self._look = " UNION ALL ".join(looks)

    def put_back(self) -> None:
        """The rows are again those that were kept, and no others. Numbers go on: none is given twice."""
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(self._look)
            tables = self._with_those_that_refer([table for (table,) in cursor.fetchall()])
            if tables:
                cursor.execute(f"TRUNCATE {', '.join(sorted(tables))}")
            for table in tables.intersection(self._filled):
                cursor.execute(f"INSERT INTO {table} TABLE {KEPT}.{table}")

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
    from campaigns import token_keys  # when Django knows its models
    from campaigns.suppression import digests

    token_keys.known.forget()
    digests.known.forget()
