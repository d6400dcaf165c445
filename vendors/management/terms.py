"""The rate limits of a vendor or of one credential: replaced as a whole, and what they cost in words."""

from collections.abc import Iterable

from django.db import transaction

from vendors.management.arguments import LimitSpec
from vendors.models import Credential, RateLimit, Vendor

LATENCIES = (0.2, 1.0)  # seconds, as examples


def of(vendor: Vendor, credential: Credential | None = None) -> list[LimitSpec]:
    rows = RateLimit.objects.filter(vendor=vendor, credential=credential)
    return [(row.units, row.seconds) for row in rows]


@transaction.atomic
def replace(vendor: Vendor, credential: Credential | None, windows: Iterable[LimitSpec]) -> bool:
    """In force from the next grant on. A limit that stays is not touched. False: nothing had to change."""
    Vendor.objects.select_for_update().get(pk=vendor.pk)  # of two who replace, one after the other
    wanted = {seconds: units for units, seconds in windows}
    there = RateLimit.objects.filter(vendor=vendor, credential=credential)
    gone = [row for row in there if wanted.get(row.seconds) != row.units]
    kept = {row.seconds for row in there} - {row.seconds for row in gone}
    there.filter(pk__in=[row.pk for row in gone]).delete()
    fresh = {seconds: units for seconds, units in wanted.items() if seconds not in kept}
    for seconds, units in fresh.items():
        RateLimit.objects.create(vendor=vendor, credential=credential, units=units, seconds=seconds)
    return bool(gone or fresh)


def price(window: LimitSpec) -> str:
    """What a limit comes to, because a place is held until its window has passed since the call ended."""
    units, seconds = window
    if not units:
        return f"0/{seconds:g}: paused"
    rates = ", ".join(f"{units * seconds / (seconds + wait):.4g} with {wait:g} s" for wait in LATENCIES)
    return (
        f"{units}/{seconds:g}: never more than {units:,} calls in any {seconds:g} s. Reached are "
        f"{units:,} × {seconds:g}/({seconds:g} + the vendor's latency): {rates}. "
        "The longest window that the contract allows is the fastest."
    )
