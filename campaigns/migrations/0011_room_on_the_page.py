from django.db import migrations

# A page that is full at 60 % has no room for a second version of all its rows, and a slice is enqueued in one
# transaction: a third of the rows moved to other pages, each with a new index entry. At 40 % all stay when they are
# enqueued and nine in ten when they are finalised. Table and index together are no larger in the end.
FORWARD = "ALTER TABLE campaigns_message SET (fillfactor = 40)"
BACKWARD = "ALTER TABLE campaigns_message SET (fillfactor = 60)"


class Migration(migrations.Migration):
    dependencies = [("campaigns", "0010_receipts")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
