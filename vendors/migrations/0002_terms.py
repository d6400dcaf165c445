from django.db import migrations, models

# Whoever edits a limit, by whatever way, counts the vendor's terms up; a claim under older terms claims nothing.
FORWARD = """
ALTER TABLE vendors_usage SET (fillfactor = 100, autovacuum_vacuum_insert_scale_factor = 0.5);
CREATE FUNCTION vendors_terms() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE vendors_credential SET full_until = NULL WHERE vendor_id IN (OLD.vendor_id, NEW.vendor_id);
    UPDATE vendors_vendor SET terms = terms + 1 WHERE id IN (OLD.vendor_id, NEW.vendor_id);
    RETURN NULL;
END $$;
CREATE TRIGGER limit_terms AFTER INSERT OR UPDATE OR DELETE ON vendors_ratelimit
    FOR EACH ROW EXECUTE FUNCTION vendors_terms();
"""
BACKWARD = """
DROP TRIGGER limit_terms ON vendors_ratelimit;
DROP FUNCTION vendors_terms();
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0001_initial")]
    operations = [
        migrations.AddField(
            model_name="vendor",
            name="terms",
            field=models.PositiveBigIntegerField(
                default=0, db_default=0, editable=False, help_text="Counts the edits of the vendor's limits."
            ),
        ),
        migrations.AddField(
            model_name="credential",
            name="full_until",
            field=models.DateTimeField(
                blank=True, editable=False, help_text="The window has no place before then.", null=True
            ),
        ),
        migrations.AlterField(
            model_name="credential",
            name="closed_until",
            field=models.DateTimeField(
                blank=True, editable=False, help_text="The vendor said Retry-After: no call before then.", null=True
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
