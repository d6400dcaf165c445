from django.db import migrations

# Whoever edits a limit, by whatever way, raises the version of the vendor's limits; a claim under an older version
# claims nothing. The vendor's row is locked before the clock is read: claims under the older version have committed by
# then.
FORWARD = """
ALTER TABLE vendors_usage SET (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.5);
CREATE FUNCTION vendors_limits_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE vendors_credential SET rate_limited_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    PERFORM FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id FOR UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1, limits_since = clock_timestamp()
    WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
CREATE TRIGGER limits_version AFTER INSERT OR UPDATE OR DELETE ON vendors_ratelimit
    FOR EACH ROW EXECUTE FUNCTION vendors_limits_version();
"""
BACKWARD = """
DROP TRIGGER limits_version ON vendors_ratelimit;
DROP FUNCTION vendors_limits_version();
ALTER TABLE vendors_usage RESET (fillfactor, autovacuum_vacuum_insert_scale_factor);
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
