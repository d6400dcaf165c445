from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

ENDED = models.Q(('parent', None), ('status__in', ['SENT', 'LOGGED', 'P_FINISHED']))


class Migration(migrations.Migration):
    atomic = False  # so that nothing waits while a million jobs are read

    dependencies = [
        ('campaigns', '0046_job_stopped'),
    ]

    operations = [
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_ended', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job',
            models.Index(condition=ENDED, fields=['created_at', 'id'], name='job_ended'),
        ),
    ]
