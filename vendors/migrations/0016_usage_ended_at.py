from django.db import migrations, models

# Rows are updated once, soon after they are written: with room beside them no index is.
FORWARD = "ALTER TABLE vendors_usage SET (fillfactor = 50)"
BACKWARD = "ALTER TABLE vendors_usage SET (fillfactor = 100)"


class Migration(migrations.Migration):
    dependencies = [("vendors", "0015_destinations_alone")]

    operations = [
        migrations.AddField(
            "usage",
            "ended_at",
            models.DateTimeField(null=True, help_text="When the last answer of its claims that have ended was stored."),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
