import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


# As for the limits of vendors: an edit is in force from the next grant.
FORWARD = """
CREATE TRIGGER limits_version AFTER INSERT OR UPDATE OR DELETE ON vendors_receiverlimit
    FOR EACH ROW EXECUTE FUNCTION vendors_limits_version();
"""
BACKWARD = "DROP TRIGGER limits_version ON vendors_receiverlimit"


class Migration(migrations.Migration):

    dependencies = [
        ('vendors', '0025_cause_counts'),
    ]

    operations = [
        migrations.AddField(
            model_name='usage',
            name='receivers',
            field=models.JSONField(help_text='Units by receiver, where receivers have limits.', null=True),
        ),
        migrations.CreateModel(
            name='ReceiverLimit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('receiver', models.CharField(help_text='Such as gmail; * for all others together', max_length=40, verbose_name='receiver')),
                ('units', models.PositiveIntegerField()),
                ('seconds', models.FloatField(validators=[django.core.validators.MinValueValidator(0.01), django.core.validators.MaxValueValidator(31622400.0)])),
                ('grows_from', models.DateField(blank=True, help_text='The first day of a warm-up', null=True, verbose_name='grows from')),
                ('growth', models.FloatField(db_default=1.5, default=1.5, help_text='Each day so many times the day before', validators=[django.core.validators.MinValueValidator(1.0), django.core.validators.MaxValueValidator(10.0)], verbose_name='growth')),
                ('credential', models.ForeignKey(blank=True, help_text='Empty: over all credentials of the vendor together.', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='receiver_limits', to='vendors.credential')),
                ('vendor', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='receiver_limits', to='vendors.vendor')),
            ],
            options={
                'verbose_name': 'limit of a receiver',
                'verbose_name_plural': 'limits of receivers',
                'ordering': ['receiver', 'seconds'],
                'constraints': [models.UniqueConstraint(fields=('vendor', 'credential', 'receiver', 'seconds'), name='receiver_window', nulls_distinct=False), models.CheckConstraint(condition=models.Q(('seconds__gt', 0)), name='receiver_window_positive'), models.CheckConstraint(condition=models.Q(('growth__gte', 1)), name='receiver_growth')],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
