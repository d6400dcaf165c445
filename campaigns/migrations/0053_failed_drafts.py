from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # so that nothing waits while the drafts are read

    dependencies = [("campaigns", "0052_stopped_after_all")]

    operations = [
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS draft_failed", migrations.RunSQL.noop),
        AddIndexConcurrently(
            "draft",
            models.Index(
                condition=models.Q(("campaign", None), ("failure__gt", "")), fields=["sponsor", "id"], name="draft_failed"
            ),
        ),
    ]
