from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

ENDED = models.Q(('parent', None), ('status__in', ['SENT', 'LOGGED', 'P_FINISHED']))
STOPPED = models.Q(('parent', None), ('stopped_at__isnull', False))
# As finish_parent decides since: by whether a stop has left messages of a child that were never called.
CUT_SHORT = """
SELECT DISTINCT ON (parent_id) parent_id, stopped_by FROM campaigns_job
WHERE status = 'LOGGED' AND stopped_at IS NOT NULL AND parent_id IS NOT NULL
    AND size > accepted + refused + expired + suppressed + in_doubt
ORDER BY parent_id, stopped_at DESC
"""
PARENTS = f"""
UPDATE campaigns_job p SET status = 'P_STOPPED', stopped_by = CASE p.stopped_by WHEN '' THEN k.stopped_by
    ELSE p.stopped_by END
FROM ({CUT_SHORT}) k WHERE p.id = k.parent_id AND p.status = 'P_FINISHED';
UPDATE campaigns_job p SET status = 'P_FINISHED'
WHERE status = 'P_STOPPED' AND finished_at IS NOT NULL AND remaining = 0
    AND NOT EXISTS (SELECT FROM ({CUT_SHORT}) k WHERE k.parent_id = p.id)
"""


class Migration(migrations.Migration):
    atomic = False  # so that nothing waits while a million jobs are read

    dependencies = [
        ('campaigns', '0051_stopped_and_logged'),
    ]

    operations = [
        RemoveIndexConcurrently('job', 'job_ended'),
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_ended', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job', models.Index(condition=ENDED, fields=['created_at', 'id'], name='job_ended')
        ),
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_stopped_of', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job', models.Index(condition=STOPPED, fields=['sponsor', 'stopped_at'], name='job_stopped_of')
        ),
        migrations.RunSQL(PARENTS, migrations.RunSQL.noop),
    ]
