"""The throttle's parameters and answers, as plain values.

They need neither Redis nor the database, so forecasts, pages and tests can use them alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

SPANS = {1.0: "second", 3600.0: "hour", 86_400.0: "day"}


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `units` in any `seconds` (fractions allowed). 0 units: paused. Document 000: Limit(5, 60)."""

    units: int
    seconds: float

    def __post_init__(self) -> None:
        if self.units < 0 or not 0 < self.seconds < math.inf:
            raise ValueError(f"a limit needs units >= 0 and seconds > 0, not {self.units} per {self.seconds}")

    def __str__(self) -> str:
        """5 per 60 s, as document 000 says it; 200 per second; 6,000 per hour; 200,000 per day."""
        return f"{self.units:,} per {SPANS.get(self.seconds) or f'{self.seconds:g} s'}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a grant is asked for: vendor, credential, the vendor's generation, and the limits in force.

    limits_version: the number of edits of the limits, for callers that must know whether these are still in force.
    destination: where and as whom the credential's calls are made (vendors/destinations.py).
    """

    vendor_id: int
    credential_id: int
    generation: int
    vendor_limits: tuple[Limit, ...] = ()
    credential_limits: tuple[Limit, ...] = ()
    limits_version: int = 0
    destination: int = 0

    @property
    def limits(self) -> tuple[Limit, ...]:
        return self.vendor_limits + self.credential_limits


@dataclass(frozen=True, slots=True)
class Grant:
    """Places for `units` units of cost.

    deadline: seconds of time.monotonic; no call may start or still run after it. more_after: if it is less than was
    wanted, the seconds after which there can be more at the earliest.
    """

    id: str
    units: int
    deadline: float
    more_after: float = 0.0

    def places(self) -> list[str]:
        """One name a unit. A call of cost n uses n of them and passes the same n to `done` or `cancel`."""
        return [f"{self.id}:{k}" for k in range(1, self.units + 1)]


def share_out(units: int, wants: Sequence[int]) -> list[int]:
    """What each of several gets of so many units: equal shares, but none more than it wants.

    Of what cannot be divided the first ones in the list get one unit each.
    """
    shares, left = [0] * len(wants), min(units, sum(wants))
    while left:
        unserved = [number for number, want in enumerate(wants) if shares[number] < want]
        for number in unserved[:left]:
            more = min(max(1, left // len(unserved)), wants[number] - shares[number])
            shares[number] += more
        left = min(units, sum(wants)) - sum(shares)
    return shares


@dataclass(frozen=True, slots=True)
class Wait:
    """The windows are full. Ask again after `seconds`, the earliest moment at which the places can be free."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Paused:
    """A limit is 0: no call may start until somebody raises it."""


@dataclass(frozen=True, slots=True)
class Never:
    """A message costs more than `units`, the smallest limit, so it can never be called under these limits."""

    units: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The log is missing, of another generation, or shorter than a window of these limits: rebuild it."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """Redis's clock is `seconds` ahead of ours (negative: behind), which is too much. There is no grant."""

    seconds: float


AcquireResult = Grant | Wait | Paused | Never | Lost | Skewed


@dataclass(frozen=True, slots=True)
class Granted:
    """One grant in the trail. given: its units; units: those that were not cancelled; at: Unix time in seconds.

    is_used: a call under it has ended; is_open: one may still be under way.
    """

    id: str
    units: int
    note: str
    at: float
    given: int
    is_used: bool = False
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Trail:
    """The last grants of a vendor. cut: older ones were dropped."""

    grants: tuple[Granted, ...]
    cut: bool
