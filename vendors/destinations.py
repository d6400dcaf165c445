"""Where a credential's calls go and which account they use, as a number that each change raises.

A look-up, a repeat or a report by the vendor's id proves something about a call only where that call was made: at the
same address, in the same account. A credential's number is the sum of two columns, its vendor's and its own, which only
grow. Triggers raise them at each change of adapter, settings, sandbox or secret, from any cause.

If calls still reach the same account, `kept` tells the trigger so. `configuration.save_vendor` uses it for settings
marked as tuning, and after a person states that a new key belongs to the same account.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction
from django.db.models import Model
from django.dispatch import Signal

from vendors import adapters
from vendors.adapters.base import Adapter
from vendors.models import Credential, Vendor

UsedSettings = tuple[str, Mapping[str, Any]]
"""The name of an adapter, and its settings."""

# For a credential l and its vendor v, in SQL.
NUMBER = "(v.destination + l.destination)"

open_doubts = Signal()
"""Asked with `vendor` (an id) and `credential` (an id, or None for all): how many doubts a change would leave to a
person. Receivers return a number; this package knows no letters."""


def count_doubts(vendor: Vendor, credential: Credential | None = None) -> int:
    """Count the messages in doubt that only a person could settle once calls are made elsewhere."""
    answers: Any = open_doubts.send(Vendor, vendor=vendor.pk, credential=credential.pk if credential else None)
    return sum(number for _receiver, number in answers)


def changed_settings(before: UsedSettings, after: UsedSettings) -> list[str]:
    """Return the names of settings whose change redirects calls or makes them as somebody else."""
    return compare_settings(before, after, lambda adapter, settings: adapter.calls_at(settings))


def compare_settings(
    before: UsedSettings, after: UsedSettings, read: Callable[[type[Adapter], Mapping[str, Any]], dict[str, Any]]
) -> list[str]:
    """Return the names of settings that differ for the adapter. Unreadable settings count as different."""
    if before == after:
        return []
    if before[0] != after[0]:
        return ["adapter"]
    try:
        adapter = adapters.load(after[0])
        old, new = read(adapter, before[1]), read(adapter, after[1])
    except (LookupError, ValueError):
        return ["settings"]
    return [name for name in {**old, **new} if old.get(name) != new.get(name)]


@contextmanager
def keep_number(row: Model) -> Iterator[None]:
    """Run the block; changes to this row in it leave its number as it is.

    If the block raises, its changes and the note for the trigger are rolled back.
    """
    with transaction.atomic():
        _announce_same(f"{row._meta.db_table} {row.pk}")
        yield
        _announce_same("")


def _announce_same(row: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('mailhub.same_destination', %s, true)", [row])
