from django.db import migrations, models

BETWEEN = "; then it stays paused: "  # before a person's reason, as it was kept until now
APART = f"""
UPDATE campaigns_campaign c SET paused_reason = left(paused_reason, strpos(paused_reason, '{BETWEEN}') - 1),
    stays_paused = substr(paused_reason, strpos(paused_reason, '{BETWEEN}') + {len(BETWEEN)})
FROM campaigns_approval a
WHERE a.campaign_id = c.id AND a.verdict IS NULL AND c.paused_at IS NOT NULL AND strpos(paused_reason, '{BETWEEN}') > 0
"""
TOGETHER = f"""
UPDATE campaigns_campaign SET paused_reason = left(paused_reason || '{BETWEEN}' || stays_paused, 255)
WHERE paused_at IS NOT NULL AND stays_paused <> ''
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0042_campaign_to_oneself_index")]

    operations = [
        migrations.AddField(
            "campaign",
            "stays_paused",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                editable=False,
                help_text="While it waits for approval: why somebody has it stay paused after that; empty: nobody has",
                max_length=255,
            ),
        ),
        migrations.RunSQL(APART, TOGETHER),
    ]
