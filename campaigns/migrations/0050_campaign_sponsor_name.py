from django.contrib.postgres.indexes import OpClass
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models.functions import Lower


class Migration(migrations.Migration):
    atomic = False  # so that nothing waits while a million campaigns are read

    dependencies = [
        ('campaigns', '0049_approval_sponsor_kept'),
        ('vendors', '0010_report_key_credential'),
    ]

    operations = [
        # A try that was interrupted leaves an index that is not valid.
        migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS campaign_sponsor_name', migrations.RunSQL.noop),
        AddIndexConcurrently(
            'campaign',
            models.Index(
                models.F('sponsor'), OpClass(Lower('name'), 'text_pattern_ops'), name='campaign_sponsor_name'
            ),
        ),
    ]
