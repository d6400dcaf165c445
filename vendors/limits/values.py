"""The words of the throttle: what is asked of it and what it answers.

Pure values, so that whoever plans, forecasts or shows limits needs neither Redis nor the database.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `units` in any `seconds` (fractions allowed). 0 units: paused. Document 000: Limit(5, 60)."""

    units: int
    seconds: float

    def __post_init__(self) -> None:
        if self.units < 0 or not 0 < self.seconds < math.inf:
            raise ValueError(f"a limit needs units >= 0 and seconds > 0, not {self.units} per {self.seconds}")


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose places are asked for, under which generation of the vendor, and the limits in force now.

    terms: counts the edits of the limits, where whoever asks has to know whether these are still in force.
    """

    vendor_id: int
    credential_id: int
    generation: int
    vendor_limits: tuple[Limit, ...] = ()
    credential_limits: tuple[Limit, ...] = ()
    terms: int = 0

    @property
    def limits(self) -> tuple[Limit, ...]:
        return self.vendor_limits + self.credential_limits


@dataclass(frozen=True, slots=True)
class Grant:
    """Places for `units` units of cost.

    `deadline` (seconds of time.monotonic) is when the hold runs out: no call may start or still run after it.
    """

    id: str
    units: int
    deadline: float

    def places(self) -> list[str]:
        """One name a unit. A call of cost n takes n of them and hands the same n to `done` or `cancel`."""
        return [f"{self.id}:{k}" for k in range(1, self.units + 1)]


@dataclass(frozen=True, slots=True)
class Wait:
    """Full. `seconds` to the earliest moment at which the places asked for can be free; ask again then."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Paused:
    """A limit is 0: nothing may go until a person raises it."""


@dataclass(frozen=True, slots=True)
class Never:
    """One message costs more than `units`, the smallest limit: it cannot go under the limits in force."""

    units: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The log is gone, of another generation, or shorter than a window now asked for: rebuild it."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """Redis's clock is `seconds` ahead of ours (negative: behind), too far to count by. No grant."""

    seconds: float


AcquireResult = Grant | Wait | Paused | Never | Lost | Skewed
