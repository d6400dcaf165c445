from django.db import migrations, models

# The moment stood in words for people; what has expired keeps them.
READ = """
UPDATE campaigns_opsmessage SET error_sub_type = NULL, put_off_at = substr(error_sub_type, 15)::timestamptz
WHERE error_sub_type LIKE 'put off since %' AND error_code IS NULL AND sent_at IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0018_units")]

    operations = [
        migrations.AddField("opsmessage", "put_off_at", models.DateTimeField(null=True)),
        migrations.AddField("opsmessage", "call_after", models.DateTimeField(null=True)),
        migrations.RunSQL(READ, migrations.RunSQL.noop),
    ]
