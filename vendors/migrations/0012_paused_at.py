from django.db import migrations, models

# Whoever pauses, by whatever way, is seen in the row with the time: the audit looks for calls in a pause. The clock is
# read when the row is locked, so claims that were allowed before have committed by then.
FORWARD = """
CREATE FUNCTION vendors_paused() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NOT OLD.paused THEN
        NEW.paused_at = clock_timestamp();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER paused BEFORE INSERT OR UPDATE OF paused ON vendors_vendor
    FOR EACH ROW WHEN (NEW.paused) EXECUTE FUNCTION vendors_paused();
CREATE TRIGGER paused BEFORE INSERT OR UPDATE OF paused ON vendors_credential
    FOR EACH ROW WHEN (NEW.paused) EXECUTE FUNCTION vendors_paused();
"""
BACKWARD = """
DROP TRIGGER paused ON vendors_credential;
DROP TRIGGER paused ON vendors_vendor;
DROP FUNCTION vendors_paused();
"""
# Claims lock a vendor before its credential: whoever edits a limit does so, too, or they would wait for each other.
LIMITS_FORWARD = """
CREATE OR REPLACE FUNCTION vendors_limits_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id FOR UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1, limits_since = clock_timestamp()
    WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    UPDATE vendors_credential SET rate_limited_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
"""
LIMITS_BACKWARD = """
CREATE OR REPLACE FUNCTION vendors_limits_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE vendors_credential SET rate_limited_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    PERFORM FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id FOR UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1, limits_since = clock_timestamp()
    WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0011_destinations")]

    operations = [
        migrations.AddField("vendor", "paused_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField("credential", "paused_at", models.DateTimeField(editable=False, null=True)),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.RunSQL(LIMITS_FORWARD, LIMITS_BACKWARD),
    ]
