"""Constraints left behind when an older version's single statements cut the messages into partitions.

Such a constraint refuses every new message above some id, perhaps months later.
"""

from django.db import connection

from vendors.said import Said, gettext_noop

FIND = """
SELECT c.conrelid::regclass::text AS name, pg_get_constraintdef(c.oid) AS bound
FROM pg_constraint c WHERE c.conname = 'message_until' AND c.coninhcount = 0
"""
REMEDY = Said("SELECT campaigns_partition_forget_bounds() takes it away")
REFUSES = gettext_noop("%(table)s refuses messages by a constraint that a cut has left behind, message_until: %(what)s")


def find_leftover_bounds() -> list[Said]:
    """Return a sentence for each such constraint. Raises Django's database errors."""
    with connection.cursor() as cursor:
        cursor.execute(FIND)
        return [Said(REFUSES, table=name, what=bound) for name, bound in cursor.fetchall()]
