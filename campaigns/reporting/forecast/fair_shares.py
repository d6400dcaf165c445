"""The shares of sponsors in a vendor's rate, as a fluid model of the turns (campaigns/engine/turns). Pure.

Sponsors with queued units get the rate by their weights. A sponsor gets no more than its own limits allow (its cap);
the others share the rest by their weights again (water-filling). A sponsor leaves when its units are done.

Classes of mail come before the weights: each lower class that waits gets its floor, and the rest goes to the highest
class, then to the next one. Within a class the weights hold. A class that cannot use its floor leaves it to the others.
"""

import heapq
import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from vendors.mail_classes import MailClass

ENOUGH = 1e-9  # relative; below it a rate is rounding


@dataclass(frozen=True, slots=True)
class Claimant:
    """A sponsor with queued units of one class at a vendor. cap: the units a second that its own limits allow."""

    sponsor: int
    weight: int
    units: float
    cap: float = math.inf
    mail_class: int = MailClass.BULK


def split_rate(rate: float, claimants: Iterable[Claimant]) -> dict[int, float]:
    """Return the units a second of each sponsor: by weight, none more than its cap, together at most `rate`.

    The claimants are of one class.
    """
    left, weights = rate, 0
    asking = sorted(claimants, key=lambda one: (one.cap / one.weight, one.sponsor))
    weights = sum(one.weight for one in asking)
    shares = dict[int, float]()
    for one in asking:
        shares[one.sponsor] = share = min(one.cap, left * one.weight / weights)
        left, weights = max(0.0, left - share), weights - one.weight
    return shares


def split_classes(rate: float, floor: float, caps: Mapping[int, float]) -> dict[int, float]:
    """Return the units a second of each class. floor: part of the rate for each but the highest one.

    caps: the most that the sponsors of each class that waits can use.
    """
    order, shares = sorted(caps), dict[int, float]()
    floors = {one: min(floor * rate, caps[one]) for one in order[1:]}
    left = rate
    for one in order:
        kept = sum(floors[lower] for lower in order if lower > one)
        shares[one] = share = min(caps[one], max(0.0, left - kept))
        left -= share
    return shares


def split_all(rate: float, floor: float, claimants: Collection[Claimant]) -> dict[tuple[int, int], float]:
    """Return the units a second of each class and sponsor."""
    by_class = dict[int, list[Claimant]]()
    for one in claimants:
        by_class.setdefault(one.mail_class, []).append(one)
    rates = split_classes(rate, floor, {key: sum(one.cap for one in found) for key, found in by_class.items()})
    return {
        (key, sponsor): share
        for key, found in by_class.items()
        for sponsor, share in split_rate(rates[key], found).items()
    }


@dataclass(frozen=True, slots=True)
class _Bend:
    """A moment at which the rates change. level: the units by then of a sponsor with weight 1 and without a cap."""

    seconds: float
    level: float
    slope: float  # of level, a second, from then on


@dataclass(slots=True)
class _ClassFlow:
    """A class while its queue is worked off.

    by_end, by_cap: its sponsors, the next one last. weights: of those below their caps; caps: of those at them. ends:
    the ends of those at their caps. starts: the time of its first units. capped: by sponsor, seconds and its units at
    the moment of reaching its cap.
    """

    by_end: list[Claimant]
    by_cap: list[Claimant]
    weights: int
    most: float  # what its sponsors can use
    unlimited: int  # sponsors without a cap
    level: float = 0.0
    caps: float = 0.0
    rate: float = 0.0
    slope: float = 0.0
    starts: float = math.inf
    ends: list[tuple[float, int]] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    capped: dict[int, tuple[float, float]] = field(default_factory=dict)
    bends: list[_Bend] = field(default_factory=list)

    @classmethod
    def of(cls, claimants: Iterable[Claimant]) -> "_ClassFlow":
        by_end = sorted(claimants, key=lambda one: one.units / one.weight, reverse=True)
        limited = [one for one in by_end if one.cap < math.inf]
        by_cap = sorted(limited, key=lambda one: one.cap / one.weight, reverse=True)
        weights = sum(one.weight for one in by_end)
        return cls(by_end, by_cap, weights, sum(one.cap for one in limited), len(by_end) - len(limited))

    @property
    def has_waiting(self) -> bool:
        return bool(self.by_end or self.ends)

    @property
    def class_cap(self) -> float:
        return math.inf if self.unlimited else max(0.0, self.most)

    def turn_to(self, rate: float, seconds: float, whole: float) -> None:
        """Go on with this rate from this moment on. whole: the vendor's rate."""
        self.rate = rate
        while self.by_cap and self.weights:
            one = self.by_cap[-1]
            if one.sponsor not in self.done and one.cap / one.weight > (rate - self.caps) / self.weights:
                break
            self.by_cap.pop()
            if one.sponsor in self.done:
                continue
            self.capped[one.sponsor] = seconds, had = seconds, self.level * one.weight
            heapq.heappush(self.ends, (seconds + (one.units - had) / one.cap, one.sponsor))
            self.weights, self.caps = self.weights - one.weight, self.caps + one.cap
        while self.by_end and (self.by_end[-1].sponsor in self.capped or self.by_end[-1].sponsor in self.done):
            self.by_end.pop()
        slope = (rate - self.caps) / self.weights if self.weights else 0.0
        self.slope = slope if slope > ENOUGH * whole else 0.0
        steep = self.slope or ENOUGH * whole
        if not self.bends or self.bends[-1].slope != steep:
            self.bends.append(_Bend(seconds, self.level, steep))
        if self.starts == math.inf and (self.slope or self.caps):
            self.starts = seconds

    def sponsor_ends_at(self, seconds: float) -> float:
        """Return when its next sponsor ends; inf: never at this rate."""
        free = math.inf
        if self.by_end and self.slope:
            one = self.by_end[-1]
            free = seconds + max(0.0, one.units / one.weight - self.level) / self.slope
        return min(free, self.ends[0][0] if self.ends else math.inf)

    def pass_time(self, seconds: float, after: float, of: Mapping[int, Claimant]) -> None:
        """Let the time from `seconds` to `after` pass. Sponsors that end then leave."""
        ends = self.sponsor_ends_at(seconds) <= after
        capped = ends and bool(self.ends) and self.ends[0][0] <= after
        if not capped and ends:
            one = self.by_end.pop()
            self.level = max(self.level, one.units / one.weight)
            self.done.add(one.sponsor)
            self.weights -= one.weight
            self._remove_claimant(one)
            return
        self.level += self.slope * (after - seconds)
        if capped:
            one = of[heapq.heappop(self.ends)[1]]
            self.caps -= one.cap
            self._remove_claimant(one)

    def _remove_claimant(self, one: Claimant) -> None:
        if one.cap == math.inf:
            self.unlimited -= 1
        else:
            self.most -= one.cap

    def seconds_until(self, one: Claimant, units: float) -> float:
        at, had = self.capped.get(one.sponsor, (math.inf, math.inf))
        if units > had:
            return at + (units - had) / one.cap
        level = units / one.weight
        bend = self.bends[max(0, bisect_left(self.bends, level, key=lambda each: each.level) - 1)]
        if level <= bend.level:
            return bend.seconds
        return bend.seconds + (level - bend.level) / bend.slope


class FairShares:
    """The course of a vendor's queue from now on, if nobody comes or goes.

    rate: units a second that the vendor allows; floor: part of it for each lower class that waits. As sponsors leave,
    the level of a class never rises slower than before, so a sponsor that has come to its cap stays there. With n
    sponsors it takes n·log n steps, however many jobs are asked about.
    """

    def __init__(self, rate: float, claimants: Collection[Claimant], floor: float = 0.0) -> None:
        self.rate, self._floor = rate, floor
        self._of = dict[int, dict[int, Claimant]]()  # by class and sponsor
        for one in claimants:
            if one.units > 0 and one.cap > 0:
                self._of.setdefault(one.mail_class, {})[one.sponsor] = one
        self._flows = dict[int, _ClassFlow]()
        if math.isfinite(rate) and rate > 0:
            self._work_off()

    def seconds_until(self, sponsor: int, units: float, mail_class: int = MailClass.BULK) -> float:
        """Return the seconds until this sponsor has been given these units of a class; inf if never.

        units: at most those queued by the sponsor in that class.
        """
        one = self._of.get(mail_class, {}).get(sponsor)
        if one is None:
            return 0.0 if units <= 0 else math.inf
        if not self._flows:
            return max(0.0, units) / one.cap if self.rate > 0 else math.inf
        if units <= 0:
            return self._flows[mail_class].starts
        return self._flows[mail_class].seconds_until(one, units)

    def _work_off(self) -> None:
        """Walk from one sponsor's end, or arrival at its cap, to the next."""
        self._flows = {key: _ClassFlow.of(found.values()) for key, found in self._of.items()}
        waiting, seconds = dict(self._flows), 0.0
        while waiting:
            rates = split_classes(self.rate, self._floor, {key: flow.class_cap for key, flow in waiting.items()})
            for key, flow in waiting.items():
                flow.turn_to(rates[key], seconds, self.rate)
            waiting = {key: flow for key, flow in waiting.items() if flow.has_waiting}
            after = min((flow.sponsor_ends_at(seconds) for flow in waiting.values()), default=math.inf)
            if after == math.inf:
                return
            for key, flow in waiting.items():
                flow.pass_time(seconds, after, self._of[key])
            seconds = after
