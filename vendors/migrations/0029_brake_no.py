from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vendors", "0028_receiver_domains")]

    operations = [
        migrations.AddField(
            "credential", "brake_no", models.PositiveBigIntegerField(db_default=0, default=0, editable=False)
        )
    ]
