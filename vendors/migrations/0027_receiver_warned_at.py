from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("vendors", "0026_receiver_limits")]

    operations = [
        migrations.AddField(
            model_name="receiverwait",
            name="warned_at",
            field=models.DateTimeField(null=True, verbose_name="warned at"),
        ),
    ]
