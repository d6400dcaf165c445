import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("admin", "0003_logentry_add_action_flag_choices"), ("vendors", "0019_limits_in_turn")]

    operations = [
        migrations.CreateModel(
            name="HistorySentence",
            fields=[
                (
                    "entry",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="sentence",
                        serialize=False,
                        to="admin.logentry",
                    ),
                ),
                ("said", models.JSONField(verbose_name="sentence")),
            ],
            options={
                "verbose_name": "history sentence",
                "verbose_name_plural": "history sentences",
                "default_permissions": (),
            },
        ),
        migrations.AddField("credential", "paused_reason_said", models.JSONField(verbose_name="sentence", editable=False, null=True)),
        migrations.AddField(
            "credential",
            "awaits_secret",
            models.BooleanField(
                db_default=False, default=False, editable=False, verbose_name="awaits secret"
            ),
        ),
        migrations.AddField("vendor", "paused_reason_said", models.JSONField(verbose_name="sentence", editable=False, null=True)),
        migrations.AddField(
            "vendor",
            "unconfirmed",
            models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                verbose_name="unconfirmed",
            ),
        ),
    ]
