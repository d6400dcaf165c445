from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0061_sentences")]

    operations = [
        migrations.AddField(
            "message",
            "taken_over_at",
            models.DateTimeField(editable=False, null=True, verbose_name="taken over at"),
        ),
    ]
