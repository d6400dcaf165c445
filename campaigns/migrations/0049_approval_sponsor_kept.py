from django.db import migrations

# Whose approval it is decides who sees it and may decide: it is its campaign's for good.
KEPT = """
CREATE OR REPLACE FUNCTION campaigns_approval_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' OR OLD.verdict IS NOT NULL
        OR (NEW.campaign_id, {sponsor}NEW.asked_kind, NEW.asked_by, NEW.asked_user, NEW.asked_at, NEW.recipients,
            NEW.digest, NEW.frozen) IS DISTINCT FROM (OLD.campaign_id, {was}OLD.asked_kind, OLD.asked_by,
            OLD.asked_user, OLD.asked_at, OLD.recipients, OLD.digest, OLD.frozen) THEN
        RAISE EXCEPTION 'an approval is decided once, and never changed or deleted';
    END IF;
    RETURN NEW;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0048_hours_of_each")]

    operations = [
        migrations.RunSQL(
            KEPT.format(sponsor="NEW.sponsor_id, ", was="OLD.sponsor_id, "), KEPT.format(sponsor="", was="")
        )
    ]
