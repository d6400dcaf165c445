from django.db import migrations

# Whoever adopts or closes the store takes the turns of all vendors before their rows (vendors/locks.py).
FORWARD = """
CREATE OR REPLACE FUNCTION campaigns_store_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('vendors_vendor'), id::int) FROM (
        SELECT id FROM vendors_vendor ORDER BY id) v;
    PERFORM FROM vendors_vendor ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1;
    RETURN NULL;
END $$;
"""
BACKWARD = """
CREATE OR REPLACE FUNCTION campaigns_store_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM vendors_vendor ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1;
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0059_store_mark")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
