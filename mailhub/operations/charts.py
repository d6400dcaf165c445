"""The charts of the operations page: the use of each limit's window, and outcomes by minute and vendor."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from campaigns.reporting.forecast.queues import Sponsors
from vendors.limits.values import Limit
from vendors.models import Vendor

CELLS = 20  # windows with more places are drawn as a bar
# One row a vendor, because a day has over a thousand minutes for each.
OUTCOMES = """
SELECT vendor_id, array_agg(extract(epoch FROM at)::bigint), array_agg(count) FROM (
    SELECT vendor_id, at, sum(accepted + refused + in_doubt) AS count FROM vendors_minute
    WHERE at >= %(first)s AND at < %(last)s
        AND (%(sponsors)s::bigint[] IS NULL OR sponsor = ANY(%(sponsors)s::bigint[]))
    GROUP BY 1, 2
) one GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class WindowUsage:
    """The use of a limit's window. used: places taken, or None if Redis does not answer.

    secret: hidden from viewers who do not govern the vendor, as others take places, too.
    """

    limit: Limit
    used: int | None
    secret: bool = False

    @property
    def label(self) -> str:
        return str(self.limit)

    @property
    def cells(self) -> list[bool]:
        """Each place, taken or not; [] if there are too many to draw."""
        units = self.limit.units
        return [place < (self.used or 0) for place in range(units)] if units <= CELLS else []

    @property
    def share(self) -> int:
        """Percentage of places taken."""
        return min(100, round(100 * (self.used or 0) / self.limit.units)) if self.limit.units else 100


def window_meters(limits: Sequence[Limit], taken: Sequence[float] | None) -> list[WindowUsage]:
    """Return the meter of each limit. taken: when each recent call ended, or will have, as the throttle reports."""
    now = time.time()
    if taken is None:
        return [WindowUsage(limit, None) for limit in limits]
    return [WindowUsage(limit, sum(over + limit.seconds > now for over in taken)) for limit in limits]


def throughput_series(now: datetime, minutes: int, sponsors: Sponsors = None) -> dict[str, Any]:
    """Return the last whole minutes: their beginnings (Unix seconds), and each vendor's outcomes and limit a minute.

    It reads vendors_minute and counts no messages. sponsors: outcomes of their mail only; None: of all.
    """
    last = now.replace(second=0, microsecond=0)
    first = last - timedelta(minutes=minutes)
    with connection.cursor() as cursor:
        cursor.execute(OUTCOMES, {"first": first, "last": last, "sponsors": sponsors})
        values = {vendor: dict(zip(at, counts, strict=True)) for vendor, at, counts in cursor.fetchall()}
    times = [int((first + timedelta(minutes=n)).timestamp()) for n in range(minutes)]
    vendors = Vendor.objects.filter(pk__in=values).prefetch_related("limits")
    shown = [(vendor, [values[vendor.pk].get(at, 0) for at in times]) for vendor in vendors]
    series = [{"name": vendor.slug, "values": counts, "limit": per_minute(vendor)} for vendor, counts in shown]
    return {"times": times, "vendors": series}


def limits_of(vendor: Vendor) -> tuple[Limit, ...]:
    """Return the vendor's limits that apply to all its credentials together."""
    return tuple(Limit(one.units, one.seconds) for one in vendor.limits.all() if one.credential_id is None)


def per_minute(vendor: Vendor) -> float | None:
    """Return the calls a minute that the vendor's limits allow on average; None: no limit."""
    rates = [60 * limit.units / limit.seconds for limit in limits_of(vendor)]
    return min(rates) if rates else None
