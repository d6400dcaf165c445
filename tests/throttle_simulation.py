"""A vendor, several senders and a throttle on one virtual clock, driven step by step; times are milliseconds.

Every sender does what real ones do: it is slow on the way out and back, dies, forgets to say that a call is over, or
starts no call at all. Redis loses its keys and is rebuilt from the ledger that the world keeps. The judge is the
vendor: it counts what arrived.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from redis import Redis

from tests.virtual import VirtualVendor
from vendors.limits.throttle import Grant, Limit, Lost, Never, Paused, Scope, Skewed, Throttle, Wait

HOLD_MS = 400
REACH_MS = 2_500
Fate = Literal["done", "silent", "cancelled"]


@dataclass(frozen=True)
class Call:
    """How one place is used: ms on the way to the vendor, ms on the way back, and what the sender tells."""

    out: int
    back: int
    fate: Fate = "done"

    @property
    def lasts(self) -> int:
        """No call outlives its hold."""
        return min(self.out + self.back, HOLD_MS)


@dataclass(frozen=True)
class Arrival:
    at: int
    order: int
    scope: Scope


@dataclass
class Entry:
    """A row of the ledger: when the call is over, at the latest or for certain."""

    credential_id: int
    over: int


class Simulation:
    def __init__(self, redis: Redis, kind: type[Throttle] = Throttle) -> None:
        self.ms, self.wait, self.generation, self.skew = 0, 0, 1, 0
        self.vendor = VirtualVendor(redis, kind, reach=REACH_MS / 1000)
        self.vendor.throttle = kind(redis, **self.vendor.clocks | {"redis_clock": self._redis_clock})
        self.limits: tuple[tuple[Limit, ...], tuple[Limit, ...]] = ((), ())
        self.arrivals: list[Arrival] = []
        self.ledger: list[Entry] = []
        self._orders, self._events = itertools.count(), list[tuple[int, int, Callable[[], None]]]()

    def _redis_clock(self) -> float:
        return self.vendor.clock() + self.skew / 1000

    def send(self, credential_id: int, calls: Iterable[Call], waiter: str = "") -> None:
        """Ask for a place for each call and use what is granted. waiter: who needs all of them at once."""
        calls = list(calls)
        least = len(calls) if waiter else 1
        scope = Scope(self.vendor.vendor_id, credential_id, self.generation, *self.limits)
        answer = self.vendor.ask(scope, len(calls), HOLD_MS / 1000, least, waiter)
        if isinstance(answer, Lost):
            self.rebuild()
            scope = replace(scope, generation=self.generation)
            answer = self.vendor.ask(scope, len(calls), HOLD_MS / 1000, least, waiter)
        if isinstance(answer, Wait):
            self.wait = round(answer.seconds * 1000)
        elif isinstance(answer, Grant):
            for place, call in zip(answer.places(), calls, strict=False):
                self._use(scope, place, call)
        else:
            assert isinstance(answer, Paused | Skewed | Never), answer

    def _use(self, scope: Scope, place: str, call: Call) -> None:
        throttle = self.vendor.throttle
        order = next(self._orders)
        if call.fate == "cancelled":
            self._at(call.out, lambda: throttle.cancel(scope, [place]))
            return
        entry = Entry(scope.credential_id, self.ms + HOLD_MS)
        self.ledger.append(entry)
        self._at(call.out, lambda: self.arrivals.append(Arrival(self.ms, order, scope)))
        if call.fate == "done":
            self._at(call.lasts, lambda: self._over(scope, place, entry))

    def _over(self, scope: Scope, place: str, entry: Entry) -> None:
        entry.over = self.ms
        self.vendor.throttle.done(scope, [place])

    def _at(self, after: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.ms + after, next(self._orders), event))

    def advance(self, ms: int) -> None:
        """Let time go by and everything happen that falls due."""
        end = self.ms + ms
        while self._events and self._events[0][0] <= end:
            due, _, event = heapq.heappop(self._events)
            self._move_to(due)
            event()
        self._move_to(end)

    def _move_to(self, ms: int) -> None:
        self.vendor.clock.advance((ms - self.ms) / 1000)
        self.ms = ms

    def lose(self, which: int) -> None:
        """Redis forgets one of the vendor's keys."""
        keys = self.vendor.stored()
        if keys:
            self.vendor.redis.delete(keys[which % len(keys)])

    def rebuild(self) -> None:
        rows = [(e.credential_id, (e.over - self.ms) / 1000, 1) for e in self.ledger if e.over > self.ms - REACH_MS]
        answer = self.vendor.throttle.rebuild(self.vendor.vendor_id, self.generation + 1, REACH_MS / 1000, rows)
        assert answer is None or isinstance(answer, Skewed)
        self.generation += answer is None

    def finish(self) -> None:
        """Everything in flight comes to its end; the world is cleared away."""
        self.advance(HOLD_MS)
        self.vendor.clear()

    def overfull(self) -> list[Arrival] | None:
        """A window at the vendor's clock with more arrivals than the limit in force when its last was granted."""
        for first, seconds, of_credential in itertools.product(self.arrivals, (1, 2.5), (False, True)):
            inside = [
                a
                for a in self.arrivals
                if 0 <= a.at - first.at < seconds * 1000
                and (not of_credential or a.scope.credential_id == first.scope.credential_id)
            ]
            last = max(inside, key=lambda a: a.order)
            limits = last.scope.credential_limits if of_credential else last.scope.vendor_limits
            if any(limit.seconds == seconds and len(inside) > limit.units for limit in limits):
                return inside
        return None


class StampedAtTheGrant(Throttle):
    """Document 000 as it is written, and wrong: a place counts from its grant, whenever the vendor hears of it."""

    def acquire(self, scope: Scope, want: int, hold: float, least: int = 1, **more: Any) -> Any:
        return super().acquire(scope, want, 0, least, **more)

    def done(self, scope: Scope, places: Iterable[str]) -> None:
        pass
