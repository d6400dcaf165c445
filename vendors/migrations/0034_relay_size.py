from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vendors", "0033_receiver_moves")]

    operations = [
        migrations.AddField(
            model_name="credential",
            name="relay_size",
            field=models.PositiveBigIntegerField(editable=False, null=True),
        ),
    ]
