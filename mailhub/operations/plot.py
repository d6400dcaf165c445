"""Messages per minute and vendor, with the limit, for the plot: 60 rows an hour and share, no count over messages."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Sum

from campaigns.forecast.queues import Sponsors
from mailhub.operations.dashboard import limits_of
from vendors.models import Minute, Vendor


def throughput(now: datetime, minutes: int, sponsors: Sponsors = None) -> dict[str, Any]:
    """The last so many whole minutes: their beginnings (unix seconds) and each vendor's answers and limit.

    Answers to these sponsors' mail; None: to everybody's.
    """
    last = now.replace(second=0, microsecond=0)
    first = last - timedelta(minutes=minutes)
    values: dict[int, dict[int, int]] = defaultdict(dict)
    minute = Minute.objects.filter(at__gte=first, at__lt=last)
    told = (minute if sponsors is None else minute.filter(sponsor__in=sponsors)).values_list("vendor_id", "at")
    for vendor_id, at, count in told.annotate(count=Sum(F("accepted") + F("refused") + F("in_doubt"))):
        values[vendor_id][int(at.timestamp())] = count
    times = [int((first + timedelta(minutes=n)).timestamp()) for n in range(minutes)]
    vendors = Vendor.objects.filter(pk__in=values).prefetch_related("limits")
    rows = [(vendor, [values[vendor.pk].get(at, 0) for at in times]) for vendor in vendors]
    series = [{"name": vendor.slug, "values": counts, "limit": per_minute(vendor)} for vendor, counts in rows]
    return {"times": times, "vendors": series}


def per_minute(vendor: Vendor) -> float | None:
    """What its limits allow in the long run; None: without a limit."""
    rates = [60 * limit.units / limit.seconds for limit in limits_of(vendor)]
    return min(rates) if rates else None
