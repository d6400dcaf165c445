from django.db import migrations

# A claim under an older version of the limits claims nothing, so no claim that begins after the commit of a pause is
# made without it. The turns of the vendors are taken last, at the commit: counting the mails takes longer.
FORWARD = """
CREATE FUNCTION campaigns_complaintpause_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('vendors_vendor'), id::int) FROM (
        SELECT id FROM vendors_vendor WHERE channel = 'email' ORDER BY id) v;
    PERFORM FROM vendors_vendor WHERE channel = 'email' ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1 WHERE channel = 'email';
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER limits_version
    AFTER INSERT OR UPDATE OF resumed_at, sponsor_id, receiver OR DELETE ON campaigns_complaintpause
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION campaigns_complaintpause_version();
"""
BACKWARD = """
DROP TRIGGER limits_version ON campaigns_complaintpause;
DROP FUNCTION campaigns_complaintpause_version();
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0071_refusal_tails"), ("vendors", "0030_receiver_versions")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
