import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0031_templates")]

    operations = [
        migrations.CreateModel(
            name="DayCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("delivered", models.BigIntegerField(db_default=0)),
                ("bounced", models.BigIntegerField(db_default=0)),
                ("complained", models.BigIntegerField(db_default=0)),
                ("unsubscribed", models.BigIntegerField(db_default=0)),
                ("summed", models.BooleanField(db_default=False)),
                (
                    "sponsor",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="campaigns.sponsor",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["day"], name="day_count_day"),
                    models.Index(condition=models.Q(("summed", False)), fields=["id"], name="day_count_to_sum"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("summed", True)), fields=("day", "sponsor"), name="day_count_summed_once"
                    )
                ],
            },
        ),
        migrations.AlterField(
            "campaign",
            "sponsor",
            models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="campaigns",
                to="campaigns.sponsor",
            ),
        ),
        migrations.AddIndex("campaign", models.Index(fields=["sponsor", "id"], name="campaign_sponsor")),
    ]
