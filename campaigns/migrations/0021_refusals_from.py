from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0020_campaign_times")]

    operations = [
        migrations.AddField(
            "job",
            "refusals_from",
            models.DateTimeField(editable=False, help_text="Equal refusals count from then on.", null=True),
        ),
    ]
