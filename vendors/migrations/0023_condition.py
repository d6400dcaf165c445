import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("vendors", "0022_operate_vendor"),
    ]

    operations = [
        migrations.AddField(
            model_name="credential",
            name="brake_held_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="credential",
            name="brake_released_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="credential",
            name="brake_wait",
            field=models.FloatField(db_default=0.0, default=0.0, editable=False),
        ),
        migrations.AddField(
            model_name="credential",
            name="braked_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="credential",
            name="probe_no",
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            model_name="credential",
            name="probed_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.CreateModel(
            name="VendorCondition",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("receiver", models.CharField(db_default="", default="", max_length=50)),
                ("destination", models.BigIntegerField(db_default=0, default=0)),
                ("good_at", models.DateTimeField(null=True)),
                ("failing_since", models.DateTimeField(null=True)),
                ("tries", models.PositiveIntegerField(db_default=0, default=0)),
                ("doubts", models.PositiveIntegerField(db_default=0, default=0)),
                ("last_at", models.DateTimeField(null=True)),
                ("last_answer", models.CharField(db_default="", default="", max_length=200)),
                ("last_cause", models.CharField(db_default="", default="", max_length=20)),
                (
                    "credential",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="conditions",
                        to="vendors.credential",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=("credential", "receiver"), name="condition_once")],
            },
        ),
    ]
