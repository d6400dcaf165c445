import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0024_inbound_messages")]

    operations = [
        migrations.AddField(
            model_name="routeentry",
            name="weight",
            field=models.PositiveSmallIntegerField(
                db_default=0,
                default=0,
                help_text="Its share of new campaigns, among those that have one; 0 of all: they begin with the first",
                validators=[django.core.validators.MaxValueValidator(1000)],
            ),
        ),
    ]
