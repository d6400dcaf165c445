from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0054_store_version"), ("vendors", "0015_usage_ended_at")]

    operations = [
        migrations.AddField("claim", "ledger", models.BigIntegerField(editable=False, null=True)),
    ]
