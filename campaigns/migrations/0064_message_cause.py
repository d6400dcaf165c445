from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0063_doubts_of_takeovers")]

    operations = [
        migrations.AddField("answerbatch", "causes", ArrayField(models.TextField(null=True), null=True)),
        migrations.AddField(
            "message",
            "cause",
            models.CharField(help_text="Whose fault it is (vendors/causes)", max_length=9, null=True),
        ),
    ]
