"""Parameters and answers of the throttle, as plain values.

They need neither Redis nor the database, so forecasts, pages and tests can use them alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vendors.said import Said, gettext_noop

# Forms of a limit, by its seconds.
PER = {
    1.0: gettext_noop("%(count)s per second"),
    3600.0: gettext_noop("%(count)s per hour"),
    86_400.0: gettext_noop("%(count)s per day"),
}
PER_SECONDS = gettext_noop("%(count)s per %(seconds)s s")
AT_A_TIME = 0.01
"""Seconds of a window that counts calls at the same time: a place is held until its call has ended."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `units` calls in any `seconds` (fractions allowed). 0 units: paused. Document 000: Limit(5, 60).

    grows_to: the units of a warm-up on its last day; 0: the limit is none.
    """

    units: int
    seconds: float
    grows_to: int = 0

    def __post_init__(self) -> None:
        if self.units < 0 or not 0 < self.seconds < math.inf:
            raise ValueError(f"a limit needs units >= 0 and seconds > 0, not {self.units} per {self.seconds}")

    def __str__(self) -> str:
        """Return text such as 5 per 60 s (as in document 000), 200 per second or 6,000 per hour."""
        return str(self.terms)

    @property
    def span(self) -> str:
        """The window without its count: second, hour, day, or 60 s."""
        return self.terms.rpartition(" per ")[2]

    @property
    def terms(self) -> Said:
        """The limit as a sentence for a page."""
        return Said(PER.get(self.seconds, PER_SECONDS), count=self.units, seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class Scope:
    """The subject of a grant: vendor, credential, the vendor's generation, and the limits in force.

    `limits_version`: number of edits of the limits, to check that these are still in force. `destination`: the place
    and account of the credential's calls (vendors/destinations.py). `receivers`: the limits of receivers, of vendor and
    credential; `receivers_version`: number of edits of these.
    """

    vendor_id: int
    credential_id: int
    generation: int
    vendor_limits: tuple[Limit, ...] = ()
    credential_limits: tuple[Limit, ...] = ()
    limits_version: int = 0
    destination: int = 0
    receivers: Mapping[str, tuple[tuple[Limit, ...], tuple[Limit, ...]]] = field(default_factory=dict, hash=False)
    receivers_version: int = 0

    def smallest_of(self, receiver: str) -> int | None:
        """Return the units of a receiver's smallest limit; None if it has none."""
        of_vendor, of_credential = self.receivers.get(receiver, ((), ()))
        return min((limit.units for limit in of_vendor + of_credential), default=None)

    def dearest_for(self, receiver: str = "") -> int | None:
        """Return the highest cost of a letter to this receiver that may be called; None: no limit applies.

        A warm-up allows more on later days. Calls at a time are counted as calls: a dear letter is called alone.
        """
        of_vendor, of_credential = self.receivers.get(receiver, ((), ()))
        lasting = [limit for limit in of_vendor + of_credential if limit.seconds > AT_A_TIME]
        most = [max(limit.units, limit.grows_to) for limit in (*self.limits, *lasting) if limit.units]
        return min(most, default=None)

    @property
    def limits(self) -> tuple[Limit, ...]:
        return self.vendor_limits + self.credential_limits


class SponsorShare(NamedTuple):
    """Who asks for places. rank: the class; a lower one is served first, and within it weights hold."""

    sponsor: int
    weight: int = 1
    rank: int = 0


@dataclass(frozen=True, slots=True)
class SharedAsk:
    """A group of streams that asks for places, and how many each of its sponsors wants.

    name: the same one for each question of the group, so that what it was not given is remembered once. more: how many
    each could use next, once the calls under way and those of this question have ended. floor: percent of the places
    for each rank but the first.
    """

    name: str
    wants: Mapping[SponsorShare, int] = field(hash=False)
    more: Mapping[SponsorShare, int] = field(default_factory=dict, hash=False)
    floor: int = 0

    def sponsors(self) -> list[SponsorShare]:
        return [of for of, want in self.wants.items() if want]

    def as_text(self) -> str:
        """Return the wants as shares.lua takes them, in the order of `sponsors`."""
        asks = (f"{of.rank}:{of.sponsor}:{of.weight}:{self.wants[of]}:{self.more.get(of, 0)}" for of in self.sponsors())
        return " ".join((f"f{self.floor}", *asks)) if self.wants else ""


@dataclass(frozen=True, slots=True)
class Grant:
    """Places for `units` units of cost.

    `deadline`: in seconds of time.monotonic; no call may start or still run after it. `more_after`: if less was granted
    than wanted, the earliest number of seconds after which more may be free. `receivers`: the units of each receiver
    with limits among these; `full`: receivers without room for all, with the seconds until there may be some.
    `parts`: the units of each sponsor among these, if the asker named any and there is a limit.
    """

    id: str
    units: int
    deadline: float
    more_after: float = 0.0
    receivers: Mapping[str, int] = field(default_factory=dict, hash=False)
    full: Mapping[str, float] = field(default_factory=dict, hash=False)
    parts: Mapping[SponsorShare, int] = field(default_factory=dict, hash=False)

    def places(self) -> list[str]:
        """Return one name per unit. A call of cost n uses n of them and passes the same n to `done` or `cancel`."""
        return [f"{self.id}:{k}" for k in range(1, self.units + 1)]


def share_out(units: int, wants: Sequence[int]) -> list[int]:
    """Divide units into equal shares, none larger than its want.

    The first in the list get the indivisible rest, one unit each.
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
    """The windows are full. Ask again after `seconds`, the earliest time at which the places can be free."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ReceiversFull:
    """No receiver has room in its own windows for one of the letters. `full`: as in Grant."""

    full: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Paused:
    """A limit is 0: no call may start until somebody raises it."""


@dataclass(frozen=True, slots=True)
class Never:
    """A message costs more than `units`, the smallest limit, so these limits never allow its call."""

    units: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The log is missing, of another generation, or shorter than a window of these limits. Rebuild it."""


@dataclass(frozen=True, slots=True)
class Skewed:
    """Redis's clock is too far from ours, by `seconds` (negative: behind). Nothing was granted."""

    seconds: float


AcquireResult = Grant | Wait | ReceiversFull | Paused | Never | Lost | Skewed

Letters = Sequence[tuple[str, int]]
"""For each letter in its order: its receiver, or "" if that has no limits, and its cost."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A grant in the trail. `given`: its units; `units`: those not cancelled; `at`: Unix time in seconds.

    `is_used`: one of its calls has ended; `is_open`: one may still be in flight.
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
    """The last grants of a vendor. `cut`: older ones were dropped."""

    grants: tuple[Granted, ...]
    cut: bool
