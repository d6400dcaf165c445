"""A throttle on a clock that tests move: real Redis, the real script, no waiting."""

import secrets
from collections.abc import Iterable
from typing import Any

from redis import Redis

from vendors.limits.throttle import AcquireResult, Grant, Limit, Scope, SteadyClock, Throttle

HOLD = 10.0  # seconds that a call may take at most


class VirtualClock:
    """Unix seconds that go on only when told."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class VirtualVendor:
    """One vendor nobody else has, its clock, and a throttle without the margin for drift: moments are exact."""

    def __init__(self, redis: Redis, kind: type[Throttle] = Throttle, reach: float = 60, **options: Any) -> None:
        self.redis, self.clock = redis, VirtualClock()
        steady = SteadyClock(wall=self.clock, ticks=self.clock)
        self.clocks = {"drift": 0, "clock": steady, "redis_clock": self.clock, **options}
        self.throttle = kind(redis, **self.clocks)
        self.vendor_id, self.generation = secrets.randbits(48), 1
        self.throttle.rebuild(self.vendor_id, 1, reach, [])

    def scope(
        self, *vendor: tuple[int, float], credential: Iterable[tuple[int, float]] = (), credential_id: int = 1
    ) -> Scope:
        """Limits as (units, seconds): of the vendor, of one of its credentials."""
        of_vendor, of_credential = (tuple(Limit(*pair) for pair in pairs) for pairs in (vendor, credential))
        return Scope(self.vendor_id, credential_id, self.generation, of_vendor, of_credential)

    def ask(self, scope: Scope, want: int = 1, hold: float = HOLD, least: int = 1, waiter: str = "") -> AcquireResult:
        return self.throttle.acquire(scope, want, hold, least, waiter=waiter)

    def get(self, scope: Scope, want: int = 1, hold: float = HOLD) -> list[str]:
        """The places of a grant that must be given in full."""
        grant = self.ask(scope, want, hold)
        assert isinstance(grant, Grant) and grant.units == want, grant
        return grant.places()

    def stored(self) -> list[str]:
        """The keys that there are, of the vendor and of credentials 1 to 3."""
        keys = [f"mailhub:{{v{self.vendor_id}}}:{name}" for name in ("window", "c1", "c2", "c3", "turns", "shares")]
        return [key for key in keys if self.redis.exists(key)]

    def clear(self) -> None:
        for key in self.stored():
            self.redis.delete(key)
