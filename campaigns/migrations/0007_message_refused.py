from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0006_suppressions")]
    operations = [ValidateConstraint(model_name="message", name="message_refused")]
