"""The shares of sponsors in a vendor's rate, as a fluid model of the turns (campaigns/engine/turns.py). Pure.

Sponsors with queued units get the rate by their weights. A sponsor gets no more than its own limits allow (its cap);
the others share the rest by their weights again (water-filling). A sponsor leaves when its units are done. Classes of
mail come before the weights: `split_rate` and `FairShares` would share out the rate of one class after another.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass

ENOUGH = 1e-9  # relative; below it a rate is rounding


@dataclass(frozen=True, slots=True)
class Claimant:
    """A sponsor with queued units at a vendor. cap: the units a second that its own limits allow."""

    sponsor: int
    weight: int
    units: float
    cap: float = math.inf


def split_rate(rate: float, claimants: Iterable[Claimant]) -> dict[int, float]:
    """Return the units a second of each sponsor: by weight, none more than its cap, together at most `rate`."""
    left, weights = rate, 0
    asking = sorted(claimants, key=lambda one: (one.cap / one.weight, one.sponsor))
    weights = sum(one.weight for one in asking)
    shares = dict[int, float]()
    for one in asking:
        shares[one.sponsor] = share = min(one.cap, left * one.weight / weights)
        left, weights = max(0.0, left - share), weights - one.weight
    return shares


@dataclass(frozen=True, slots=True)
class _Bend:
    """A moment at which the rates change. level: the units by then of a sponsor with weight 1 and without a cap."""

    seconds: float
    level: float
    slope: float  # of level, a second, from then on


class FairShares:
    """How a vendor's queue is worked off from now on, if nobody comes or goes.

    rate: units a second that the vendor allows. As sponsors leave, the level rises faster, so a sponsor that has come
    to its cap stays there. With n sponsors it takes n·log n steps, however many jobs are asked about.
    """

    def __init__(self, rate: float, claimants: Collection[Claimant]) -> None:
        self.rate = rate
        self._of = {one.sponsor: one for one in claimants if one.units > 0 and one.cap > 0}
        self._capped = dict[int, tuple[float, float]]()  # by sponsor: seconds and its units when it came to its cap
        self._bends = list[_Bend]()
        if math.isfinite(rate) and rate > 0:
            self._work_off()

    def seconds_until(self, sponsor: int, units: float) -> float:
        """Return the seconds until this sponsor has been given so many units; inf if never.

        units: at most as many as the sponsor has queued.
        """
        one = self._of.get(sponsor)
        if one is None or units <= 0:
            return 0.0 if units <= 0 else math.inf
        if not self._bends:
            return units / one.cap if self.rate > 0 else math.inf
        at, had = self._capped.get(sponsor, (math.inf, math.inf))
        if units > had:
            return at + (units - had) / one.cap
        level = units / one.weight
        bend = self._bends[max(0, bisect_left(self._bends, level, key=lambda each: each.level) - 1)]
        return bend.seconds + (level - bend.level) / bend.slope if level > bend.level else bend.seconds

    def _work_off(self) -> None:
        """Walk from one sponsor's end, or arrival at its cap, to the next."""
        by_end = sorted(self._of.values(), key=lambda one: one.units / one.weight, reverse=True)
        by_cap = sorted(
            (one for one in by_end if one.cap < math.inf), key=lambda one: one.cap / one.weight, reverse=True
        )
        weights, caps = sum(one.weight for one in by_end), 0.0
        seconds = level = 0.0
        ends: list[tuple[float, int]] = []  # of sponsors at their caps
        done = set[int]()
        while by_end or ends:
            while by_cap and weights and by_cap[-1].cap / by_cap[-1].weight <= (self.rate - caps) / weights:
                one = by_cap.pop()
                if one.sponsor in done:
                    continue
                self._capped[one.sponsor] = seconds, had = seconds, level * one.weight
                heapq.heappush(ends, (seconds + (one.units - had) / one.cap, one.sponsor))
                weights, caps = weights - one.weight, caps + one.cap
            while by_end and (by_end[-1].sponsor in self._capped or by_end[-1].sponsor in done):
                by_end.pop()
            slope = (self.rate - caps) / weights if weights else 0.0
            slope = slope if slope > ENOUGH * self.rate else 0.0
            self._bends.append(_Bend(seconds, level, slope or ENOUGH * self.rate))
            free = seconds + (by_end[-1].units / by_end[-1].weight - level) / slope if by_end and slope else math.inf
            if ends and ends[0][0] <= free:
                after, sponsor = heapq.heappop(ends)
                level, seconds = level + slope * (after - seconds), after
                caps -= self._of[sponsor].cap
            elif by_end and free < math.inf:
                one = by_end.pop()
                level, seconds = one.units / one.weight, free
                done.add(one.sponsor)
                weights -= one.weight
            else:
                return
