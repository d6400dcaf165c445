from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0040_approval_changed")]

    operations = [
        migrations.AddField(
            "campaign",
            "to_oneself",
            models.BooleanField(
                db_default=False,
                default=False,
                editable=False,
                help_text="A test letter to who has made it; needs no approval",
            ),
        ),
        migrations.RemoveField("draft", "tested_at"),
    ]
