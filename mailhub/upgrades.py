"""The effect of each migration on running mail, and the tables of each release.

A migration declares `additive`. True: programs of the version before work beside it, so nothing stands still. A release
whose programs cannot work beside those before it, as one that changes keys in Redis, has a migration with `additive =
False`, if need be an empty one. `no_way_back` gives the reason if a migration cannot be undone. Older migrations
declare nothing; they stop calls (docs/how-to/upgrade.md).
"""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from math import ceil
from typing import NamedTuple

from django.db import connection
from django.db.migrations import Migration

from campaigns.engine.failover import guard

# The newest migrations of each release, by app: where `migrate --back-to` ends, and what the next one adds to.
RELEASES: dict[str, dict[str, str]] = {
    "0.3.0": {
        "campaigns": "0082_class_of_jobs",
        "mailhub": "0007_stored_moments",
        "vendors": "0035_floor",
        "waiter": "0002_revocations",
    },
}
# Rows that a statement reads or an index takes in a second, at least, on a machine of two processors.
ROWS_PER_SECOND = 100_000
NAME = re.compile(rf"\b(?:{'|'.join(guard.OURS)})_[a-z_]+\b")
# Partitions hold the rows of a partitioned table; of any other pg_partition_tree knows nothing.
ROWS = """
SELECT t.name, sum(greatest(c.reltuples, 0))::bigint
FROM (SELECT name, to_regclass(name) AS oid FROM unnest(%s::text[]) name) t
    JOIN pg_class k ON k.oid = t.oid AND k.relkind IN ('r', 'p')
    CROSS JOIN LATERAL (SELECT t.oid UNION SELECT relid FROM pg_partition_tree(t.oid)) p(relid)
    JOIN pg_class c ON c.oid = p.relid
WHERE c.relkind = 'r'
GROUP BY 1 ORDER BY 1
"""


class MigrationEffect(NamedTuple):
    """A migration to apply or undo. rows: estimates by table; seconds: length of the calls' standstill."""

    name: str
    is_additive: bool
    is_declared: bool
    rows: dict[str, int]
    no_way_back: str

    @property
    def expected_seconds(self) -> int:
        return 0 if self.is_additive else max(1, ceil(sum(self.rows.values()) / ROWS_PER_SECOND))

    def __str__(self) -> str:
        concerned = ", ".join(f"{table} ({rows:,} rows)" for table, rows in self.rows.items() if rows)
        what = "additive, mail goes on" if self.is_additive else f"calls stop for about {self.expected_seconds:,} s"
        return f"{self.name}: {what}{'; ' if concerned else ''}{concerned}"


def find_effects(migrations: Iterable[Migration]) -> list[MigrationEffect]:
    """Return the effects of these migrations. PostgreSQL estimates the rows of the tables they name."""
    found = list(migrations)
    rows = _count_rows({table for one in found for table in _tables_of(one)})
    return [
        MigrationEffect(
            f"{one.app_label}.{one.name}",
            bool(getattr(one, "additive", False)),
            hasattr(one, "additive"),
            {table: rows[table] for table in sorted(_tables_of(one)) if table in rows},
            find_no_way_back(one),
        )
        for one in found
    ]


def find_no_way_back(migration: Migration) -> str:
    """Return the reason if the migration cannot be undone, or empty."""
    said = str(getattr(migration, "no_way_back", ""))
    return said or ("" if all(one.reversible for one in migration.operations) else "an operation has no reverse")


def _tables_of(migration: Migration) -> set[str]:
    """Return the tables that the migration's text or its models name; some may be functions or indexes."""
    models = (getattr(one, "model_name", None) or getattr(one, "name", "") for one in migration.operations)
    named = set(NAME.findall(inspect.getsource(sys.modules[migration.__module__])))
    return named | {f"{migration.app_label}_{model.lower()}" for model in models if model}


def _count_rows(tables: set[str]) -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(ROWS, [sorted(tables)])
        return dict(cursor.fetchall())


def describe_effects(effects: list[MigrationEffect]) -> Iterator[str]:
    """Describe each migration, and what stands still for how long."""
    old = [one for one in effects if not one.is_declared]
    if old:
        last = f"{len(old)} migrations up to {old[-1].name}" if len(old) > 1 else old[0].name
        yield f"{last}: not declared additive, calls stop for about {sum(one.expected_seconds for one in old):,} s"
    yield from (str(one) for one in effects if one.is_declared)
    if stopped := sum(one.expected_seconds for one in effects):
        yield (
            f"Calls stand still until the open ones have ended, and then for about {stopped:,} s; "
            "programs' work is accepted meanwhile. Then restart all processes"
        )
    elif effects:
        yield "Nothing stands still. Processes of the version before go on until you restart them"
