"""Never faster than the vendor allows: a log in Redis that holds a place until its call is over.

A place counts from the grant until W seconds after the call completed or, if nobody says so, W seconds
after the end of its hold. Whatever the way to the vendor takes, no W seconds at the vendor's own clock
then see more than the limit: of L + 1 calls that arrive within W, the last granted would have found the
other L still holding their places. Stamped at the grant instead (document 000), a window of 5 was seen
to hold 8. The price: a limit of L per W gives L per W + latency.

The proof needs three things. A clock that never frees a place too early: places are stamped by the later of
Redis's clock and ours and asked for by the earlier; one of them may step by 2 s, and beyond that nothing is
granted. A true upper bound for the end of a call: Grant.deadline. And a margin for clocks of different speed:
every window is longer by 0.1 % (as far as two clocks drift apart while NTP slews both), at most 0.25 s.

Memory: some 80 to 100 bytes a place, in each of two sets, for as long as the longest window: 1,000,000 a
day take about 200 MB of Redis.

Our clock, which the throttle holds against Redis's.
"""

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis

from vendors.limits.values import AcquireResult, Grant, Limit, Lost, Never, Paused, Scope, Skewed, Wait

NOISE = 0.01  # seconds: two clocks cannot be read at quite the same moment


def _ticks() -> float:
    """Seconds of a clock that nobody can set; where the system has it, one that goes on during sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Unix time as it was when the process started, carried on by a clock that nobody can set.

    Redis and workers often share one machine. If its wall clock is set, Redis's steps with it and ours does not:
    the throttle sees it, instead of freeing places early.
    """

    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = _ticks) -> None:
        self._wall, self._ticks = wall, ticks
        self._offset = wall() - ticks()
        self._step, self._since = 0.0, ticks()

    def __call__(self) -> float:
        return self._offset + self._ticks()

    def settle(self, patience: float) -> None:
        """Follow a wall clock that was set, `patience` s later: when every place from before has expired."""
        now, step = self._ticks(), self._wall() - self()
        if abs(step - self._step) > NOISE:
            self._step, self._since = step, now
        elif abs(step) > NOISE and now - self._since > patience:
            self._offset, self._step = self._offset + step, 0.0


process_clock = SteadyClock()


__all__ = [
    "AcquireResult",
    "AsyncThrottle",
    "Grant",
    "Granted",
    "Limit",
    "Lost",
    "Never",
    "Paused",
    "Scope",
    "Skewed",
    "Throttle",
    "ThrottleUnreachable",
    "Trail",
    "Wait",
]

SCRIPT = Path(__file__).with_name("window.lua").read_text()
DRIFT = 0.001
MARGIN_MOST = 0.25


@dataclass(frozen=True, slots=True)
class Granted:
    """One grant as Redis remembers it: the units of it that were not cancelled. at: unix seconds."""

    id: str
    units: int
    note: str
    at: float


@dataclass(frozen=True, slots=True)
class Trail:
    """cut: there were older grants, which are forgotten."""

    grants: tuple[Granted, ...]
    cut: bool


LedgerEntry = tuple[int, float, int]
Rebuilt = Lost | Skewed | None
Ask = tuple[list[str], list[str | int]]


class ThrottleUnreachable(Exception):
    """Redis is away or refuses to work (out of memory, read-only). No grant was given: make no call."""


class _Script:
    """What the sync and the async throttle share: building the arguments and reading the answers."""

    def __init__(
        self,
        *,
        drift: float = DRIFT,
        clock: SteadyClock = process_clock,
        redis_clock: Callable[[], float] | None = None,
    ) -> None:
        """`redis_clock` (unix seconds) replaces Redis's own TIME: only for tests with a virtual clock."""
        self._drift, self._clock, self._redis_clock = drift, clock, redis_clock

    def _head(self, verb: str) -> list[str | int]:
        server = "" if self._redis_clock is None else _micro(self._redis_clock())
        return [verb, server, _micro(self._clock())]

    def _window(self, seconds: float) -> int:
        return _micro(seconds + min(MARGIN_MOST, seconds * self._drift))

    def _acquire(self, scope: Scope, grant_id: str, want: int, least: int, hold: float, note: str) -> Ask:
        self._clock.settle(hold + max((limit.seconds for limit in scope.limits), default=0) + MARGIN_MOST)
        words: list[str | int] = [scope.generation, scope.credential_id, grant_id, want, least, _micro(hold)]
        args = [*self._head("acquire"), *words, len(scope.vendor_limits), note]
        for limit in scope.limits:
            args += [limit.units, self._window(limit.seconds)]
        return _keys(scope.vendor_id, [scope.credential_id]), args

    def _places(self, verb: str, scope: Scope, places: Iterable[str]) -> Ask:
        return _keys(scope.vendor_id, [scope.credential_id]), [*self._head(verb), " ".join(places)]

    def _rebuild(self, vendor_id: int, generation: int, reach: float, entries: Iterable[LedgerEntry]) -> Ask:
        nth: dict[int, int] = {}
        rows = [f"{nth.setdefault(cred, len(nth) + 1)} {_micro(left)} {n}" for cred, left, n in entries]
        words: list[str | int] = [generation, self._window(reach), " ".join(map(str, nth)), " ".join(rows)]
        return _keys(vendor_id, nth), [*self._head("rebuild"), *words]


class Throttle(_Script):
    """The throttle for code that may block.

    Whoever asks again because an answer was lost can only make it slower. Unreachable is raised when Redis is.
    """

    def __init__(self, redis: Redis, **clocks: Any) -> None:
        super().__init__(**clocks)
        self._redis, self._script = redis, redis.register_script(SCRIPT)

    def _run(self, ask: Ask) -> Any:
        try:
            return self._script(keys=ask[0], args=ask[1])
        except RedisError as error:
            raise ThrottleUnreachable(str(error)) from error

    def acquire(self, scope: Scope, want: int, hold: float, least: int = 1, note: str = "") -> AcquireResult:
        """As many places as are free now, from `least` to `want`; each is held until done, `hold` s at
        most.

        `hold` is the hard deadline of a call, counted from here. `least` is the cost of the next
        message: with less it could not go. note: what for, as `granted` tells it.
        """
        if refusal := _refusal(scope, want, least):
            return refusal
        grant = _promise(want, hold)
        reply = self._run(self._acquire(scope, grant.id, want, least, hold, note))
        return _answer(reply, grant)

    def done(self, scope: Scope, places: Iterable[str]) -> None:
        """The calls of these places (of any number of grants) are over, whatever came of them.

        Never called, called late or called twice, it can only make the throttle slower.
        """
        self._run(self._places("done", scope, places))

    def cancel(self, scope: Scope, places: Iterable[str]) -> None:
        """Free places at once. Only for places for which no call was started: the one legal early release."""
        self._run(self._places("cancel", scope, places))

    def places(self, scope: Scope, most: int = 10_000) -> tuple[list[float], list[float]]:
        """For meters and forecasts: when each place of the vendor, and of the credential, was over, oldest first.

        Unix seconds; of a call in flight, when it will be over at the latest. The newest `most` of each.
        """
        vendor, credential = (self._stamps(key, most) for key in _keys(scope.vendor_id, [scope.credential_id]))
        return vendor, credential

    def granted(self, vendor_id: int, generation: int) -> Trail | None:
        """The grants of the vendor that this run of Redis remembers, oldest first.

        None: it was not there all the time, as far as rows that know this generation can tell.
        """
        reply = self._run((_keys(vendor_id, []), [*self._head("granted"), generation]))
        word, cut = _parsed(reply)
        return _trail(reply[2:], bool(cut)) if word == "trail" else None

    def _stamps(self, key: str, most: int) -> list[float]:
        try:
            rows = self._redis.zrevrangebyscore(key, "(+inf", "(0", start=0, num=most, withscores=True)
        except RedisError as error:
            raise ThrottleUnreachable(str(error)) from error
        return [row[1] / 1e6 for row in reversed(cast(list[Any], rows))]

    def rebuild(self, vendor_id: int, generation: int, reach: float, entries: Iterable[LedgerEntry]) -> Rebuilt:
        """Write the vendor's log anew from the ledger: None, or Lost if as new a generation stands there.

        `entries` are (credential id, seconds until its call is over at the latest, units) for everything that
        was, or may have been, called within the last `reach` seconds: the longest window of the vendor and all
        its credentials. The seconds are negative for what is over, and counted from now by the ledger's own
        clock. Grants of an older generation that are not among them must be fenced.
        """
        word, number = _parsed(self._run(self._rebuild(vendor_id, generation, reach, entries)))
        if word == "skewed":
            return Skewed(number / 1e6)
        return Lost() if word == "lost" else None


class AsyncThrottle(_Script):
    """The same throttle for the sender's event loop."""

    def __init__(self, redis: AsyncRedis, **clocks: Any) -> None:
        super().__init__(**clocks)
        self._script = redis.register_script(SCRIPT)

    async def _run(self, ask: Ask) -> Any:
        try:
            return await self._script(keys=ask[0], args=ask[1])
        except RedisError as error:
            raise ThrottleUnreachable(str(error)) from error

    async def acquire(self, scope: Scope, want: int, hold: float, least: int = 1, note: str = "") -> AcquireResult:
        """See Throttle.acquire."""
        if refusal := _refusal(scope, want, least):
            return refusal
        grant = _promise(want, hold)
        reply = await self._run(self._acquire(scope, grant.id, want, least, hold, note))
        return _answer(reply, grant)

    async def done(self, scope: Scope, places: Iterable[str]) -> None:
        """See Throttle.done."""
        await self._run(self._places("done", scope, places))

    async def cancel(self, scope: Scope, places: Iterable[str]) -> None:
        """See Throttle.cancel."""
        await self._run(self._places("cancel", scope, places))


def _trail(rows: list[Any], cut: bool) -> Trail:
    found: dict[str, Granted] = {}
    for words, score in zip(rows[::2], rows[1::2], strict=True):
        grant, units, note = (words.decode() if isinstance(words, bytes) else words).split(" ", 2)
        if int(units) > 0:
            found[grant] = Granted(grant, int(units), note, float(score) / 1e6)
        elif grant in found:
            found[grant] = replace(found[grant], units=found[grant].units + int(units))
    return Trail(tuple(one for one in found.values() if one.units > 0), cut)


def _micro(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _keys(vendor_id: int, credential_ids: Iterable[int]) -> list[str]:
    """All in one Cluster slot, by the hash tag."""
    tag = f"mailhub:{{v{vendor_id}}}"
    return [f"{tag}:window", *(f"{tag}:c{credential_id}" for credential_id in credential_ids)]


def _promise(want: int, hold: float) -> Grant:
    """Random names: a counter would be doubled by a fork, or by a Redis that restored an old snapshot."""
    return Grant(secrets.token_urlsafe(9), want, time.monotonic() + hold)


def _refusal(scope: Scope, want: int, least: int) -> Paused | Never | None:
    if not 1 <= least <= want:
        raise ValueError(f"ask for at least one place and no less than {least}, not {want}")
    smallest = min((limit.units for limit in scope.limits), default=want)
    if smallest == 0:
        return Paused()
    return Never(smallest) if least > smallest else None


def _answer(reply: list[Any], grant: Grant) -> AcquireResult:
    word, number = _parsed(reply)
    if word == "grant":
        return Grant(grant.id, number, grant.deadline)
    if word == "wait":
        return Wait(number / 1e6)
    return Skewed(number / 1e6) if word == "skewed" else Lost()


def _parsed(reply: list[Any]) -> tuple[str, int]:
    word = reply[0].decode() if isinstance(reply[0], bytes) else reply[0]
    return word, int(reply[1]) if len(reply) > 1 else 0
