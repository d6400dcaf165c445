"""Reasons why a credential is shut: nothing is called until a person acts. Decided and worded only here.

Shut means paused or with a limit of 0: the vendor with all its credentials, or one of them. A vendor's request to wait
and a full window are different, because they end without help. The sentences are repeated in English in
campaigns/stored_forms.py.
"""

from django.db.models import TextField
from django.db.models.expressions import RawSQL

LIMIT_OF_0 = "the vendor's limit is 0"
# For a vendor v, and for a credential l alone: a sentence; NULL: it is not shut.
VENDOR = f"""CASE WHEN v.paused THEN rtrim('vendor paused: ' || v.paused_reason, ': ')
    WHEN EXISTS (SELECT FROM vendors_ratelimit r WHERE r.vendor_id = v.id AND r.credential_id IS NULL AND r.units = 0)
    THEN '{LIMIT_OF_0.replace("'", "''")}' END"""
LOGIN = """CASE WHEN l.paused THEN rtrim('credential ' || l.name || ' paused: ' || l.paused_reason, ': ')
    WHEN EXISTS (SELECT FROM vendors_ratelimit r WHERE r.vendor_id = l.vendor_id AND r.credential_id = l.id
        AND r.units = 0)
    THEN 'credential ' || l.name || ': a limit is 0' END"""
# For a credential l and its vendor v.
WHY = f"coalesce({VENDOR}, {LOGIN})"
LOGINS = f"""
SELECT l.id, l.vendor_id FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id WHERE {WHY} IS NOT NULL
"""
# An annotation of credentials.
OF_LOGINS = RawSQL(
    f"SELECT {WHY} FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id"
    " WHERE l.id = vendors_credential.id",
    (),
    output_field=TextField(null=True),
)


def brief(why: str) -> str:
    """Return the reason without users' words and credential names, for users who do not govern the vendor.

    Any other sentence is returned unchanged.
    """
    if why.startswith("vendor paused"):
        return "vendor paused"
    if why.startswith("credential "):
        return "a limit of its credential is 0" if why.endswith(": a limit is 0") else "credential paused"
    return why
