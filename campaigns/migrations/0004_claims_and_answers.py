import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models
from django.db.models.functions import Now

# What version 0.2 kept in ops goes into the ground truth, open calls into claims. Nothing is sent meanwhile: the store
# is marked as being migrated. A sender of the old version that still waits for answers finds no row in ops, and stores
# acceptances in the ground truth; therefore the empty table stays for one version.
FORWARD = """
INSERT INTO campaigns_claim (job_id, fence, at, messages, units)
SELECT o.job_id, j.fence, o.sent_at, array_agg(o.id ORDER BY o.id), array_agg(o.units ORDER BY o.id)
FROM campaigns_opsmessage o JOIN campaigns_job j ON j.id = o.job_id
WHERE o.sent_at IS NOT NULL AND o.delivered_at IS NULL AND o.in_doubt_at IS NULL AND o.error_code IS NULL
GROUP BY o.job_id, j.fence, o.sent_at;

UPDATE campaigns_message m SET
    dequeued_at = CASE WHEN o.ended THEN m.dequeued_at END, sent_at = CASE WHEN o.ended THEN o.sent_at END,
    delivered_at = o.delivered_at, in_doubt_at = o.in_doubt_at, settle_at = o.in_doubt_at, message_id = o.message_id,
    error_code = o.error_code, error_sub_type = o.error_sub_type, put_off_at = o.put_off_at, call_after = o.call_after
FROM (
    SELECT *, message_id IS NOT NULL OR error_code IS NOT NULL OR in_doubt_at IS NOT NULL AS ended
    FROM campaigns_opsmessage
) o WHERE m.id = o.id AND m.message_id IS NULL;

DELETE FROM campaigns_opsmessage;

-- Both tables are filled and emptied all the time: vacuum them by how much changed. A row stays on its page: answers of
-- a hundred calls fit.
ALTER TABLE campaigns_claim SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    toast_tuple_target = 8160);
ALTER TABLE campaigns_answerbatch SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
    toast_tuple_target = 8160);
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0003_status_since")]
    operations = [
        migrations.AddField(
            model_name="job",
            name="next_message",
            field=models.BigIntegerField(editable=False, help_text="Where the next sender begins", null=True),
        ),
        migrations.AddField(
            model_name="job",
            name="learned",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                editable=False,
                help_text="Counts when ends became known otherwise than by its sender",
            ),
        ),
        migrations.AddField(model_name="message", name="put_off_at", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="message", name="call_after", field=models.DateTimeField(null=True)),
        migrations.CreateModel(
            name="Claim",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fence", models.PositiveIntegerField()),
                ("at", models.DateTimeField()),
                ("messages", django.contrib.postgres.fields.ArrayField(models.BigIntegerField(), size=None)),
                (
                    "units",
                    django.contrib.postgres.fields.ArrayField(models.PositiveIntegerField(), null=True, size=None),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="claims",
                        to="campaigns.job",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="AnswerBatch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fence", models.PositiveIntegerField()),
                ("at", models.DateTimeField(db_default=Now())),
                ("called_at", models.DateTimeField()),
                ("last", models.BooleanField()),
                ("messages", django.contrib.postgres.fields.ArrayField(models.BigIntegerField(), size=None)),
                ("kinds", models.TextField()),
                (
                    "codes",
                    django.contrib.postgres.fields.ArrayField(models.TextField(null=True), null=True, size=None),
                ),
                (
                    "notes",
                    django.contrib.postgres.fields.ArrayField(models.TextField(null=True), null=True, size=None),
                ),
                (
                    "waits",
                    django.contrib.postgres.fields.ArrayField(models.FloatField(null=True), null=True, size=None),
                ),
                (
                    "units",
                    django.contrib.postgres.fields.ArrayField(models.PositiveIntegerField(), null=True, size=None),
                ),
                (
                    "claim",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="campaigns.claim",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="campaigns.job",
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["job", "fence"], name="answers_of_job")]},
        ),
        migrations.RunSQL(FORWARD, migrations.RunSQL.noop),
        migrations.RemoveConstraint(model_name="message", name="message_queued"),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(("dequeued_at", None), ("error_code", None), ("sent_at", None))
                | models.Q(
                    ("dequeued_at__isnull", False),
                    models.Q(
                        ("message_id__isnull", False),
                        ("error_code__isnull", False),
                        ("in_doubt_at__isnull", False),
                        _connector="OR",
                    ),
                ),
                name="message_ended",
            ),
        ),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel(name="OpsMessage")]),
    ]
