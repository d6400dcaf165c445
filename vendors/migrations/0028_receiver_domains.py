from django.db import migrations, models

# Senders read the domains with the limits: no claim is made under another version. The limits of receivers are touched,
# because their windows begin anew.
FORWARD = """
CREATE FUNCTION vendors_receiver_domains() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('vendors_vendor'), id::int) FROM (
        SELECT id FROM vendors_vendor WHERE channel = 'email' ORDER BY id) v;
    PERFORM FROM vendors_vendor WHERE channel = 'email' ORDER BY id FOR NO KEY UPDATE;
    UPDATE vendors_vendor SET limits_version = limits_version + 1 WHERE channel = 'email';
    UPDATE vendors_receiverlimit SET units = units;
    RETURN NULL;
END $$;
CREATE TRIGGER limits_version AFTER INSERT OR UPDATE OR DELETE ON vendors_receiverdomain
    FOR EACH STATEMENT EXECUTE FUNCTION vendors_receiver_domains();
"""
BACKWARD = """
DROP TRIGGER limits_version ON vendors_receiverdomain;
DROP FUNCTION vendors_receiver_domains();
"""


class Migration(migrations.Migration):
    dependencies = [("vendors", "0027_receiver_warned_at")]

    operations = [
        migrations.CreateModel(
            name="ReceiverDomain",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "domain",
                    models.CharField(
                        help_text="Such as example.org", max_length=253, unique=True, verbose_name="domain"
                    ),
                ),
                (
                    "receiver",
                    models.CharField(
                        help_text="Such as gmail, or a new name; * for none", max_length=40, verbose_name="group"
                    ),
                ),
            ],
            options={
                "verbose_name": "domain of a receiver",
                "verbose_name_plural": "domains of receivers",
                "ordering": ["domain"],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
