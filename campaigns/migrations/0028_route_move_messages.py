from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0027_quiet_hours")]

    operations = [
        migrations.AddField(
            "routemove",
            "messages",
            models.PositiveIntegerField(default=0, help_text="Those among them that waited"),
            preserve_default=False,
        ),
        migrations.RunSQL("UPDATE campaigns_routemove SET messages = size", migrations.RunSQL.noop),
    ]
