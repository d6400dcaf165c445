"""The mailcasters that a new vendor starts with (document 003)."""

from vendors.models import Mailcaster, Vendor

KIND = Mailcaster.Kind
# A caster that is there for small jobs cuts small children (the sizes of document 003's example), so that it is soon
# free for the next small job; the others cut by the document's defaults. One serves nothing but small jobs: a long
# broadcast never holds up a single letter.
DEFAULT = (
    ("MC1", KIND.SMALL_ONLY, 200, 2000),
    ("MC2", KIND.SMALL_PRIORITY, 200, 2000),
    ("MC3", KIND.LARGE_PRIORITY, 2000, 10_000),
    ("MC4", KIND.LARGE_PRIORITY, 2000, 10_000),
)
PERCENTAGE = 3


def default_set(vendor: Vendor) -> list[Mailcaster]:
    """Creates a sensible set of casters for a vendor that has none of these names; in waking order."""
    return [
        Mailcaster.objects.create(
            vendor=vendor, name=name, kind=kind, min_size=low, max_size=high, percentage=PERCENTAGE
        )
        for name, kind, low, high in DEFAULT
    ]
