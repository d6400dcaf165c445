from django.db import migrations

# Whoever edits limits, by whatever way, takes the vendor's turn before its row (vendors/locks.py).
FORWARD = """
CREATE OR REPLACE FUNCTION vendors_limits_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('vendors_vendor'), id::int) FROM (
        SELECT id FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id) v;
    PERFORM FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1, limits_since = clock_timestamp()
    WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    UPDATE vendors_credential SET rate_limited_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
"""
BACKWARD = """
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
    dependencies = [("vendors", "0018_limits_lock")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
