"""What allows a sender's next claim: an open credential, permits, and the claim by count."""

import logging
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection

from campaigns import failpoints
from campaigns.claiming import claims
from campaigns.claiming.claims import PermittedCall
from campaigns.claiming.letters import LeasedJob
from vendors.limits.throttle import AsyncThrottle, ThrottleUnreachable
from vendors.limits.values import AcquireResult, Grant, Scope, Wait

log = logging.getLogger(__name__)

LEAD = 1.0  # seconds before a permit is free at which the job is taken again, so that its sender is ready

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
    """Calls that may start. nothing_waits: there are none, because nothing waits from the cursor on.

    suppressions: as in Claimed; who was suppressed since the import must not be called.
    """

    calls: list[PermittedCall]
    nothing_waits: bool = False
    suppressions: int = 0


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
        messages, claim, nothing_waits, suppressions = await claims.claim(connection, params | {"most": grant.units})
        if claim is None:
            return PermittedCalls([], nothing_waits)
        permits = zip(messages, grant.places(), strict=False)
        calls = [PermittedCall(one, claim, (permit,), latest) for one, permit in permits]
        return PermittedCalls(calls, suppressions=suppressions)
