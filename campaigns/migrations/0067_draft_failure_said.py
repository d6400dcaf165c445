from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0066_complaints")]

    operations = [migrations.AddField("draft", "failure_said", models.JSONField(editable=False, null=True))]
