from django.db import migrations

# A crash of PostgreSQL empties tables that are not logged, an orderly restart does not: while the row is there, nothing
# that was committed can have been lost (campaigns/engine/failover/guard.py). Such tables cannot be read on a standby.
FORWARD = """
CREATE UNLOGGED TABLE campaigns_intact (id smallint PRIMARY KEY CHECK (id = 1));
INSERT INTO campaigns_intact VALUES (1);
CREATE FUNCTION campaigns_is_intact() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN false;
    END IF;
    RETURN EXISTS (SELECT FROM campaigns_intact);
END $$;
"""
BACKWARD = """
DROP FUNCTION campaigns_is_intact();
DROP TABLE campaigns_intact;
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0055_destinations")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
