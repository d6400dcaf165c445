"""Constraints left behind when an older version's single statements cut the messages into partitions.

Such a constraint refuses every new message above some id, perhaps months later.
"""

from django.db import connection

FIND = """
SELECT c.conrelid::regclass::text AS name, pg_get_constraintdef(c.oid) AS bound
FROM pg_constraint c WHERE c.conname = 'message_until' AND c.coninhcount = 0
"""
REMEDY = "SELECT campaigns_partition_forget_bounds() takes it away"


def find_leftover_bounds() -> list[str]:
    """Return a sentence for each such constraint. Raises Django's database errors."""
    with connection.cursor() as cursor:
        cursor.execute(FIND)
        return [
            f"{name} refuses messages by a constraint that a cut has left behind, message_until: {bound}"
            for name, bound in cursor.fetchall()
        ]
