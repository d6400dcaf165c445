from typing import Any

from django.db import migrations, models
from django.db.models.functions import Lower

INDEX = models.Index(models.Func(Lower("recipient"), 0, function="hashtextextended"), name="message_recipient")
INDEXES = {
    "recipient": "(hashtextextended(lower(recipient), 0))",
    "failed": "(id) INCLUDE (error_code, error_sub_type) WHERE error_code IS NOT NULL",
}
# Of the table, or of its partitions (docs/partitioning.md).
TABLES = """
SELECT c.relname FROM pg_class c WHERE c.oid = 'campaigns_message'::regclass AND c.relkind = 'r'
UNION ALL SELECT p.inhrelid::regclass::text FROM pg_inherits p WHERE p.inhparent = 'campaigns_message'::regclass
"""


def build(apps: Any, editor: Any) -> None:
    """Nothing waits for them: millions of rows are read while requests are stored. What an attempt left is removed."""
    with editor.connection.cursor() as cursor:
        cursor.execute(TABLES)
        tables = [table for (table,) in cursor.fetchall()]
        for what, on in INDEXES.items():
            for table in tables:
                name = f"message_{what}" if table == "campaigns_message" else f"{table}_{what}"
                cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
                cursor.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} {on}")
            if tables != ["campaigns_message"]:
                cursor.execute(f"CREATE INDEX IF NOT EXISTS message_{what} ON campaigns_message {on}")  # adopts those


def remove(apps: Any, editor: Any) -> None:
    for what in INDEXES:
        editor.execute(f"DROP INDEX IF EXISTS message_{what}")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("campaigns", "0033_drafts")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunPython(build, remove)],
            [migrations.AddIndex("message", INDEX)],
        )
    ]
