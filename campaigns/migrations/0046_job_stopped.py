from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # so that nothing waits while a million jobs are read

    dependencies = [
        ('campaigns', '0045_approval_sponsor'),
    ]

    operations = [
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_stopped', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job',
            models.Index(condition=models.Q(('status', 'STOPPED')), fields=['stopped_at'], name='job_stopped'),
        ),
    ]
