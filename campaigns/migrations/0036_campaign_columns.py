from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0035_campaign_lower_name")]

    operations = [
        migrations.AddField(
            "campaign",
            "columns",
            models.JSONField(editable=False, help_text="The fields of its list, in the list's order", null=True),
        ),
    ]
