from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0056_intact"), ("vendors", "0016_usage_ended_at")]

    operations = [
        migrations.AddField("claim", "ledger", models.BigIntegerField(editable=False, null=True)),
    ]
