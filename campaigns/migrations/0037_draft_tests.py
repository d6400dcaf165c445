from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0036_campaign_columns")]

    operations = [
        migrations.AddField(
            "draft",
            "tested_at",
            models.JSONField(default=list, db_default=[], help_text="Times of the test-sends of the last hour"),
        ),
    ]
