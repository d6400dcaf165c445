import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("vendors", "0023_condition"),
    ]

    operations = [
        migrations.CreateModel(
            name="ReceiverWait",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("receiver", models.CharField(max_length=253, verbose_name="receiver")),
                ("cause", models.CharField(max_length=12, verbose_name="cause")),
                ("refused", models.BooleanField(default=False, verbose_name="refused")),
                ("since", models.DateTimeField(verbose_name="since")),
                ("until", models.DateTimeField(verbose_name="until")),
                ("seconds", models.FloatField(verbose_name="seconds")),
                ("answers", models.PositiveIntegerField(default=1, verbose_name="answers")),
                ("answer", models.CharField(max_length=255, verbose_name="last answer")),
                (
                    "credential",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="receiver_waits",
                        to="vendors.credential",
                    ),
                ),
            ],
            options={
                "verbose_name": "receiver that waits",
                "verbose_name_plural": "receivers that wait",
                "ordering": ["credential", "receiver"],
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=("credential", "receiver"), name="one_wait_a_receiver")],
            },
        ),
    ]
