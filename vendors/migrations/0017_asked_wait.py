from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vendors", "0016_usage_ended_at")]

    operations = [
        migrations.AddField("credential", "asked_wait", models.FloatField(editable=False, null=True)),
    ]
