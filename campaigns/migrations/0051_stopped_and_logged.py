from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

ENDED = models.Q(('parent', None), ('status__in', ['SENT', 'LOGGED', 'P_FINISHED']), ('stopped_at', None))
STOPPED = models.Q(('stopped_at__isnull', False))


class Migration(migrations.Migration):
    atomic = False  # so that nothing waits while a million jobs are read

    dependencies = [
        ('campaigns', '0050_campaign_sponsor_name'),
    ]

    operations = [
        RemoveIndexConcurrently('job', 'job_ended'),
        RemoveIndexConcurrently('job', 'job_stopped'),
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_ended', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job', models.Index(condition=ENDED, fields=['created_at', 'id'], name='job_ended')
        ),
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_stopped', migrations.RunSQL.noop),
        AddIndexConcurrently('job', models.Index(condition=STOPPED, fields=['stopped_at'], name='job_stopped')),
    ]
