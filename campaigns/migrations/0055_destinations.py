from django.db import migrations, models

NUMBER = {"null": True, "editable": False}


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0054_store_version"), ("vendors", "0015_destinations_alone")]

    operations = [
        migrations.AddField(
            "message",
            "destination",
            models.PositiveBigIntegerField(help_text="In doubt: where it was called.", **NUMBER),
        ),
        migrations.AddField(
            "message",
            "asked_destination",
            models.PositiveBigIntegerField(
                help_text="In doubt: where the vendor was asked about it, or called again, last.", **NUMBER
            ),
        ),
        migrations.AddField("claim", "destination", models.PositiveBigIntegerField(**NUMBER)),
        migrations.AddField("vendormessageid", "destination", models.PositiveBigIntegerField(null=True)),
        migrations.AddField("waitingreport", "destinations", models.JSONField(null=True)),
        migrations.AlterField(
            "resolution",
            "decision",
            models.CharField(
                choices=[
                    ("sent", "Sent"),
                    ("failed", "Failed"),
                    ("resend", "send again"),
                    ("same", "the same account"),
                ],
                max_length=10,
            ),
        ),
    ]
