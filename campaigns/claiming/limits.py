"""What a sender has to know about the world outside its job, read anew every second and after each refusal."""

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from campaigns.claiming.claims import Lease
from campaigns.failover import guard
from vendors.health import HealthPolicy
from vendors.limits.values import Limit, Scope

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
    adoptions, *facts = store_is or (0, 0, 0, 0)
    halted = guard.why_halted(*map(bool, facts))
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
    return None if shut else replace(_scope(vendor_id, credential_id, generation, limits), terms=terms)


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
