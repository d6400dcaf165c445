from django.db import migrations

# Rows of both tables are updated in place: room on the page keeps the updates heap-only (no index is touched). A slice
# of messages is enqueued in one transaction, so a page of 40 % takes a second version of all its rows: all stay when
# they are enqueued, nine in ten when they are finalised, and table and index together are no larger in the end.
# The ops table is emptied again and again: vacuum it by how much changed, not by how big it is.
FORWARD = """
ALTER TABLE campaigns_message SET (fillfactor = 40);
ALTER TABLE campaigns_opsmessage SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000);
CREATE SEQUENCE campaigns_message_block AS bigint;
"""
BACKWARD = """
ALTER TABLE campaigns_message RESET (fillfactor);
ALTER TABLE campaigns_opsmessage RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay, autovacuum_analyze_scale_factor, autovacuum_analyze_threshold);
DROP SEQUENCE campaigns_message_block;
"""


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
