from typing import Any

from django.db import migrations, models
from django.db.models.functions import Lower

INDEX = models.Index(models.Func(Lower("recipient"), 0, function="hashtextextended"), name="message_recipient")
ON = "(hashtextextended(lower(recipient), 0))"
# Of the table, or of its partitions (docs/partitioning.md).
TABLES = """
SELECT c.relname FROM pg_class c WHERE c.oid = 'campaigns_message'::regclass AND c.relkind = 'r'
UNION ALL SELECT p.inhrelid::regclass::text FROM pg_inherits p WHERE p.inhparent = 'campaigns_message'::regclass
"""


def build(apps: Any, editor: Any) -> None:
    """Nothing waits for it: millions of rows are read while requests are stored. What an attempt left is removed."""
    with editor.connection.cursor() as cursor:
        cursor.execute(TABLES)
        for (table,) in cursor.fetchall():
            name = "message_recipient" if table == "campaigns_message" else f"{table}_recipient"
            cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            cursor.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} {ON}")
        cursor.execute(f"CREATE INDEX IF NOT EXISTS message_recipient ON campaigns_message {ON}")  # adopts those


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("campaigns", "0033_drafts")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunPython(build, lambda apps, editor: editor.execute("DROP INDEX IF EXISTS message_recipient"))],
            [migrations.AddIndex("message", INDEX)],
        )
    ]
