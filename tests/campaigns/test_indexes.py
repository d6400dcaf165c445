"""Every index of ours is needed: none holds what another one of its table holds."""

import pytest
from django.apps import apps
from django.db import connection

from campaigns.engine.failover.guard import OURS

pytestmark = pytest.mark.django_db

# An index that is no constraint, and another one of the same table and the same rows that starts with its columns.
DOUBLED = """
WITH found AS (
    SELECT x.indrelid::regclass::text AS "table", x.indexrelid::regclass::text AS name, x.indisunique AS holds,
        x.indkey::int2[] AS columns, x.indclass::oid[] AS classes, x.indnkeyatts::int AS keys,
        coalesce(pg_get_expr(x.indpred, x.indrelid), '') AS rows,
        coalesce(pg_get_expr(x.indexprs, x.indrelid), '') AS made
    FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid AND c.relnamespace = 'public'::regnamespace
)
SELECT a.name, b.name FROM found a JOIN found b ON b."table" = a."table" AND b.name <> a.name AND b.rows = a.rows
WHERE a."table" = ANY(%s) AND NOT a.holds AND a.made = b.made
    AND cardinality(a.columns) <= cardinality(b.columns) AND a.keys <= b.keys
    AND a.columns[0:cardinality(a.columns) - 1] = b.columns[0:cardinality(a.columns) - 1]
    AND a.classes[0:a.keys - 1] = b.classes[0:a.keys - 1]
"""


def doubled() -> list[tuple[str, str]]:
    """An index that could go, and which one has all that it has. Of a many-to-many's own table Django decides."""
    ours = [model._meta.db_table for app in OURS for model in apps.get_app_config(app).get_models()]
    with connection.cursor() as cursor:
        cursor.execute(DOUBLED, [ours])
        return cursor.fetchall()


def test_no_index_starts_with_all_columns_of_another_one_of_the_same_rows() -> None:
    assert doubled() == []


@pytest.mark.parametrize(
    ("statement", "other"),
    [
        ("CREATE INDEX planted ON campaigns_job (parent_id)", "campaigns_job_parent_id"),
        ("CREATE INDEX planted ON campaigns_webhookcall (webhook_id)", "webhook_event_once"),
        ("CREATE INDEX planted ON vendors_vendor (slug varchar_pattern_ops)", "vendors_vendor_slug"),
    ],
)
def test_a_second_index_on_the_same_columns_would_be_seen(statement: str, other: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)

    assert [pair for pair in doubled() if pair[0] == "planted" and pair[1].startswith(other)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE INDEX planted ON campaigns_job (parent_id) WHERE status = 'SENDING'",
        "CREATE INDEX planted ON campaigns_job (created_at, id) INCLUDE (status) WHERE in_doubt > 0",
        "CREATE INDEX planted ON campaigns_job (parent_id, heartbeat_at DESC)",
        "CREATE UNIQUE INDEX planted ON campaigns_store (id, system)",
        "CREATE INDEX planted ON campaigns_webhookcall (event)",
    ],
)
def test_an_index_for_something_of_its_own_is_none(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)

    assert not [pair for pair in doubled() if pair[0] == "planted"]
