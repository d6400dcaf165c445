from django.db import migrations

# Rows that refer to a vendor are stored while its limits are edited: a caster that has locked an exclusive credential
# stores a child, and the two would wait for each other. NO KEY is enough to wait for claims, which share the row.
FORWARD = """
CREATE OR REPLACE FUNCTION vendors_limits_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1, limits_since = clock_timestamp()
    WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    UPDATE vendors_credential SET rate_limited_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0017_asked_wait")]

    operations = [migrations.RunSQL(FORWARD, migrations.RunSQL.noop)]
