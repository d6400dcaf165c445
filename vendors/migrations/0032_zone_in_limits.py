from django.db import migrations

# A warm-up grows by days of the vendor's clock, and only vendors of e-mail have receivers: senders read the limits again
# once either changes. The number is raised as in vendors_vendor_moved, after which this trigger comes.
FORWARD = """
CREATE FUNCTION vendors_vendor_zone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.limits_version = greatest(OLD.limits_version, NEW.limits_version) + 1;
    RETURN NEW;
END $$;
CREATE TRIGGER zone BEFORE UPDATE OF time_zone, channel ON vendors_vendor
    FOR EACH ROW WHEN ((OLD.time_zone, OLD.channel) IS DISTINCT FROM (NEW.time_zone, NEW.channel))
    EXECUTE FUNCTION vendors_vendor_zone();
"""
BACKWARD = """
DROP TRIGGER zone ON vendors_vendor;
DROP FUNCTION vendors_vendor_zone();
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0031_reported")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
