"""Adds to a campaign's content the address columns its vendors need, and checks each recipient's address.

Every door checks the rows it takes in. The address is checked again when the pages are made, because the vendor's
settings may have changed since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from campaigns.texts.templates import Budget, Content, Values
from vendors import adapters
from vendors.adapters.addresses import AddressRules, PrintsAddresses


def address_rules(adapter: str, settings: Any) -> AddressRules | None:
    """Return the address rules of a vendor with this adapter and these settings, or None."""
    try:
        kind = adapters.load(adapter)
        return kind.address_rules(settings) if issubclass(kind, PrintsAddresses) else None
    except (LookupError, ImportError, ValueError):
        return None  # other faults of the settings are reported where the adapter is used


def check_addresses(content: Content, demanded: Iterable[AddressRules | None]) -> Content:
    """Return the content with the address columns added and each recipient's address checked.

    demanded: the rules of every vendor the campaign may go by; an address must satisfy all of them.
    """
    rules = list(dict.fromkeys(one for one in demanded if one))
    if not rules:
        return content
    before = content.further

    def find_address_faults(recipient: str, fields: Values, budget: Budget | None) -> Iterator[str]:
        yield from dict.fromkeys(fault for one in rules for fault in one.find_faults(recipient, fields))
        yield from before(recipient, fields, budget) if before else ()

    columns = frozenset().union(*(one.needed_columns for one in rules))
    return replace(
        content, fields=content.fields | columns, optional=content.optional - columns, further=find_address_faults
    )
