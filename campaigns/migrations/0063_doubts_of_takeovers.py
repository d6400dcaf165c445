from django.db import migrations

# Versions before told these doubts by their text. The index on doubts finds them.
FORWARD = """
UPDATE campaigns_message SET taken_over_at = in_doubt_at
WHERE in_doubt_at IS NOT NULL AND error_sub_type = 'may have been called before the store was taken over'
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0062_message_taken_over_at")]

    operations = [migrations.RunSQL(FORWARD, migrations.RunSQL.noop)]
