"""Turns of vendors and credentials: locks that PostgreSQL gives in the order in which they are asked for.

Claims lock the rows of their vendor and credential FOR SHARE. PostgreSQL lets a new share lock pass an update that
waits, so a pause would wait for a gap between claims. Advisory locks are given in their order. A claim shares the turns
of its vendor and its credential just before the rows. A writer takes one of the two alone before its first row of these
tables: the claims before it end, and later claims wait behind it. A vendor's turn is enough for its credentials, too.

Turns come after jobs and before rows, a vendor's before a credential's. Nobody asks for one who holds such a row: a
claim and he would wait for each other. The rows stay the proof. A writer without a turn, as in psql, forbids as much,
but may wait for a gap.
"""

from django.db import connection

from vendors.models import Vendor

_OF_VENDOR, _OF_CREDENTIAL = "hashtext('vendors_vendor')", "hashtext('vendors_credential')"
# In a claim, as a subquery without a column: it is evaluated once, before a row is locked.
SHARED = f"""pg_advisory_xact_lock_shared({_OF_VENDOR}, %(vendor)s::int) IS NOT NULL
    AND pg_advisory_xact_lock_shared({_OF_CREDENTIAL}, %(credential)s::int) IS NOT NULL"""
# The same for rows j with a vendor and a credential; and without waiting, false where somebody waits for a turn alone.
SHARED_OF_ROW = f"""pg_advisory_xact_lock_shared({_OF_VENDOR}, j.vendor_id::int) IS NOT NULL
    AND pg_advisory_xact_lock_shared({_OF_CREDENTIAL}, j.credential_id::int) IS NOT NULL"""
FREE_OF_ROW = f"""pg_try_advisory_xact_lock_shared({_OF_VENDOR}, j.vendor_id::int)
    AND pg_try_advisory_xact_lock_shared({_OF_CREDENTIAL}, j.credential_id::int)"""
# In an UPDATE of one credential, and of a vendor's: the condition is evaluated before the first row is locked.
CREDENTIAL_ALONE = f"pg_advisory_xact_lock({_OF_CREDENTIAL}, id::int) IS NOT NULL"
VENDOR_ALONE = f"pg_advisory_xact_lock({_OF_VENDOR}, vendor_id::int) IS NOT NULL"
ONE_VENDOR_ALONE = f"SELECT pg_advisory_xact_lock({_OF_VENDOR}, %s::int)"
VENDORS_ALONE = f"""
SELECT pg_advisory_xact_lock({_OF_VENDOR}, id::int) FROM (
    SELECT id FROM vendors_vendor WHERE channel = ANY(%(channels)s) ORDER BY id) v
"""


def take_turn(vendor_id: int) -> None:
    """Wait for the claims of a vendor that are under way; later ones wait until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(ONE_VENDOR_ALONE, [vendor_id])


def lock_vendor(vendor_id: int) -> Vendor:
    """Lock a vendor in its turn until the transaction ends, before its credentials as claims do; returns its row.

    Raises Vendor.DoesNotExist.
    """
    take_turn(vendor_id)
    return Vendor.objects.select_for_update(no_key=True).get(pk=vendor_id)
