import django.db.models.deletion
from django.db import migrations, models

CLASSES = [(1, 'urgent'), (2, 'usual'), (3, 'bulk')]


class Migration(migrations.Migration):

    dependencies = [
        ('campaigns', '0080_job_undispatched'),
        ('vendors', '0035_floor'),
    ]

    operations = [
        migrations.AddField(
            model_name='campaign',
            name='mail_class',
            field=models.SmallIntegerField(choices=CLASSES, editable=False, help_text='Empty: by its kind', null=True, verbose_name='class'),
        ),
        migrations.AddField(
            model_name='draft',
            name='mail_class',
            field=models.SmallIntegerField(choices=CLASSES, help_text='Empty: by its kind', null=True),
        ),
        migrations.AddField(
            model_name='entitlement',
            name='urgent',
            field=models.CharField(choices=[('nothing', 'nothing'), ('single', 'single letters'), ('all', 'everything')], db_default='single', default='single', help_text='What it may send as urgent, before the mail of all others', max_length=7),
        ),
        migrations.AddField(
            model_name='job',
            name='mail_class',
            field=models.SmallIntegerField(choices=CLASSES, db_default=3, default=3, editable=False, verbose_name='class'),
        ),
        migrations.AddField(
            model_name='template',
            name='mail_class',
            field=models.SmallIntegerField(blank=True, choices=CLASSES, help_text='Of campaigns that name none; empty: by their kind', null=True, verbose_name='class'),
        ),
        migrations.CreateModel(
            name='ClassCredit',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('mail_class', models.SmallIntegerField(choices=CLASSES)),
                ('credit', models.FloatField(db_default=0.0, default=0.0)),
                ('most', models.FloatField(db_default=0.0, default=0.0)),
                ('least', models.FloatField(db_default=0.0, default=0.0)),
                ('vendor', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='vendors.vendor')),
            ],
        ),
        migrations.CreateModel(
            name='ClassTurn',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('mail_class', models.SmallIntegerField(choices=CLASSES)),
                ('given', models.FloatField(db_default=0.0, default=0.0)),
                ('clock', models.FloatField(db_default=0.0, default=0.0)),
                ('rate', models.FloatField(db_default=0.0, default=0.0)),
                ('sponsor', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='campaigns.sponsor')),
                ('vendor', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='vendors.vendor')),
            ],
        ),
        migrations.AddConstraint(
            model_name='classcredit',
            constraint=models.UniqueConstraint(fields=('vendor', 'mail_class'), name='class_credit_once'),
        ),
        migrations.AddConstraint(
            model_name='classturn',
            constraint=models.UniqueConstraint(fields=('vendor', 'mail_class', 'sponsor'), name='class_turn_once'),
        ),
    ]
