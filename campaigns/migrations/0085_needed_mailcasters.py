from django.db import migrations, models


class Migration(migrations.Migration):
    additive = True

    dependencies = [("campaigns", "0084_sponsor_refusal_runs")]

    operations = [
        migrations.AddField("classcredit", "needed", models.SmallIntegerField(db_default=0, default=0)),
        migrations.AddField("classcredit", "needed_until", models.DateTimeField(null=True)),
    ]
