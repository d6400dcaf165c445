from django.db import migrations

# Claims lock the vendor's row, not that of the store, which all vendors share. A claim that waited for a lock while the
# store was adopted, or closed for a migration, finds another version of its vendor and claims nothing.
FORWARD = """
CREATE FUNCTION campaigns_store_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM vendors_vendor ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER store_version AFTER UPDATE ON campaigns_store FOR EACH ROW
    WHEN ((OLD.system, OLD.relation, OLD.timeline, OLD.adoptions, OLD.tables)
        IS DISTINCT FROM (NEW.system, NEW.relation, NEW.timeline, NEW.adoptions, NEW.tables))
    EXECUTE FUNCTION campaigns_store_version();
"""
BACKWARD = """
DROP TRIGGER store_version ON campaigns_store;
DROP FUNCTION campaigns_store_version();
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0053_failed_drafts"), ("vendors", "0012_paused_at")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
