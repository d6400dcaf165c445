from django.db import migrations, models

# An edit of a receiver's limits is in force from the next grant, as of a vendor's, and its window begins anew: one that
# was kept under other limits may lack calls.
#
# A sender reads waits only when the stamp of its credential has changed. One statement writes the stamps in one order.
FORWARD = """
CREATE FUNCTION vendors_receivers_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('vendors_vendor'), id::int) FROM (
        SELECT id FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id) v;
    PERFORM FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1, receivers_version = receivers_version + 1,
        limits_since = clock_timestamp()
    WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    UPDATE vendors_credential SET rate_limited_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
DROP TRIGGER limits_version ON vendors_receiverlimit;
CREATE TRIGGER limits_version AFTER INSERT OR UPDATE OR DELETE ON vendors_receiverlimit
    FOR EACH ROW EXECUTE FUNCTION vendors_receivers_version();
CREATE FUNCTION vendors_stamp_waits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO vendors_receiverstamp AS s (credential_id, stamp)
    SELECT DISTINCT credential_id, 1 FROM changed ORDER BY credential_id
    ON CONFLICT (credential_id) DO UPDATE SET stamp = s.stamp + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER stamp_inserted AFTER INSERT ON vendors_receiverwait REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION vendors_stamp_waits();
CREATE TRIGGER stamp_updated AFTER UPDATE ON vendors_receiverwait REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION vendors_stamp_waits();
CREATE TRIGGER stamp_deleted AFTER DELETE ON vendors_receiverwait REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION vendors_stamp_waits();
INSERT INTO vendors_receiverstamp (credential_id, stamp) SELECT DISTINCT credential_id, 1 FROM vendors_receiverwait;
"""
BACKWARD = """
DROP TRIGGER stamp_inserted ON vendors_receiverwait;
DROP TRIGGER stamp_updated ON vendors_receiverwait;
DROP TRIGGER stamp_deleted ON vendors_receiverwait;
DROP FUNCTION vendors_stamp_waits();
DROP TRIGGER limits_version ON vendors_receiverlimit;
CREATE TRIGGER limits_version AFTER INSERT OR UPDATE OR DELETE ON vendors_receiverlimit
    FOR EACH ROW EXECUTE FUNCTION vendors_limits_version();
DROP FUNCTION vendors_receivers_version();
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0029_brake_no")]

    operations = [
        migrations.AddField(
            "vendor",
            "receivers_version",
            models.PositiveBigIntegerField(
                default=0, db_default=0, editable=False, help_text="Counts the edits of its receivers' limits."
            ),
        ),
        migrations.CreateModel(
            name="ReceiverStamp",
            fields=[
                ("credential_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("stamp", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "stamp of the waits of a credential",
                "verbose_name_plural": "stamps of waits",
                "default_permissions": (),
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
