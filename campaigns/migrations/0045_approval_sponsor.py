import django.db.models.deletion
from django.db import migrations, models

# An approval's sponsor is its campaign's, whoever stores it.
WRITTEN = """
CREATE FUNCTION campaigns_approval_sponsor() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.sponsor_id := (SELECT sponsor_id FROM campaigns_campaign WHERE id = NEW.campaign_id);
    RETURN NEW;
END $$;
CREATE TRIGGER approval_sponsor BEFORE INSERT ON campaigns_approval
FOR EACH ROW EXECUTE FUNCTION campaigns_approval_sponsor();
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE campaigns_approval DISABLE TRIGGER approval_kept;
UPDATE campaigns_approval a SET sponsor_id = c.sponsor_id FROM campaigns_campaign c WHERE c.id = a.campaign_id;
ALTER TABLE campaigns_approval ENABLE TRIGGER approval_kept;
"""
GIVEN_UP = "DROP TRIGGER approval_sponsor ON campaigns_approval; DROP FUNCTION campaigns_approval_sponsor();"


def of_sponsor(null: bool) -> models.ForeignKey:
    return models.ForeignKey(
        null=null, db_index=False, editable=False, on_delete=django.db.models.deletion.PROTECT,
        related_name='approvals', to='campaigns.sponsor',
    )


class Migration(migrations.Migration):

    dependencies = [
        ('campaigns', '0044_topic_archived_at'),
    ]

    operations = [
        migrations.AddField('approval', 'sponsor', of_sponsor(null=True)),
        migrations.RunSQL(WRITTEN, GIVEN_UP),
        migrations.AlterField('approval', 'sponsor', of_sponsor(null=False)),
        migrations.AddIndex(
            'approval',
            models.Index(
                condition=models.Q(('verdict__isnull', False)), fields=['decided_at'], name='approval_decided_at'
            ),
        ),
        migrations.AddIndex(
            'approval',
            models.Index(
                condition=models.Q(('verdict__isnull', False)), fields=['sponsor', 'decided_at'],
                name='approval_decided_of',
            ),
        ),
    ]
