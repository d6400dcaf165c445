from django.db import migrations, models


class Migration(migrations.Migration):
    additive = True

    dependencies = [("campaigns", "0082_class_of_jobs")]

    operations = [
        migrations.AddField("store", "applied", models.TextField(blank=True, db_default="")),
    ]
