from django.db import migrations, models
from django.db.models.functions import Now

# The vendor's row is locked before the clock is read: claims under the older terms have committed by then.
SINCE = """
CREATE OR REPLACE FUNCTION vendors_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE vendors_credential SET full_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    PERFORM FROM vendors_vendor WHERE id IN (OLD.vendor_id, NEW.vendor_id) ORDER BY id FOR UPDATE;
    UPDATE vendors_vendor SET terms = terms + 1, terms_since = clock_timestamp()
    WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
"""
BEFORE = """
CREATE OR REPLACE FUNCTION vendors_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE vendors_credential SET full_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    UPDATE vendors_vendor SET terms = terms + 1 WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0002_terms")]
    operations = [
        migrations.AddField(
            model_name="vendor",
            name="terms_since",
            field=models.DateTimeField(
                db_default=Now(),
                editable=False,
                help_text="Every call after it was allowed under the limits of today.",
            ),
        ),
        migrations.RunSQL(SINCE, BEFORE),
    ]
