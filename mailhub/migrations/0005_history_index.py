from typing import Any

from django.db import migrations

NAME = "history_of_row"
ON = "django_admin_log (object_id, content_type_id, id)"


def build(apps: Any, editor: Any) -> None:
    """The history of one row is found by it; Django's table has no such index. What an attempt left is removed."""
    editor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}")
    editor.execute(f"CREATE INDEX CONCURRENTLY {NAME} ON {ON}")


def remove(apps: Any, editor: Any) -> None:
    editor.execute(f"DROP INDEX IF EXISTS {NAME}")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("mailhub", "0004_given_permission"), ("admin", "0003_logentry_add_action_flag_choices")]
    operations = [migrations.RunPython(build, remove)]
