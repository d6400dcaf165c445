"""Postal addresses of a campaign's recipients: its columns, and what its vendors demand of what is in them.

A row is checked when it is taken in, by whichever door; a letter again when its pages are made, as the settings may
have changed since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from campaigns.content.templates import Budget, Content, Values
from vendors import adapters
from vendors.adapters.addresses import AddressRules, PrintsAddresses


def address_rules(adapter: str, settings: Any) -> AddressRules | None:
    """What a vendor with this adapter and these settings demands of addresses; None: nothing."""
    try:
        kind = adapters.load(adapter)
        return kind.address_rules(settings) if issubclass(kind, PrintsAddresses) else None
    except (LookupError, ImportError, ValueError):
        return None  # what else it says is told where its adapter is used


def with_addresses(content: Content, demanded: Iterable[AddressRules | None]) -> Content:
    """The content, which also needs the columns of addresses, and checks each recipient's.

    demanded: by each vendor by which its letters may go; each of them must be able to deliver to every recipient.
    """
    rules = list(dict.fromkeys(one for one in demanded if one))
    if not rules:
        return content
    before = content.further

    def further(recipient: str, fields: Values, budget: Budget | None) -> Iterator[str]:
        yield from dict.fromkeys(fault for one in rules for fault in one.faults(recipient, fields))
        yield from before(recipient, fields, budget) if before else ()

    columns = frozenset().union(*(one.columns for one in rules))
    return replace(content, fields=content.fields | columns, optional=content.optional - columns, further=further)
