from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0019_put_off")]

    operations = [
        migrations.AddIndex(
            model_name="campaign",
            index=models.Index(
                fields=["id"],
                include=["send_at", "hours_from", "hours_to", "time_zone"],
                condition=models.Q(send_at__isnull=False) | models.Q(hours_from__isnull=False),
                name="campaign_timed",
            ),
        ),
    ]
