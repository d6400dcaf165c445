"""What allows a sender's next claim: context, permits, and the claim by count.

A stream reads the context, the rows that decide whether its job may be called, every second and after each refusal.
"""

import logging
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection

from campaigns import failpoints
from campaigns.claiming import claims
from campaigns.claiming.claims import Lease, LeasedJob, PermittedCall
from campaigns.failover import guard
from vendors.health import HealthPolicy
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import AcquireResult, Grant, Limit, Scope, Wait

log = logging.getLogger(__name__)

LEAD = 1.0  # seconds before a permit is free at which the job is taken again, so that its sender is ready

READ = f"""
SELECT clock_timestamp() AS now, j.status, j.fence, v.generation, v.limits_version, v.paused OR c.paused AS paused,
    CASE WHEN v.paused THEN v.paused_reason ELSE c.paused_reason END AS paused_reason, c.retry_after_until,
    (SELECT coalesce(json_agg(json_build_array(l.units, l.seconds, l.credential_id)), '[]')
     FROM vendors_ratelimit l WHERE l.vendor_id = v.id AND coalesce(l.credential_id, c.id) = c.id) AS limits,
    j.size::bigint - j.accepted - j.refused - j.in_doubt - j.expired, coalesce(j.next_message, j.first_message),
    (SELECT array[s.adoptions, ({guard.SAME})::int, ({guard.FITS})::int, (s.tables = '')::int]
     FROM campaigns_store s WHERE s.id = 1) AS store,
    v.min_requests, v.min_ratio, v.health_ttl, v.retry_after
FROM campaigns_job j JOIN vendors_credential c ON c.id = j.credential_id JOIN vendors_vendor v ON v.id = j.vendor_id
WHERE j.id = %(job)s
"""


@dataclass(frozen=True, slots=True)
class SendContext:
    """What was read at one moment: whether the job is still ours, may be called, and under which limits.

    asked: when, in seconds of time.monotonic. halted: why no call at all may start; adoptions: of the store. left:
    messages of the job without a result, those in a call included. next_message: where a
    sender begins.
    """

    asked: float
    now: datetime
    halted: str | None
    adoptions: int
    ours: bool
    limits_version: int
    scope: Scope
    paused: str | None
    retry_after_until: datetime | None
    left: int
    next_message: int
    health: HealthPolicy

    @property
    def closed_for(self) -> float:
        """Seconds until the vendor may be called again; 0 when it may be called now."""
        return max(0.0, (self.retry_after_until - self.now).total_seconds()) if self.retry_after_until else 0.0

    def monotonic(self, at: datetime) -> float:
        """A time of the database's clock in seconds of time.monotonic; never later than it is."""
        return self.asked + (at - self.now).total_seconds()

    def halted_since(self, adoptions: int) -> str | None:
        """Why a sender that began at that adoption of the store may not call or expire anything; None: it may."""
        return self.halted or (None if self.adoptions == adoptions else "the store was taken over in the meantime")


async def read(connection: AsyncConnection[Any], lease: Lease, vendor_id: int, credential_id: int) -> SendContext:
    """Reads the rows as they are now."""
    asked = time.monotonic()
    cursor = await connection.execute(READ, {"job": lease.job_id})
    row = await cursor.fetchone()
    assert row is not None, "jobs are never deleted"
    (
        now,
        status,
        fence,
        generation,
        version,
        paused,
        reason,
        retry_after_until,
        limits,
        left,
        next_message,
        store_is,
        *health,
    ) = row
    adoptions, same, fits, migrating = store_is or (0, 0, 0, 0)
    halted = None if same and fits else guard.why_halted(bool(same), bool(fits), bool(migrating))
    scope = _scope(vendor_id, credential_id, generation, limits)
    ours = status == "SENDING" and fence == lease.fence
    why = (reason or "paused") if paused else None
    return SendContext(
        asked,
        now,
        halted,
        adoptions,
        ours,
        version,
        scope,
        why,
        retry_after_until,
        left,
        next_message,
        HealthPolicy(*health),
    )


READ_VENDOR = f"""
SELECT v.generation, v.limits_version, v.paused OR c.paused OR coalesce(c.retry_after_until > clock_timestamp(), false)
        OR NOT EXISTS ({guard.KNOWN}) AS shut,
    (SELECT coalesce(json_agg(json_build_array(l.units, l.seconds, l.credential_id)), '[]')
     FROM vendors_ratelimit l WHERE l.vendor_id = v.id AND coalesce(l.credential_id, c.id) = c.id)
FROM vendors_vendor v JOIN vendors_credential c ON c.vendor_id = v.id
WHERE v.id = %(vendor)s AND c.id = %(credential)s
"""


async def read_vendor(connection: AsyncConnection[Any], vendor_id: int, credential_id: int) -> Scope | None:
    """The limits under which the vendor may be called now, without a job; None: it may not."""
    cursor = await connection.execute(READ_VENDOR, {"vendor": vendor_id, "credential": credential_id})
    row = await cursor.fetchone()
    assert row is not None, "vendors with jobs are never deleted"
    generation, limits_version, shut, limits = row
    scope = replace(_scope(vendor_id, credential_id, generation, limits), limits_version=limits_version)
    return None if shut else scope


def _scope(vendor_id: int, credential_id: int, generation: int, limits: list[Any]) -> Scope:
    of_vendor = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is None)
    of_login = tuple(Limit(units, seconds) for units, seconds, credential in limits if credential is not None)
    return Scope(vendor_id, credential_id, generation, of_vendor, of_login)


CLOSE = """
UPDATE vendors_credential SET
    retry_after_until = greatest(retry_after_until, clock_timestamp() + %(wait)s * interval '1 second')
WHERE id = %(credential)s
"""
FULL = """
UPDATE vendors_credential SET rate_limited_until = clock_timestamp() + %(wait)s * interval '1 second'
WHERE id = %(credential)s RETURNING rate_limited_until
"""
REOPEN = (
    "UPDATE vendors_credential SET rate_limited_until = NULL"
    " WHERE vendor_id = %(vendor)s AND rate_limited_until > clock_timestamp()"
)
PAUSE = (
    "UPDATE vendors_credential SET paused = true, paused_reason = %(reason)s WHERE id = %(credential)s AND NOT paused"
)


async def close(connection: AsyncConnection[Any], credential_id: int, seconds: float) -> None:
    """Closes the credential for so many seconds, as its vendor asked (Retry-After)."""
    await connection.execute(CLOSE, {"credential": credential_id, "wait": seconds})


async def full(connection: AsyncConnection[Any], credential_id: int, seconds: float) -> datetime:
    """Marks the rate limit as used up for so many seconds: until then mailcasters take no job. Returns the time.

    `undo_full` and an edit of the limits undo it.
    """
    cursor = await connection.execute(FULL, {"credential": credential_id, "wait": seconds})
    row = await cursor.fetchone()
    assert row is not None, "credentials with jobs are never deleted"
    until: datetime = row[0]
    return until


async def undo_full(connection: AsyncConnection[Any], vendor_id: int) -> None:
    """Undoes `full` for a vendor: permits were returned."""
    await connection.execute(REOPEN, {"vendor": vendor_id})


async def pause(connection: AsyncConnection[Any], credential_id: int, reason: str) -> None:
    """Pauses the credential until somebody resumes it: the vendor refuses the login or the address."""
    await connection.execute(PAUSE, {"credential": credential_id, "reason": reason[:255]})


@dataclass(frozen=True, slots=True)
class Need:
    """Permits for the next claim, in units: as many as `want`; with fewer than `least` nothing can be called."""

    want: int
    least: int


class Permits:
    """The permits of one job. hold: seconds within which a call under a grant has surely ended."""

    def __init__(self, throttle: AsyncThrottle, job: LeasedJob, hold: float) -> None:
        self._throttle, self._job, self._hold = throttle, job, hold

    async def acquire(
        self, rows: Any, scope: Scope, need: Need, note: str, patience: float
    ) -> tuple[AcquireResult, datetime | None]:
        """(the throttle's answer, until when no mailcaster need try if the wait is longer than `patience` seconds).

        note: what the permits are for; Redis remembers it. Raises ThrottleUnreachable.
        """
        answer = await self._ask(scope, need, note)
        if not isinstance(answer, Wait) or answer.seconds <= patience:
            return answer, None
        opens_at = await full(rows, self._job.credential_id, answer.seconds - LEAD)
        # A sender that cancels permits clears that row, but may have done so just before it was written.
        answer = await self._ask(scope, need, note)
        if isinstance(answer, Grant):
            await undo_full(rows, self._job.vendor_id)
        return answer, opens_at

    async def _ask(self, scope: Scope, need: Need, note: str) -> AcquireResult:
        if not need.least:
            return Grant("", 0, time.monotonic() + self._hold)
        return await self._throttle.acquire(scope, need.want, self._hold, need.least, note)

    async def done(self, scope: Scope, permits: list[str]) -> None:
        """Returns the permits of calls that are over."""
        failpoints.here("before_done")
        try:
            await self._throttle.done(scope, permits)
        except ThrottleUnreachable:  # they expire by themselves
            log.warning("job %s: places could not be handed back", self._job.lease.job_id)
        failpoints.here("after_done")

    async def cancel(self, rows: Any, scope: Scope, permits: list[str]) -> None:
        """Returns permits for which no call was started: they can be granted again at once."""
        try:
            await self._throttle.cancel(scope, permits)
        except ThrottleUnreachable:
            log.warning("job %s: places could not be handed back", self._job.lease.job_id)
        else:
            await undo_full(rows, self._job.vendor_id)


class PermittedCalls(NamedTuple):
    """Calls that may start. nothing_waits: there are none, because nothing waits from the cursor on."""

    calls: list[PermittedCall]
    nothing_waits: bool = False


class Claimer(Protocol):
    """Claims messages for one stream."""

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        """The permits for at most `most` messages from the cursor on."""

    async def claim(self, connection: Any, params: dict[str, Any], grant: Grant, latest: float) -> PermittedCalls:
        """Claims messages in the order of their ids; permits that are left are unused. latest: as in PermittedCall."""


class ByCount:
    """Each message costs one unit, so letters are made after the claim."""

    async def need(self, connection: Any, scope: Scope, cursor: int, most: int) -> Need:
        return Need(most, 1)

    async def claim(self, connection: Any, params: dict[str, Any], grant: Grant, latest: float) -> PermittedCalls:
        messages, claim, nothing_waits = await claims.claim(connection, params | {"most": grant.units})
        if claim is None:
            return PermittedCalls([], nothing_waits)
        permits = zip(messages, grant.places(), strict=False)
        return PermittedCalls([PermittedCall(one, claim, (permit,), latest) for one, permit in permits])
