from django.db import migrations

# A claim asks for the number itself, under the locks of the vendor and of its credential, in that order. So a change of
# one row touches no other one: whoever held a credential and waited for its vendor would wait for a claim that waits
# for the credential.
FORWARD = """
CREATE OR REPLACE FUNCTION vendors_vendor_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.destination = OLD.destination;
    IF (OLD.adapter, OLD.settings, OLD.sandbox) IS DISTINCT FROM (NEW.adapter, NEW.settings, NEW.sandbox)
        AND current_setting('mailhub.same_destination', true) IS DISTINCT FROM 'vendors_vendor ' || NEW.id
    THEN
        NEW.destination = vendors_destination(OLD.destination);
    END IF;
    RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION vendors_credential_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.destination = OLD.destination;
    IF (OLD.secret, OLD.vendor_id) IS DISTINCT FROM (NEW.secret, NEW.vendor_id)
        AND current_setting('mailhub.same_destination', true) IS DISTINCT FROM 'vendors_credential ' || NEW.id
    THEN
        NEW.destination = vendors_destination(OLD.destination);
    END IF;
    RETURN NEW;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0014_vendor_change")]

    operations = [migrations.RunSQL(FORWARD, migrations.RunSQL.noop)]
