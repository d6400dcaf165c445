"""Where and as whom a credential's calls are made, as a number that each change raises.

A look-up, a repeat or a report by the vendor's id proves something about a call only where that call was made: at the
same address, in the same account. The number of a credential is the sum of two columns, one of its vendor and one of
its own; both only grow. Triggers raise them with every change of adapter, settings, sandbox or secret, whatever makes
it. Whoever knows that calls still reach the same account says so to the trigger (`kept`): `configuration.save_vendor`
for settings that are marked as tuning, and a person for a new key of the same account.
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

# Of a credential l and its vendor v, in SQL.
NUMBER = "(v.destination + l.destination)"

open_doubts = Signal()
"""Asked with `vendor` (an id) and `credential` (an id, or None for all): how many doubts a change would leave to a
person. Receivers return a number; this package knows no letters."""


def count_doubts(vendor: Vendor, credential: Credential | None = None) -> int:
    """Count the messages in doubt that only a person could settle once calls are made elsewhere."""
    answers: Any = open_doubts.send(Vendor, vendor=vendor.pk, credential=credential.pk if credential else None)
    return sum(number for _receiver, number in answers)


def changed_settings(before: UsedSettings, after: UsedSettings) -> list[str]:
    """Return the names of the settings by which calls are made elsewhere or as somebody else; [] if there are none."""
    return compare_settings(before, after, lambda adapter, settings: adapter.calls_at(settings))


def compare_settings(
    before: UsedSettings, after: UsedSettings, read: Callable[[type[Adapter], Mapping[str, Any]], dict[str, Any]]
) -> list[str]:
    """Return the names of the settings that differ, as the adapter reads them. Those that it cannot read differ."""
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
def kept(row: Model) -> Iterator[None]:
    """Run the block, in which a change of this row leaves its number as it is.

    If the block raises, what it has changed is undone, and so is what the trigger was told.
    """
    with transaction.atomic():
        _say(f"{row._meta.db_table} {row.pk}")
        yield
        _say("")


def _say(row: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('mailhub.same_destination', %s, true)", [row])
