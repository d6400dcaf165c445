from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0060_store_version_in_turn")]

    operations = [
        migrations.AddField("campaign", "paused_reason_said", models.JSONField(verbose_name="sentence", editable=False, null=True)),
        migrations.AddField("suppression", "source_said", models.JSONField(verbose_name="sentence", editable=False, null=True)),
        migrations.AddField("webhook", "disabled_reason_said", models.JSONField(verbose_name="sentence", editable=False, null=True)),
    ]
