"""Compares all rows of the database before and after, and counts what a transaction has written.

A request that may change nothing must pass both checks: its transaction wrote no row, and no earlier row is gone.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from django.apps import apps
from django.db import connection, transaction

T = TypeVar("T")
Rows = Counter[tuple[str, str]]  # of (table, digest of a row)
# Sessions, the history, and the record of migrations: pages write there for any user.
UNWATCHED = frozenset({"django_session", "django_admin_log", "django_migrations"})
# The newest suppression's position. It tells all senders of a channel about a new one, of any sponsor.
SHARED = {"vendors_vendor": "suppressions"}
WRITTEN = """
SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_xact_user_tables
WHERE NOT relname = ANY(%s)
"""


def digest_rows() -> Rows:
    """Return how often each (table, digest of a row) is there, of all tables with those between many and many."""
    models = apps.get_models(include_auto_created=True)
    tables = sorted({one._meta.db_table for one in models} - UNWATCHED)
    texts = {one: f"(to_jsonb(t) - '{column}')::text" for one, column in SHARED.items()}
    parts = [f"SELECT '{one}', md5({texts.get(one, 't::text')}) FROM {one} t" for one in tables]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts))
        return Counter(cursor.fetchall())


def find_lost(before: Rows) -> list[str]:
    """Return the tables with a changed or missing row. New rows are allowed."""
    return sorted({table for table, _digest in before - digest_rows()})


def rows_of(sponsors: list[int]) -> dict[str, set[Any]]:
    """Return these sponsors' rows, by table."""
    kinds: list[Any] = [one for one in apps.get_models() if hasattr(one._default_manager, "of_sponsors")]
    return {one._meta.db_table: set(one.objects.of_sponsors(sponsors).values_list("pk", flat=True)) for one in kinds}


def count_written() -> int:
    """Return the number of rows that this transaction has written so far, undone ones included."""
    with connection.cursor() as cursor:
        cursor.execute(WRITTEN, [sorted(UNWATCHED)])
        return int(cursor.fetchone()[0])


def undo(step: Callable[[], T]) -> tuple[T, int]:
    """Take a step and undo it. Returns its result, and how many rows it had written."""
    before = count_written()
    with transaction.atomic():
        result: Any = step()
        transaction.set_rollback(True)
    return result, count_written() - before
