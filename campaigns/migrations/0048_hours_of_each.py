from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0047_job_ended")]

    operations = [
        migrations.AddField(
            "campaign",
            "each_from",
            models.TimeField(blank=True, help_text="Hours by each recipient's clock: from then on", null=True),
        ),
        migrations.AddField(
            "campaign", "each_to", models.TimeField(blank=True, help_text="... and until then.", null=True)
        ),
        migrations.AddField(
            "draft",
            "hours_of_each",
            models.BooleanField(db_default=False, default=False, help_text="By each recipient's clock"),
        ),
    ]
