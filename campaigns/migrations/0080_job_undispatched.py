from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # so that no job waits while a million of them are read

    dependencies = [
        ('campaigns', '0079_sponsor_quotas'),
    ]

    operations = [
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_undispatched', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job',
            models.Index(
                condition=models.Q(('status__in', ['RENDERED', 'READY'])),
                fields=['sponsor'],
                name='job_undispatched',
            ),
        ),
    ]
