from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vendors", "0006_routes")]

    operations = [
        migrations.AddField(
            model_name="credential",
            name="backoff",
            field=models.FloatField(db_default=0.0, default=0.0, editable=False),
        ),
    ]
