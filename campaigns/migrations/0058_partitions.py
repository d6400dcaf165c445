from django.db import migrations

# Partitions of messages by ranges of ids (docs/partitioning.md). A function is a part of its caller's transaction: whatever
# ends it, an error, a lock that does not come, a kill, leaves nothing behind. Each answers what it did, in a sentence.
FORWARD = r"""
CREATE FUNCTION campaigns_partition_until() RETURNS bigint LANGUAGE sql AS $$
    SELECT (last_value / 1000000 + 2) * 1000000 FROM campaigns_message_block
$$;

CREATE FUNCTION campaigns_partition_forget_bounds() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    left_behind record;
BEGIN
    FOR left_behind IN SELECT conrelid::regclass AS name FROM pg_constraint
        WHERE conname = 'message_until' AND coninhcount = 0
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT message_until', left_behind.name);
    END LOOP;
END $$;

CREATE FUNCTION campaigns_partition_first() RETURNS text LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    until bigint;
BEGIN
    LOCK TABLE campaigns_message IN ACCESS EXCLUSIVE MODE;
    IF (SELECT relkind FROM pg_class WHERE oid = 'campaigns_message'::regclass) = 'p' THEN
        RETURN 'nothing to do: messages have partitions';
    END IF;
    PERFORM campaigns_partition_forget_bounds();
    until := campaigns_partition_until();
    ALTER TABLE campaigns_message RENAME TO campaigns_message_first;
    ALTER INDEX campaigns_message_pkey RENAME TO campaigns_message_first_pkey;
    ALTER INDEX message_doubts RENAME TO campaigns_message_first_doubts;
    ALTER INDEX message_failed RENAME TO campaigns_message_first_failed;
    ALTER INDEX message_recipient RENAME TO campaigns_message_first_recipient;
    CREATE TABLE campaigns_message (LIKE campaigns_message_first INCLUDING DEFAULTS INCLUDING CONSTRAINTS,
        CONSTRAINT campaigns_message_pkey PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE INDEX message_doubts ON campaigns_message (id) WHERE in_doubt_at IS NOT NULL;
    CREATE INDEX message_failed ON campaigns_message (id) INCLUDE (error_code, error_sub_type)
        WHERE error_code IS NOT NULL;
    CREATE INDEX message_recipient ON campaigns_message (hashtextextended(lower(recipient), 0));
    EXECUTE format('ALTER TABLE campaigns_message ATTACH PARTITION campaigns_message_first'
        ' FOR VALUES FROM (MINVALUE) TO (%s)', until);
    EXECUTE format('CREATE TABLE campaigns_message_next PARTITION OF campaigns_message'
        ' FOR VALUES FROM (%s) TO (MAXVALUE) WITH (fillfactor = 40)', until);
    RETURN format('campaigns_message_first has the messages below %s', until);
END $$;

CREATE FUNCTION campaigns_partition_month(month text DEFAULT to_char(now(), 'YYYY_MM'))
RETURNS text LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    since bigint;
    until bigint;
    name text := 'campaigns_message_' || month;
    number int := 1;
BEGIN
    IF to_regclass('campaigns_message_next') IS NULL THEN
        RETURN 'nothing to cut: messages have no partitions';
    END IF;
    LOCK TABLE campaigns_message IN ACCESS EXCLUSIVE MODE;
    PERFORM campaigns_partition_forget_bounds();
    SELECT substring(pg_get_expr(relpartbound, oid) FROM $b$FROM \('?(\d+)$b$) INTO since FROM pg_class
    WHERE oid = 'campaigns_message_next'::regclass;
    until := campaigns_partition_until();
    IF since IS NULL OR until <= since OR (SELECT last_value FROM campaigns_message_block) < since THEN
        RETURN format('nothing to cut: the open partition begins at %s', since);
    END IF;
    WHILE to_regclass(name) IS NOT NULL LOOP
        number := number + 1;
        name := format('campaigns_message_%s_%s', month, number);
    END LOOP;
    ALTER TABLE campaigns_message DETACH PARTITION campaigns_message_next;
    EXECUTE format('ALTER TABLE campaigns_message_next RENAME TO %I', name);
    EXECUTE format('ALTER TABLE campaigns_message ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', name, since, until);
    EXECUTE format('CREATE TABLE campaigns_message_next PARTITION OF campaigns_message'
        ' FOR VALUES FROM (%s) TO (MAXVALUE) WITH (fillfactor = 40)', until);
    RETURN format('%s has the messages from %s to %s', name, since, until - 1);
END $$;

CREATE FUNCTION campaigns_partition_in_use(part regclass) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    found bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM campaigns_job j WHERE j.finished_at IS NULL
        AND EXISTS (SELECT FROM %1$s m WHERE m.id >= j.first_message AND m.id < j.first_message + j.size)
        OR EXISTS (SELECT FROM %1$s m WHERE m.in_doubt_at IS NOT NULL)', part) INTO found;
    RETURN found;
END $$;

CREATE FUNCTION campaigns_partition_leave(part regclass) RETURNS text LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    until bigint;
BEGIN
    IF part = 'campaigns_message_next'::regclass
        OR NOT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = part AND inhparent = 'campaigns_message'::regclass) THEN
        RETURN format('nothing to do: %s is no closed partition of the messages', part);
    END IF;
    LOCK TABLE campaigns_message IN ACCESS EXCLUSIVE MODE;
    SELECT substring(pg_get_expr(relpartbound, oid) FROM $b$TO \('?(\d+)$b$) INTO until FROM pg_class WHERE oid = part;
    IF until IS NULL OR (SELECT last_value FROM campaigns_message_block) < until THEN
        RETURN format('%s stays: new messages still go into it', part);
    END IF;
    IF campaigns_partition_in_use(part) > 0 THEN
        RETURN format('%s stays: jobs that have not ended, or doubts, are in it', part);
    END IF;
    EXECUTE format('ALTER TABLE campaigns_message DETACH PARTITION %s', part);
    RETURN format('%s has left: dump it, then drop it', part);
END $$;
"""
BACKWARD = """
DROP FUNCTION campaigns_partition_leave(regclass);
DROP FUNCTION campaigns_partition_in_use(regclass);
DROP FUNCTION campaigns_partition_month(text);
DROP FUNCTION campaigns_partition_first();
DROP FUNCTION campaigns_partition_forget_bounds();
DROP FUNCTION campaigns_partition_until();
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0057_claim_ledger")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
