from django.db import migrations, models

# Whoever changes where or as whom calls are made, by whatever way, raises the number. A claim under an older version of
# the limits claims nothing, so a sender that holds the adapter of before makes no call after the change. A number is
# never used twice, not even after a restore, so it is taken from the clock.
FORWARD = """
CREATE FUNCTION vendors_destination(was bigint) RETURNS bigint LANGUAGE sql AS $$
    SELECT greatest(was + 1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;
CREATE FUNCTION vendors_vendor_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.destination = OLD.destination;
    IF (OLD.adapter, OLD.settings, OLD.sandbox) IS DISTINCT FROM (NEW.adapter, NEW.settings, NEW.sandbox)
        AND current_setting('mailhub.same_destination', true) IS DISTINCT FROM 'vendors_vendor ' || NEW.id
    THEN
        NEW.destination = vendors_destination(OLD.destination);
        NEW.limits_version = greatest(OLD.limits_version, NEW.limits_version) + 1;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER moved BEFORE UPDATE OF adapter, settings, sandbox, destination ON vendors_vendor
    FOR EACH ROW EXECUTE FUNCTION vendors_vendor_moved();
CREATE FUNCTION vendors_credential_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.destination = OLD.destination;
    IF (OLD.secret, OLD.vendor_id) IS DISTINCT FROM (NEW.secret, NEW.vendor_id)
        AND current_setting('mailhub.same_destination', true) IS DISTINCT FROM 'vendors_credential ' || NEW.id
    THEN
        NEW.destination = vendors_destination(OLD.destination);
        UPDATE vendors_vendor SET limits_version = limits_version + 1 WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER moved BEFORE UPDATE OF secret, vendor_id, destination ON vendors_credential
    FOR EACH ROW EXECUTE FUNCTION vendors_credential_moved();
"""
BACKWARD = """
DROP TRIGGER moved ON vendors_credential;
DROP FUNCTION vendors_credential_moved();
DROP TRIGGER moved ON vendors_vendor;
DROP FUNCTION vendors_vendor_moved();
DROP FUNCTION vendors_destination(bigint);
"""
NUMBER = {"default": 0, "db_default": 0, "editable": False}


class Migration(migrations.Migration):
    dependencies = [("vendors", "0010_report_key_credential")]

    operations = [
        migrations.AddField(
            "vendor",
            "destination",
            models.PositiveBigIntegerField(help_text="Grows when calls are made elsewhere or as somebody else.", **NUMBER),
        ),
        migrations.AddField(
            "credential",
            "destination",
            models.PositiveBigIntegerField(help_text="Grows when its calls are made as somebody else.", **NUMBER),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
