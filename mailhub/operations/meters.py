"""How full the window of a vendor's limit is, read from the throttle itself."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from django.conf import settings

from vendors import stores
from vendors.limits import Limit, Scope
from vendors.throttle import Throttle, Unreachable

CELLS = 20  # up to so many places are drawn one by one
SPANS = {3600.0: "hour", 86_400.0: "day"}
PATIENCE = 1.0  # seconds; a page waits no longer for Redis


@dataclass(frozen=True, slots=True)
class Meter:
    """One limit and how many of its places are taken; None: Redis cannot be asked."""

    limit: Limit
    used: int | None

    @property
    def words(self) -> str:
        return f"{self.limit.units:,} per {SPANS.get(self.limit.seconds) or f'{self.limit.seconds:g} s'}"

    @property
    def cells(self) -> list[bool]:
        """Each place, taken or not; empty where they are too many to draw."""
        units = self.limit.units
        return [place < (self.used or 0) for place in range(units)] if units <= CELLS else []

    @property
    def share(self) -> int:
        """Percent taken."""
        return min(100, round(100 * (self.used or 0) / self.limit.units)) if self.limit.units else 100


def places(vendor_id: int, limits: Sequence[Limit]) -> list[float] | None:
    """When the vendor's latest calls were over or will be at the latest; None: Redis cannot be asked."""
    if not limits:
        return []
    most = max(limit.units for limit in limits)
    try:
        return _throttle(settings.REDIS_URL).places(Scope(vendor_id, 0, 0), most=min(10_000, max(1, most)))[0]
    except Unreachable:
        return None


def meters(limits: Sequence[Limit], taken: Sequence[float] | None) -> list[Meter]:
    now = time.time()
    if taken is None:
        return [Meter(limit, None) for limit in limits]
    return [Meter(limit, sum(over + limit.seconds > now for over in taken)) for limit in limits]


@cache
def _throttle(url: str) -> Throttle:
    return Throttle(stores.redis(url, PATIENCE))
