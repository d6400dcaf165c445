import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vendors", "0024_receiver_waits")]

    operations = [
        migrations.CreateModel(
            name="CauseCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cause", models.CharField(max_length=9, verbose_name="cause")),
                ("what", models.CharField(max_length=7, verbose_name="what")),
                ("share", models.PositiveSmallIntegerField(verbose_name="share")),
                ("messages", models.PositiveBigIntegerField(verbose_name="messages")),
                (
                    "vendor",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="vendors.vendor",
                    ),
                ),
            ],
            options={
                "verbose_name": "count of a cause",
                "verbose_name_plural": "counts of causes",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("vendor", "cause", "what", "share"), name="cause_count_once")
                ],
            },
        )
    ]
