"""Reasons for shutting a credential: nothing is called until a person acts. Decided and worded only here.

Shut means paused or with a limit of 0: the vendor with all its credentials, or one of them; or a credential whose brake
an operator holds (vendors/condition). A vendor's request to wait, a full window and a brake that nobody holds are
different, because they end without help.
"""

from django.db.models import TextField
from django.db.models.expressions import RawSQL

from vendors.said import gettext_noop

PAUSED = gettext_noop("vendor paused: %(why)s")
LIMIT_OF_0 = gettext_noop("the vendor's limit is 0")
LOGIN_PAUSED = gettext_noop("credential %(name)s paused: %(why)s")
LOGIN_LIMIT_OF_0 = gettext_noop("credential %(name)s: a limit is 0")
LOGIN_HELD = gettext_noop("credential %(name)s: held after calls without a clear answer")
# Without users' words and credential names, for users who do not govern the vendor.
BRIEFLY = (
    gettext_noop("vendor paused"),
    gettext_noop("credential paused"),
    gettext_noop("a limit of its credential is 0"),
    gettext_noop("credential held after calls without a clear answer"),
)
_VENDOR_LIMIT = """EXISTS (
    SELECT FROM vendors_ratelimit r WHERE r.vendor_id = v.id AND r.credential_id IS NULL AND r.units = 0)"""
_LOGIN_LIMIT = """EXISTS (
    SELECT FROM vendors_ratelimit r WHERE r.vendor_id = l.vendor_id AND r.credential_id = l.id AND r.units = 0)"""
_LIMIT = "'" + LIMIT_OF_0.replace("'", "''") + "'"
# For a vendor v, and for a credential l alone: a sentence; NULL: it is not shut.
VENDOR = f"""CASE WHEN v.paused THEN rtrim('vendor paused: ' || v.paused_reason, ': ')
    WHEN {_VENDOR_LIMIT} THEN {_LIMIT} END"""
LOGIN = f"""CASE WHEN l.paused THEN rtrim('credential ' || l.name || ' paused: ' || l.paused_reason, ': ')
    WHEN {_LOGIN_LIMIT} THEN 'credential ' || l.name || ': a limit is 0'
    WHEN l.brake_held_at IS NOT NULL THEN 'credential ' || l.name || ': held after calls without a clear answer' END"""
# The same for a page: form and values of the sentence (vendors/said.py). Stands in statements with parameters only.
VENDOR_SAID = f"""CASE WHEN v.paused THEN jsonb_build_object('form',
        CASE v.paused_reason WHEN '' THEN 'vendor paused' ELSE '{PAUSED.replace("%", "%%")}' END,
        'values', jsonb_build_object('why', coalesce(v.paused_reason_said, to_jsonb(v.paused_reason))))
    WHEN {_VENDOR_LIMIT} THEN jsonb_build_object('form', {_LIMIT}, 'values', jsonb_build_object()) END"""
LOGIN_SAID = f"""CASE WHEN l.paused THEN jsonb_build_object('form',
        CASE l.paused_reason WHEN '' THEN 'credential %%(name)s paused' ELSE '{LOGIN_PAUSED.replace("%", "%%")}' END,
        'values', jsonb_build_object('name', l.name, 'why', coalesce(l.paused_reason_said, to_jsonb(l.paused_reason))))
    WHEN {_LOGIN_LIMIT} THEN jsonb_build_object('form', '{LOGIN_LIMIT_OF_0.replace("%", "%%")}',
        'values', jsonb_build_object('name', l.name))
    WHEN l.brake_held_at IS NOT NULL THEN jsonb_build_object('form', '{LOGIN_HELD.replace("%", "%%")}',
        'values', jsonb_build_object('name', l.name)) END"""
VENDOR_BRIEF = f"CASE WHEN v.paused THEN '{BRIEFLY[0]}' WHEN {_VENDOR_LIMIT} THEN {_LIMIT} END"
LOGIN_BRIEF = f"""CASE WHEN l.paused THEN '{BRIEFLY[1]}' WHEN {_LOGIN_LIMIT} THEN '{BRIEFLY[2]}'
    WHEN l.brake_held_at IS NOT NULL THEN '{BRIEFLY[3]}' END"""
# For a credential l and its vendor v.
WHY = f"coalesce({VENDOR}, {LOGIN})"
SAID = f"coalesce({VENDOR_SAID}, {LOGIN_SAID})"
BRIEF = f"coalesce({VENDOR_BRIEF}, {LOGIN_BRIEF})"
LOGINS = f"""
SELECT l.id, l.vendor_id FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id WHERE {WHY} IS NOT NULL
"""


def _annotate_logins(what: str) -> RawSQL:
    """Return an annotation of credentials."""
    return RawSQL(
        f"SELECT {what} FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id"
        " WHERE l.id = vendors_credential.id",
        (),
        output_field=TextField(null=True),
    )


OF_LOGINS = _annotate_logins(WHY)
BRIEF_OF_LOGINS = _annotate_logins(BRIEF)
gettext_noop("credential %(name)s paused")  # without a reason
