import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('vendors', '0034_relay_size'),
    ]

    operations = [
        migrations.AddField(
            model_name='vendor',
            name='floor',
            field=models.PositiveSmallIntegerField(db_default=10, default=10, help_text='Percent of its rate that usual and bulk mail each keep while more urgent mail comes; 0: none', validators=[django.core.validators.MaxValueValidator(40)]),
        ),
    ]
