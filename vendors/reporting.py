"""Finds vendors that report deliveries. For all others, *sent* means accepted by the vendor."""

from collections.abc import Collection
from typing import Any

from django.db.models import Exists, OuterRef

from vendors import adapters
from vendors.adapters.reports import FetchesReports
from vendors.models import ReportKey, Vendor


def find_reporting(vendor_ids: Collection[int]) -> set[int]:
    """Return the vendors whose delivery reports can reach us, with one statement.

    Such a vendor sends reports that a key or a credential proves, or mailhub fetches them.
    """
    if not vendor_ids:
        return set()
    keys = ReportKey.objects.filter(vendor=OuterRef("pk"))
    rows = Vendor.objects.filter(pk__in=vendor_ids).only("adapter", "settings").order_by()
    found: Any = rows.annotate(has_key=Exists(keys))
    return {row.pk for row in found if _can_report(row, row.has_key)}


def _can_report(vendor: Vendor, has_key: bool) -> bool:
    try:
        kind = adapters.load(vendor.adapter)
        if issubclass(kind, FetchesReports) and kind.fetches_reports(vendor.settings):
            return True
        return kind.sends_reports(vendor.settings) and (has_key or not kind.asks_report_key(vendor.settings))
    except (LookupError, ValueError):  # an unusable vendor sends no reports
        return False
