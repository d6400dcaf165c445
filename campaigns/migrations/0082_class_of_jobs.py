from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

FOR_CASTERS = models.Q(('status__in', ['DISPATCHED', 'RECOVERING', 'P_ASSIGNING', 'P_QUEUED']))
FIELDS = ['vendor', 'mail_class', 'sponsor', 'status', 'id']
BATCH = 5_000
# Jobs that will still be sent: every new row is bulk by default, so these are what is not. A single letter of a program
# is urgent, as each sponsor may send one; the others that nobody can unsubscribe from are usual.
NEXT = """
WITH batch AS (
    SELECT id, campaign_id, size FROM campaigns_job
    WHERE id > %s AND status IN ('RENDERED', 'READY', 'DISPATCHED', 'ENQUEUED', 'SENDING', 'RECOVERING', 'STOPPED',
        'P_QUEUED', 'P_ASSIGNING', 'P_ASSIGNED', 'P_STOPPED')
    ORDER BY id LIMIT %s
), moved AS (
    UPDATE campaigns_job j SET mail_class = CASE
        WHEN c.size = 1 AND EXISTS (SELECT FROM campaigns_session s WHERE s.job_id = b.id) THEN 1 ELSE 2 END
    FROM batch b JOIN campaigns_campaign c ON c.id = b.campaign_id
    WHERE j.id = b.id AND j.mail_class = 3 AND (c.size = 1 OR c.transactional)
)
SELECT max(id) FROM batch
"""


def class_jobs(apps, schema_editor):
    last = 0
    while last is not None:
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(NEXT, [last, BATCH])
            (last,) = cursor.fetchone()


class Migration(migrations.Migration):
    atomic = False  # so that no job waits while a million of them are read

    dependencies = [
        ('campaigns', '0081_classes'),
    ]

    operations = [
        migrations.RunPython(class_jobs, migrations.RunPython.noop, elidable=True),
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_in_turn', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job',
            models.Index(condition=models.Q(FOR_CASTERS, ('parent__isnull', True)), fields=FIELDS, name='job_in_turn'),
        ),
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS job_in_turn_child', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'job',
            models.Index(
                condition=models.Q(FOR_CASTERS, ('parent__isnull', False)), fields=FIELDS, name='job_in_turn_child'
            ),
        ),
        # Mailcasters of the version before claim nothing once these tables are migrated, so nobody walks these.
        RemoveIndexConcurrently('job', 'job_turn'),
        RemoveIndexConcurrently('job', 'job_turn_child'),
    ]
