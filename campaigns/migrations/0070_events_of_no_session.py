from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # so that nothing waits while the calls are read

    dependencies = [("campaigns", "0069_recipient_answers")]

    operations = [
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL("DROP INDEX CONCURRENTLY IF EXISTS webhook_call_of_no_session", migrations.RunSQL.noop),
        AddIndexConcurrently(
            "webhookcall",
            models.Index(
                condition=models.Q(("session", None)), fields=["created_at"], name="webhook_call_of_no_session"
            ),
        ),
    ]
