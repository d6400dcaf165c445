"""The throttle: sliding windows in Redis, so that a vendor is never called faster than its limits allow.

A place counts from its grant until W seconds after its call ended. If the end is never reported, it counts until W
seconds after the end of its hold. So at the vendor's own clock no span of W seconds holds more calls than the limit L,
at any latency: if L + 1 calls arrived within W, the last grant would have found the other L places still taken. If
places were stamped at the grant (document 000), a window of 5 could hold 8. The price: a limit of L per W seconds
allows L per W + latency.

The proof needs three things:
- Clocks that never free a place too early: a place is stamped with the later of Redis's clock and ours, and requested
  with the earlier one. Either clock may step by 2 s; beyond that nothing is granted.
- An upper bound for the end of a call: Grant.deadline.
- A margin for clocks of different speed: every window is longer by 0.1 % (two clocks that NTP slews in opposite
  directions), at most 0.25 s.

Memory: 80 to 100 bytes for each place in each of two sets, for as long as the longest window. 1,000,000 places a day
take about 200 MB of Redis. Added to that are the notes of the vendor's last 20,000 grants, each of up to 64 jobs.

Sponsors share the places by their weights; the number of their streams and processes does not count (shares.lua).

SteadyClock is the clock of this process, which is compared with Redis's.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from redis import Redis, RedisError
from redis.asyncio import Redis as AsyncRedis

from vendors.limits.values import (
    AcquireResult,
    Grant,
    Granted,
    Letters,
    Limit,
    Lost,
    Never,
    Paused,
    ReceiversFull,
    Scope,
    SharedAsk,
    Skewed,
    Trail,
    Wait,
)
from vendors.redis_clients import AsyncScript

NOISE = 0.01  # seconds; two clocks are never read at the same moment


def _read_ticks() -> float:
    """Return seconds of a clock that cannot be set and, if the system has one, runs during sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Unix time at the start of the process, continued by a clock that cannot be set.

    Redis and workers often share a machine. If its wall clock is set, Redis's clock steps and ours does not; the
    throttle notices this instead of freeing places early.
    """

    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = _read_ticks) -> None:
        self._wall, self._ticks = wall, ticks
        self._offset = wall() - ticks()
        self._step, self._since = 0.0, ticks()

    def __call__(self) -> float:
        return self._offset + self._ticks()

    def settle_clock(self, patience: float) -> None:
        """Adopt a changed wall clock after `patience` seconds, when all earlier places have expired."""
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
    "ReceiversFull",
    "Scope",
    "Skewed",
    "Throttle",
    "ThrottleUnreachable",
    "Trail",
    "Wait",
]

SCRIPT = "".join(Path(__file__).with_name(name).read_text() for name in ("shares.lua", "window.lua"))
DRIFT = 0.001
MARGIN_MOST = 0.25


LedgerEntry = tuple[int, float, int]
Rebuilt = Lost | Skewed | None
Ask = tuple[list[str], list[str | int]]


class ThrottleUnreachable(Exception):
    """Redis does not answer, or refuses to write (out of memory, read-only). Nothing was granted: make no call."""


class _Script:
    """Builds the script's arguments for the blocking and the async throttle."""

    def __init__(
        self,
        *,
        drift: float = DRIFT,
        clock: SteadyClock = process_clock,
        redis_clock: Callable[[], float] | None = None,
    ) -> None:
        """`redis_clock`: replaces Redis's TIME (Unix seconds); only for tests with a virtual clock."""
        self._drift, self._clock, self._redis_clock = drift, clock, redis_clock

    def _request_head(self, verb: str) -> list[str | int]:
        server = "" if self._redis_clock is None else _to_micros(self._redis_clock())
        return [verb, server, _to_micros(self._clock())]

    def _window_micros(self, seconds: float) -> int:
        return _to_micros(seconds + min(MARGIN_MOST, seconds * self._drift))

    def _acquire_request(
        self, scope: Scope, grant_id: str, want: int, least: int, hold: float, note: str, waiter: str, letters: Letters,
        asker: SharedAsk | None,
    ) -> Ask:  # fmt: skip
        receivers = list(dict.fromkeys(receiver for receiver, _ in letters if receiver))
        of_receivers = [scope.receivers[receiver] for receiver in receivers]
        every = [scope.limits, *(of_vendor + of_credential for of_vendor, of_credential in of_receivers)]
        longest = max((limit.seconds for limits in every for limit in limits), default=0)
        self._clock.settle_clock(hold + longest + MARGIN_MOST)
        request: list[str | int] = [scope.generation, scope.credential_id, grant_id, want, least, _to_micros(hold)]
        shares = (asker.name, asker.as_text()) if asker else ("", "")
        args = [*self._request_head("acquire"), *request, len(scope.vendor_limits), note, waiter, *shares]
        args += self._limit_args(scope.limits)
        if receivers:
            args.append(_letter_runs(letters, receivers))
            seal = _window_seal(scope.generation, scope.receivers_version)
            for of_vendor, of_credential in of_receivers:
                args += [seal, len(of_vendor), *self._limit_args(of_vendor + of_credential)]
        return _window_keys(scope.vendor_id, [scope.credential_id], *receivers), args

    def _limit_args(self, limits: Sequence[Limit]) -> list[str | int]:
        args: list[str | int] = [len(limits)]
        for limit in limits:
            args += [limit.units, self._window_micros(limit.seconds)]
        return args

    def _done_request(self, scope: Scope, places: Iterable[str], receivers: Mapping[str, Iterable[str]] | None) -> Ask:
        found = scope.receivers if receivers is None else receivers
        args = [*self._request_head("done"), " ".join(places)]
        if receivers:
            args += ["", *(" ".join(of_receiver) for of_receiver in receivers.values())]
        return _window_keys(scope.vendor_id, [scope.credential_id], *found), args

    def _cancel_request(self, scope: Scope, places: Iterable[str], counted: bool) -> Ask:
        keys = _window_keys(scope.vendor_id, [scope.credential_id], *scope.receivers)
        return keys, [*self._request_head("cancel"), " ".join(places), int(counted)]

    def _rebuild_request(
        self, vendor_id: int, seal: str, reach: float, entries: Iterable[LedgerEntry], receiver: str
    ) -> Ask:
        nth: dict[int, int] = {}
        rows = [f"{nth.setdefault(cred, len(nth) + 1)} {_to_micros(left)} {n}" for cred, left, n in entries]
        request: list[str | int] = [seal, self._window_micros(reach), " ".join(map(str, nth)), " ".join(rows)]
        return _window_keys(vendor_id, nth, of=receiver), [*self._request_head("rebuild"), *request]


class Throttle(_Script):
    """The throttle for blocking code. Every method raises ThrottleUnreachable.

    Repeating a request whose answer was lost is safe: it can only make the throttle slower.
    """

    def __init__(self, redis: Redis, **clocks: Any) -> None:
        super().__init__(**clocks)
        self._redis, self._script = redis, redis.register_script(SCRIPT)

    def _run_script(self, ask: Ask) -> Any:
        try:
            return self._script(keys=ask[0], args=ask[1])
        except RedisError as error:
            raise ThrottleUnreachable(str(error)) from error

    def acquire(
        self,
        scope: Scope,
        want: int,
        hold: float,
        least: int = 1,
        note: str = "",
        waiter: str = "",
        letters: Letters = (),
        asker: SharedAsk | None = None,
    ) -> AcquireResult:
        """Take the free places, from `least` to `want`. Each is held until `done`, at most `hold` seconds.

        `hold`: seconds from now by which each call has surely ended. `least`: the cost of the next message, which
        cannot be called with less. `note`: the grant's purpose, returned by `granted`. `waiter`: names a caller who
        needs several places and wants a reserved turn beside callers that take one at a time. Such a caller must ask
        again when told to. `letters`: all letters wanted, in their order, if one of them goes to a receiver with
        limits. Each takes its places in the windows of vendor, credential and receiver, or none. Behind one for which
        its receiver has no room, others to the same receiver take none; behind one for which the vendor has none, no
        other does. No cost is above Scope.dearest_for; one above a warm-up's limit of today finds no room. `asker`: the
        sponsors for which it asks; beside others it gets what their weights give them. Its wants add up to `want`.
        """
        if refusal := _refuse_early(scope, want, least):
            return refusal
        grant = _promise_grant(want, hold)
        reply = self._run_script(
            self._acquire_request(scope, grant.id, want, least, hold, note, waiter, letters, asker)
        )
        return _read_answer(reply, grant, letters, asker)

    def done(self, scope: Scope, places: Iterable[str], receivers: Mapping[str, Iterable[str]] | None = None) -> None:
        """Report that the calls of these places have ended. Places of several grants may be mixed.

        `receivers`: the places for each receiver with limits; None: unknown. Omitting the report, or sending it late or
        twice, can only make the throttle slower.
        """
        self._run_script(self._done_request(scope, places, receivers))

    def cancel(self, scope: Scope, places: Iterable[str], counted: bool = False) -> None:
        """Free places immediately. Only legal for places whose call never started and never will.

        `counted`: the ledger may hold them, so they count in the windows as calls that end now.
        """
        self._run_script(self._cancel_request(scope, places, counted))

    def places(self, scope: Scope, most: int = 10_000) -> tuple[list[float], list[float]]:
        """Return, for meters and forecasts, when each place of the vendor and of the credential ended, oldest first.

        In Unix seconds; for a call in flight, its latest possible end. Only the newest `most` of each.
        """
        return self.places_of([(scope, most)])[0]

    def places_of(self, asked: Sequence[tuple[Scope, int]]) -> list[tuple[list[float], list[float]]]:
        """Return `places` of each scope in one round trip to Redis."""
        pipe = self._redis.pipeline(transaction=False)
        for scope, most in asked:
            for key in _window_keys(scope.vendor_id, [scope.credential_id]):
                pipe.zrevrangebyscore(key, "(+inf", "(0", start=0, num=most, withscores=True)
        try:
            found = [[row[1] / 1e6 for row in reversed(rows)] for rows in pipe.execute()]
        except RedisError as error:
            raise ThrottleUnreachable(str(error)) from error
        return list(zip(found[::2], found[1::2], strict=True))

    def counts(self, windows: Mapping[int, Iterable[float]]) -> dict[int, tuple[int, list[int]]]:
        """Return, by vendor, the places of calls in flight and those in each of its windows (seconds). For monitors."""
        now, lengths = time.time(), {vendor: [0.0, *seconds] for vendor, seconds in windows.items()}
        pipe = self._redis.pipeline(transaction=False)
        for vendor_id, seconds in lengths.items():
            for since in seconds:
                pipe.zcount(_window_keys(vendor_id, [])[0], f"({_to_micros(now - since)}", "(+inf")
        try:
            found = iter(pipe.execute())
        except RedisError as error:
            raise ThrottleUnreachable(str(error)) from error
        return {vendor: (next(found), [next(found) for _ in seconds[1:]]) for vendor, seconds in lengths.items()}

    def granted(self, vendor_id: int, generation: int | None, since: float = 0.0) -> Trail | None:
        """Return the vendor's grants since then (Unix seconds) that this run of Redis remembers, oldest first.

        None if Redis lost its log since this generation began. Without a generation: all that Redis remembers.
        """
        known = "" if generation is None else generation
        reply = self._run_script(
            (_window_keys(vendor_id, []), [*self._request_head("granted"), known, _to_micros(since)])
        )
        word, cut = _parse_reply(reply)
        return (
            _parse_trail(reply[2], bool(cut), {*_decode_texts(reply[3])}, {*_decode_texts(reply[4])})
            if word == "trail"
            else None
        )

    def rebuild(
        self,
        vendor_id: int,
        generation: int,
        reach: float,
        entries: Iterable[LedgerEntry],
        receiver: str = "",
        version: int | None = None,
    ) -> Rebuilt:
        """Rebuild the vendor's log, or that of a receiver, from the ledger.

        Returns None, or Lost if Redis has this or a newer generation.

        `entries`: (credential id, seconds until the latest end of its calls, units) of each call made, or possibly
        made, within the last `reach` seconds, the longest window of the vendor and its credentials. The seconds count
        from now by the ledger's clock and are negative for calls that have ended. Grants of an older generation missing
        from `entries` must be fenced. `version`: of a receiver's limits (Vendor.receivers_version).
        """
        seal = _window_seal(generation, version)
        word, number = _parse_reply(self._run_script(self._rebuild_request(vendor_id, seal, reach, entries, receiver)))
        if word == "skewed":
            return Skewed(number / 1e6)
        return Lost() if word == "lost" else None


class AsyncThrottle(_Script):
    """The throttle for the event loop of a sender."""

    def __init__(self, redis: AsyncRedis, **clocks: Any) -> None:
        super().__init__(**clocks)
        self._script = AsyncScript(redis, SCRIPT)

    async def _run_script(self, ask: Ask) -> Any:
        try:
            return await self._script.run_script(*ask)
        except RedisError as error:
            raise ThrottleUnreachable(str(error)) from error

    async def acquire(
        self,
        scope: Scope,
        want: int,
        hold: float,
        least: int = 1,
        note: str = "",
        waiter: str = "",
        letters: Letters = (),
        asker: SharedAsk | None = None,
    ) -> AcquireResult:
        """See Throttle.acquire."""
        if refusal := _refuse_early(scope, want, least):
            return refusal
        grant = _promise_grant(want, hold)
        reply = await self._run_script(
            self._acquire_request(scope, grant.id, want, least, hold, note, waiter, letters, asker)
        )
        return _read_answer(reply, grant, letters, asker)

    async def done(
        self, scope: Scope, places: Iterable[str], receivers: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        """See Throttle.done."""
        await self._run_script(self._done_request(scope, places, receivers))

    async def cancel(self, scope: Scope, places: Iterable[str], counted: bool = False) -> None:
        """See Throttle.cancel."""
        await self._run_script(self._cancel_request(scope, places, counted))


def _parse_trail(rows: list[Any], cut: bool, used: set[str], in_flight: set[str]) -> Trail:
    found: dict[str, Granted] = {}
    for entry, score in zip(_decode_texts(rows[::2]), rows[1::2], strict=True):
        grant, units, note = entry.split(" ", 2)
        if int(units) > 0:
            marks = grant in used, grant in in_flight
            found[grant] = Granted(grant, int(units), note, float(score) / 1e6, int(units), *marks)
        elif grant in found:
            found[grant] = replace(found[grant], units=found[grant].units + int(units))
    return Trail(tuple(one for one in found.values() if one.units > 0), cut)


def _decode_texts(texts: list[Any]) -> list[str]:
    return [text.decode() if isinstance(text, bytes) else text for text in texts]


def _to_micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _window_keys(vendor_id: int, credential_ids: Iterable[int], *receivers: str, of: str = "") -> list[str]:
    """Return the keys of the vendor and the credentials. The hash tag keeps them in one slot of a Redis Cluster.

    A receiver has a log of its own, of the same kind: its window counts beside those of vendor and credential. of: the
    keys of that receiver alone; receivers: theirs follow, in pairs.
    """
    vendor, ids = f"mailhub:{{v{vendor_id}}}", list(credential_ids)
    keys = [
        f"{vendor}{_receiver_suffix(of)}:window",
        *(f"{vendor}{_receiver_suffix(of)}:c{credential_id}" for credential_id in ids),
    ]
    for receiver in receivers:
        keys += [f"{vendor}{_receiver_suffix(receiver)}:window", f"{vendor}{_receiver_suffix(receiver)}:c{ids[0]}"]
    return keys


def _receiver_suffix(receiver: str) -> str:
    return f":r:{receiver}" if receiver else ""


def _letter_runs(letters: Letters, receivers: Sequence[str]) -> str:
    """Return the letters as the script takes them: number of the receiver (0: none), cost and count of equal ones."""
    numbers = {"": 0} | {receiver: number for number, receiver in enumerate(receivers, start=1)}
    runs = ((receiver, cost, len(list(run))) for (receiver, cost), run in groupby(letters))
    return " ".join(f"{numbers[receiver]} {cost} {count}" for receiver, cost, count in runs)


def _window_seal(generation: int, version: int | None) -> str:
    """Return what vouches for a window. version: of a receiver's limits; under others it may lack calls."""
    return str(generation) if version is None else f"{generation}.{version}"


def _promise_grant(want: int, hold: float) -> Grant:
    """Return a grant with a random id. A counter could repeat after a fork or in a restored Redis."""
    return Grant(secrets.token_urlsafe(9), want, time.monotonic() + hold)


def _refuse_early(scope: Scope, want: int, least: int) -> Paused | Never | None:
    if not 1 <= least <= want:
        raise ValueError(f"ask for at least one place and no less than {least}, not {want}")
    smallest = min((limit.units for limit in scope.limits), default=want)
    if smallest == 0:
        return Paused()
    return Never(smallest) if least > smallest else None


def _read_answer(reply: list[Any], grant: Grant, letters: Letters, asker: SharedAsk | None) -> AcquireResult:
    word, number = _parse_reply(reply)
    if word in ("grant", "full"):
        names = dict.fromkeys(receiver for receiver, _ in letters if receiver)
        units = dict(zip(names, map(int, reply[4::2]), strict=True))
        full = {name: int(wait) / 1e6 for name, wait in zip(names, reply[5::2], strict=True) if int(wait)}
        if word == "full":
            return ReceiversFull(full)
        sponsors, given = asker.sponsors() if asker else (), list(map(int, reply[3].split()))
        parts = dict(zip(sponsors, given, strict=True)) if given else {}
        return Grant(grant.id, number, grant.deadline, int(reply[2]) / 1e6, units, full, parts)
    if word == "wait":
        return Wait(number / 1e6)
    return Skewed(number / 1e6) if word == "skewed" else Lost()


def _parse_reply(reply: list[Any]) -> tuple[str, int]:
    word = reply[0].decode() if isinstance(reply[0], bytes) else reply[0]
    return word, int(reply[1]) if len(reply) > 1 else 0
