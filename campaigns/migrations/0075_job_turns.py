from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

FOR_CASTERS = models.Q(('status__in', ['DISPATCHED', 'RECOVERING', 'P_ASSIGNING', 'P_QUEUED']))


class Migration(migrations.Migration):
    atomic = False  # so that no job waits while a million of them are read

    dependencies = [
        ('campaigns', '0074_sharing'),
    ]

    operations = [
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_turn', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job',
            models.Index(
                condition=models.Q(FOR_CASTERS, ('parent__isnull', True)),
                fields=['vendor', 'sponsor', 'status', 'id'],
                name='job_turn',
            ),
        ),
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_turn_child', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job',
            models.Index(
                condition=models.Q(FOR_CASTERS, ('parent__isnull', False)),
                fields=['vendor', 'sponsor', 'status', 'id'],
                name='job_turn_child',
            ),
        ),
    ]
