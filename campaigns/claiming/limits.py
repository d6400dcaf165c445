"""What allows a sender's next claim: context, permits, and the claim made by count or by cost.

The context is what a sender has to know of the rows outside its job, read anew every second and after each refusal.
Permits are places in the vendor's window. Letters that take one place each are claimed by count; all others are made
and priced before there are places for them.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection

from campaigns import failpoints
from campaigns.claiming import claims
from campaigns.claiming.claims import ClaimedMessage, Lease, LeasedJob, PermittedCall, letters_in_turn
from campaigns.failover import guard
from vendors.adapters.base import Letter, one_unit
from vendors.health import HealthPolicy
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import AcquireResult, Grant, Limit, Scope, Wait
from vendors.outcomes import Refused

log = logging.getLogger(__name__)

LEAD = 1.0  # seconds before a place is free at which a job is taken again: its sender is ready then
TOO_DEAR = "too_dear"

READ = f"""
SELECT clock_timestamp() AS now, j.status, j.fence, v.generation, v.terms, v.paused OR c.paused AS paused,
    CASE WHEN v.paused THEN v.paused_reason ELSE c.paused_reason END AS paused_reason, c.closed_until,
    (SELECT coalesce(json_agg(json_build_array(l.units, l.seconds, l.credential_id)), '[]')
     FROM vendors_ratelimit l WHERE l.vendor_id = v.id AND coalesce(l.credential_id, c.id) = c.id) AS limits,
    j.size::bigint - j.accepted - j.refused - j.in_doubt - j.expired,
    (SELECT array[s.adoptions, ({guard.SAME})::int, ({guard.FITS})::int, (s.tables = '')::int]
     FROM campaigns_store s WHERE s.id = 1) AS store,
    v.min_requests, v.min_ratio, v.health_ttl, v.retry_after
FROM campaigns_job j JOIN vendors_credential c ON c.id = j.credential_id JOIN vendors_vendor v ON v.id = j.vendor_id
WHERE j.id = %(job)s
"""


@dataclass(frozen=True, slots=True)
class SendContext:
    """One reading: whether the job is still ours, whether its way is open, and under which terms.

    left: messages of the job without a result, those in a call included. asked: when, in seconds of time.monotonic.
    halted: why nobody at all may start a call; adoptions: of the store.
    """

    asked: float
    now: datetime
    halted: str | None
    adoptions: int
    ours: bool
    terms: int
    scope: Scope
    paused: str | None
    closed_until: datetime | None
    left: int
    health: HealthPolicy

    @property
    def closed_for(self) -> float:
        """Seconds until the vendor may be called again; 0 when it may be called now."""
        return max(0.0, (self.closed_until - self.now).total_seconds()) if self.closed_until else 0.0

    def monotonic(self, at: datetime) -> float:
        """A moment of the database's clock on ours; never later than it is."""
        return self.asked + (at - self.now).total_seconds()

    def halted_since(self, adoptions: int) -> str | None:
        """Why a sender that began at that adoption of the store may start no call, nor expire anything."""
        return self.halted or (None if self.adoptions == adoptions else "the store was taken over in the meantime")

    def admits(self, before: "SendContext") -> bool:
        """Could a claim under `before` have claimed something: is all that its gate asks for still so?"""
        same = self.scope.generation == before.scope.generation and self.terms == before.terms
        same = same and self.adoptions == before.adoptions and self.halted is None
        return same and self.ours and self.paused is None and not self.closed_for


async def read(connection: AsyncConnection[Any], lease: Lease, vendor_id: int, credential_id: int) -> SendContext:
    """The rows as they are now."""
    asked = time.monotonic()
    cursor = await connection.execute(READ, {"job": lease.job_id})
    row = await cursor.fetchone()
    assert row is not None, "jobs are never deleted"
    now, status, fence, generation, terms, paused, reason, closed_until, limits, left, store_is, *health = row
    adoptions, same, fits, migrating = store_is or (0, 0, 0, 0)
    halted = None if same and fits else guard.why_halted(bool(same), bool(fits), bool(migrating))
    scope = _scope(vendor_id, credential_id, generation, limits)
    ours = status == "SENDING" and fence == lease.fence
    why = (reason or "paused") if paused else None
    return SendContext(
        asked, now, halted, adoptions, ours, terms, scope, why, closed_until, left, HealthPolicy(*health)
    )


READ_VENDOR = f"""
SELECT v.generation, v.terms, v.paused OR c.paused OR coalesce(c.closed_until > clock_timestamp(), false)
        OR NOT EXISTS ({guard.KNOWN}) AS shut,
    (SELECT coalesce(json_agg(json_build_array(l.units, l.seconds, l.credential_id)), '[]')
     FROM vendors_ratelimit l WHERE l.vendor_id = v.id AND coalesce(l.credential_id, c.id) = c.id)
FROM vendors_vendor v JOIN vendors_credential c ON c.vendor_id = v.id
WHERE v.id = %(vendor)s AND c.id = %(credential)s
"""


async def read_vendor(connection: AsyncConnection[Any], vendor_id: int, credential_id: int) -> Scope | None:
    """The terms under which the vendor may be called now, without a job; None: it may not."""
    cursor = await connection.execute(READ_VENDOR, {"vendor": vendor_id, "credential": credential_id})
    row = await cursor.fetchone()
    assert row is not None, "vendors with jobs are never deleted"
    generation, terms, shut, limits = row
    return None if shut else replace(_scope(vendor_id, credential_id, generation, limits), limits_version=terms)


def _scope(vendor_id: int, credential_id: int, generation: int, limits: list[Any]) -> Scope:
    of_vendor = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is None)
    of_login = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is not None)
    return Scope(vendor_id, credential_id, generation, of_vendor, of_login)


CLOSE = """
UPDATE vendors_credential SET closed_until = greatest(closed_until, clock_timestamp() + %(wait)s * interval '1 second')
WHERE id = %(credential)s
"""
FULL = """
UPDATE vendors_credential SET full_until = clock_timestamp() + %(wait)s * interval '1 second' WHERE id = %(credential)s
RETURNING full_until
"""
REOPEN = (
    "UPDATE vendors_credential SET full_until = NULL WHERE vendor_id = %(vendor)s AND full_until > clock_timestamp()"
)
PAUSE = (
    "UPDATE vendors_credential SET paused = true, paused_reason = %(reason)s WHERE id = %(credential)s AND NOT paused"
)


async def close(connection: AsyncConnection[Any], credential_id: int, seconds: float) -> None:
    """The vendor asked for a pause: nobody calls it over this credential before then."""
    await connection.execute(CLOSE, {"credential": credential_id, "wait": seconds})


async def full(connection: AsyncConnection[Any], credential_id: int, seconds: float) -> datetime:
    """Casters need not try before then, which is returned; `reopen` and an edit of the limits take it back."""
    cursor = await connection.execute(FULL, {"credential": credential_id, "wait": seconds})
    row = await cursor.fetchone()
    assert row is not None, "credentials with jobs are never deleted"
    until: datetime = row[0]
    return until


async def reopen(connection: AsyncConnection[Any], vendor_id: int) -> None:
    """Places of the vendor's window came back: whoever waits for one may try."""
    await connection.execute(REOPEN, {"vendor": vendor_id})


async def pause(connection: AsyncConnection[Any], credential_id: int, reason: str) -> None:
    """Only a person can mend it: the vendor refuses the login or the address."""
    await connection.execute(PAUSE, {"credential": credential_id, "reason": reason[:255]})


@dataclass(frozen=True, slots=True)
class Need:
    """Places for what is to be claimed next: as many as `want`, with fewer than `least` nothing can go."""

    want: int
    least: int


class Permits:
    """For one job. hold: seconds within which a call under a grant has surely ended."""

    def __init__(self, throttle: AsyncThrottle, work: LeasedJob, hold: float) -> None:
        self._throttle, self._work, self._hold = throttle, work, hold

    async def acquire(
        self, rows: Any, scope: Scope, need: Need, note: str, patience: float
    ) -> tuple[AcquireResult, datetime | None]:
        """What the throttle answers; and, where the wait is longer than `patience`, until when no caster need try.

        note: what for; Redis remembers it. Raises Unreachable.
        """
        answer = await self._ask(scope, need, note)
        if not isinstance(answer, Wait) or answer.seconds <= patience:
            return answer, None
        opens_at = await full(rows, self._work.credential_id, answer.seconds - LEAD)
        # Whoever cancels places clears that row, but may have done it just before it was written.
        answer = await self._ask(scope, need, note)
        if isinstance(answer, Grant):
            await reopen(rows, self._work.vendor_id)
        return answer, opens_at

    async def _ask(self, scope: Scope, need: Need, note: str) -> AcquireResult:
        if not need.least:
            return Grant("", 0, time.monotonic() + self._hold)
        return await self._throttle.acquire(scope, need.want, self._hold, need.least, note)

    async def done(self, scope: Scope, places: list[str]) -> None:
        """Their calls are over."""
        failpoints.here("before_done")
        try:
            await self._throttle.done(scope, places)
        except ThrottleUnreachable:  # they run out by themselves, later
            log.warning("job %s: places could not be handed back", self._work.lease.job_id)
        failpoints.here("after_done")

    async def cancel(self, rows: Any, scope: Scope, places: list[str]) -> None:
        """No call was started for them: somebody else may have them at once."""
        try:
            await self._throttle.cancel(scope, places)
        except ThrottleUnreachable:
            log.warning("job %s: places could not be handed back", self._work.lease.job_id)
        else:
            await reopen(rows, self._work.vendor_id)


class Claimer(Protocol):
    """For one stream."""

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        """For at most so many messages from the cursor on."""

    async def claim(self, connection: Any, words: dict[str, Any], grant: Grant, latest: float) -> list[PermittedCall]:
        """In the order of their ids; the other places are nobody's. latest: as in PermittedCall."""


def claimer(work: LeasedJob) -> Claimer:
    return ByCount() if work.adapter.capabilities.cost is one_unit else ByCost(work)


class ByCount:
    """The usual way: what is claimed is looked at by its sender only afterwards."""

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        return Need(most, 1)

    async def claim(self, connection: Any, words: dict[str, Any], grant: Grant, latest: float) -> list[PermittedCall]:
        messages = await claims.claim(connection, words | {"most": grant.units})
        return [PermittedCall(one, (place,), latest) for one, place in zip(messages, grant.places(), strict=False)]


class Priced(NamedTuple):
    """A message with what its letter costs; 0: it is not called, `letter` says why."""

    message: ClaimedMessage
    letter: Letter | Refused
    units: int


class ByCost:
    """Looks ahead: letters are made and priced before there are places for them.

    They go in their order: a dear one that has no place yet is not passed by cheap ones behind it.
    """

    def __init__(self, work: LeasedJob) -> None:
        self._work, self._cost = work, work.adapter.capabilities.cost
        self._ahead: deque[Priced] = deque()
        self._cursor = work.first

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        await self._look_ahead(connection, cursor, most)
        smallest = min((limit.units for limit in scope.limits if limit.units), default=None)
        self._next = [_within(priced, smallest) for priced in list(self._ahead)[:most]]
        return Need(sum(priced.units for priced in self._next), self._next[0].units if self._next else 0)

    async def claim(self, connection: Any, words: dict[str, Any], grant: Grant, latest: float) -> list[PermittedCall]:
        fitting = {priced.message.id: priced for priced in _prefix(self._next, grant.units)}
        units = [priced.units for priced in fitting.values()]
        messages = await claims.claim_these(connection, words, list(fitting), units)
        places = iter(grant.places())
        tickets = []
        for message in messages:
            _, letter, cost = fitting[message.id]
            tickets.append(PermittedCall(message, tuple(next(places) for _ in range(cost)), latest, letter))
        return tickets

    async def _look_ahead(self, connection: Any, cursor: int, most: int) -> None:
        if cursor < self._cursor:  # what was not sent goes again, from the start
            self._ahead.clear()
        self._cursor = cursor
        while self._ahead and self._ahead[0].message.id < cursor:
            self._ahead.popleft()
        if len(self._ahead) < most:
            after = self._ahead[-1].message.id + 1 if self._ahead else cursor
            found = await claims.ahead(connection, self._work.lease, after, self._work.end, most - len(self._ahead))
            self._ahead.extend(map(self._price, found, await letters_in_turn(self._work, found)))

    def _price(self, message: ClaimedMessage, letter: Letter | Refused) -> Priced:
        return Priced(message, letter, max(1, self._cost(letter)) if isinstance(letter, Letter) else 0)


def _within(priced: Priced, smallest: int | None) -> Priced:
    if smallest is None or priced.units <= smallest:
        return priced
    reason = f"it takes {priced.units} places of the vendor's limit, which has {smallest}"
    return Priced(priced.message, Refused(TOO_DEAR, reason), 0)


def _prefix(priced: list[Priced], units: int) -> list[Priced]:
    """The first of them that cost no more than so many units together."""
    fitting = []
    for one in priced:
        units -= one.units
        if units < 0:
            break
        fitting.append(one)
    return fitting
