"""Where a vendor's secrets go. Who changes that need not know them, so what is stored is forgotten.

Otherwise whoever may edit a vendor could read its secrets: by one letter to an address of their own.
"""

from collections.abc import Collection
from typing import Any

from django.db import transaction

from vendors import adapters, history
from vendors.adapters.options import InvalidSettings
from vendors.models import Credential, Vendor


def save(row: Vendor, fields: Collection[str], by: history.Person) -> list[Credential]:
    """Stores these fields of a vendor; the only way in which its adapter and settings are changed.

    Returns the credentials whose secrets were forgotten: they are paused until new ones are entered.
    """
    with transaction.atomic():
        before = Vendor.objects.select_for_update(no_key=True).get(pk=row.pk)
        row.save(update_fields=fields)
        after = Vendor.objects.get(pk=row.pk)
        moved = _moved((before.adapter, before.settings), (after.adapter, after.settings))
        if not moved:
            return []
        reason = f"its secret is forgotten, for its vendor's {' and '.join(moved)} changed: enter it again"
        logins: Any = after.credentials.select_for_update(no_key=True, of=["self"]).select_related("vendor")
        forgotten: list[Any] = [login for login in logins if login.secret]
        for login in forgotten:
            login.secret = {}
            login.paused_reason = f"{reason} (was paused: {login.paused_reason})" if login.paused else reason
            login.paused_reason = login.paused_reason[:255]
            login.paused = True
            login.save(update_fields=["secret", "paused", "paused_reason"])
        history.write(by, Credential, [(login.pk, f"paused: {reason}") for login in forgotten])
        return forgotten


def _moved(before: tuple[str, Any], after: tuple[str, Any]) -> list[str]:
    """The names of what changed of where a secret goes."""
    if before == after:
        return []
    if before[0] != after[0]:
        return ["adapter"]
    try:
        kind = adapters.load(after[0])
        old, new = kind.destination(before[1]), kind.destination(after[1])
    except (LookupError, InvalidSettings):  # nobody can say where it went, or goes
        return ["settings"]
    return [name for name in new if old[name] != new[name]]
