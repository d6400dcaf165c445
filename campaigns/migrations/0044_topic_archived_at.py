from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0043_campaign_stays_paused")]

    operations = [
        migrations.AddField(
            "topic",
            "archived_at",
            models.DateTimeField(editable=False, help_text="No new campaign may name it since then", null=True),
        ),
    ]
