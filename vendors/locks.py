"""Turns of vendors and credentials: locks that PostgreSQL grants in the order of the requests.

Claims lock the rows of their vendor and credential FOR SHARE. PostgreSQL lets a new share lock pass a waiting update,
so a pause would wait for a gap between claims. Advisory locks are granted in order. A claim shares the turns of its
vendor and its credential just before it locks the rows. A writer takes one of the two exclusively before its first row
of these tables; earlier claims end, and later ones wait behind it. A vendor's turn also covers its credentials.

Order: jobs, then turns, then rows; a vendor's turn before a credential's. Nobody who holds such a row may ask for a
turn: they and a claim would deadlock. The rows remain the proof. A writer without a turn, such as psql, is as effective
but may wait for a gap.
"""

from django.db import connection

from vendors.models import Vendor

_OF_VENDOR, _OF_CREDENTIAL = "hashtext('vendors_vendor')", "hashtext('vendors_credential')"
# In a claim, as a subquery without a column: evaluated once, before a row is locked.
SHARED = f"""pg_advisory_xact_lock_shared({_OF_VENDOR}, %(vendor)s::int) IS NOT NULL
    AND pg_advisory_xact_lock_shared({_OF_CREDENTIAL}, %(credential)s::int) IS NOT NULL"""
# The same for rows j with a vendor and a credential. FREE_OF_ROW does not wait; it is false if somebody waits for an
# exclusive turn.
SHARED_OF_ROW = f"""pg_advisory_xact_lock_shared({_OF_VENDOR}, j.vendor_id::int) IS NOT NULL
    AND pg_advisory_xact_lock_shared({_OF_CREDENTIAL}, j.credential_id::int) IS NOT NULL"""
FREE_OF_ROW = f"""pg_try_advisory_xact_lock_shared({_OF_VENDOR}, j.vendor_id::int)
    AND pg_try_advisory_xact_lock_shared({_OF_CREDENTIAL}, j.credential_id::int)"""
# In an UPDATE of one credential, or of a vendor's: evaluated before the first row is locked.
CREDENTIAL_ALONE = f"pg_advisory_xact_lock({_OF_CREDENTIAL}, id::int) IS NOT NULL"
VENDOR_ALONE = f"pg_advisory_xact_lock({_OF_VENDOR}, vendor_id::int) IS NOT NULL"
ONE_VENDOR_ALONE = f"SELECT pg_advisory_xact_lock({_OF_VENDOR}, %s::int)"
VENDORS_ALONE = f"""
SELECT pg_advisory_xact_lock({_OF_VENDOR}, id::int) FROM (
    SELECT id FROM vendors_vendor WHERE channel = ANY(%(channels)s) ORDER BY id) v
"""


def take_turn(vendor_id: int) -> None:
    """Wait for a vendor's running claims. Later ones wait until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(ONE_VENDOR_ALONE, [vendor_id])


def lock_vendor(vendor_id: int) -> Vendor:
    """Lock a vendor in its turn, and before its credentials, until the transaction ends. Returns its row.

    Raises Vendor.DoesNotExist.
    """
    take_turn(vendor_id)
    return Vendor.objects.select_for_update(no_key=True).get(pk=vendor_id)
