from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0041_campaign_to_oneself")]

    operations = [
        migrations.AddIndex(
            "campaign",
            models.Index(
                condition=models.Q(("to_oneself", True)),
                fields=["sponsor", "made_by", "created_at"],
                name="campaign_to_oneself",
            ),
        ),
    ]
