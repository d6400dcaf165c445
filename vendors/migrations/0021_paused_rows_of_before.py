from django.db import migrations

# Versions before told these rows by the first words of the reason of their pause.
VENDORS = """
UPDATE vendors_vendor SET unconfirmed = true
WHERE paused AND starts_with(paused_reason, 'it is new, and waits until a second person confirms it')
"""
CREDENTIALS = """
UPDATE vendors_credential SET awaits_secret = true
WHERE paused AND starts_with(paused_reason, 'it waits for its secret')
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0020_sentences")]

    operations = [
        migrations.RunSQL(VENDORS, migrations.RunSQL.noop),
        migrations.RunSQL(CREDENTIALS, migrations.RunSQL.noop),
    ]
