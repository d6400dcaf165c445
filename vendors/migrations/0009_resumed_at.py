from django.db import migrations, models

# Whoever ends a pause, by whatever way, is seen in the row: what waited for it waits for a sender since then only.
FORWARD = """
CREATE FUNCTION vendors_resumed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.resumed_at = clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER resumed BEFORE UPDATE OF paused ON vendors_vendor
    FOR EACH ROW WHEN (OLD.paused AND NOT NEW.paused) EXECUTE FUNCTION vendors_resumed();
CREATE TRIGGER resumed BEFORE UPDATE OF paused ON vendors_credential
    FOR EACH ROW WHEN (OLD.paused AND NOT NEW.paused) EXECUTE FUNCTION vendors_resumed();
"""
BACKWARD = """
DROP TRIGGER resumed ON vendors_credential;
DROP TRIGGER resumed ON vendors_vendor;
DROP FUNCTION vendors_resumed();
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0008_costs")]

    operations = [
        migrations.AddField("vendor", "resumed_at", models.DateTimeField(editable=False, null=True)),
        migrations.AddField("credential", "resumed_at", models.DateTimeField(editable=False, null=True)),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
