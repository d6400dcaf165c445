"""How full the window of a vendor's limit is, read from the throttle itself."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from vendors.limits.values import Limit

CELLS = 20  # up to so many places are drawn one by one
SPANS = {3600.0: "hour", 86_400.0: "day"}


@dataclass(frozen=True, slots=True)
class WindowUsage:
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


def meters(limits: Sequence[Limit], taken: Sequence[float] | None) -> list[WindowUsage]:
    now = time.time()
    if taken is None:
        return [WindowUsage(limit, None) for limit in limits]
    return [WindowUsage(limit, sum(over + limit.seconds > now for over in taken)) for limit in limits]
