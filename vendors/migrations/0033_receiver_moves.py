from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vendors", "0032_zone_in_limits")]

    operations = [
        migrations.CreateModel(
            name="ReceiverMove",
            fields=[
                ("receiver", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("ledger", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "move of domains",
                "verbose_name_plural": "moves of domains",
                "default_permissions": (),
            },
        ),
    ]
