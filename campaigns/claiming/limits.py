"""What keeps senders from a credential for a while: its vendor asked to wait, its limit is used up, or it is paused."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from vendors.locks import CREDENTIAL_ALONE, VENDOR_ALONE
from vendors.outcomes import RETRY_MAX

PATIENCE = 5.0  # seconds that a sender waits; if it would be longer, it puts the job back
LEAD = 1.0  # seconds before a permit is free at which the job is taken again, so that its sender is ready


@dataclass(frozen=True, slots=True)
class Need:
    """Permits for the next claim, in units: as many as `want`; with fewer than `least` nothing can be called."""

    want: int
    least: int


BACKOFF_FIRST, BACKOFF_MOST = 0.5, 30.0  # seconds that a credential is closed whose vendor cannot be reached
RECOVERED = 120.0  # seconds without such a failure after which the next one is a first one again

ASKED_LEAST, ASKED_MOST = 1.0, 300.0  # seconds that one waits for a vendor that states less, again and again

# Each statement takes its turn before the row (vendors/locks.py): earlier claims end, later ones wait. A CASE asks for
# one only where there is something to change, as most answers and unused permits change nothing.
#
# Many calls are answered so together: only the first of them closes it, the others can make that longer.
_OPEN = "coalesce(retry_after_until <= clock_timestamp(), true)"
_ASKED = f"""CASE WHEN {_OPEN}
    THEN greatest(%(wait)s, {ASKED_LEAST}, least({ASKED_MOST}, 2 * coalesce(asked_wait, 0))) ELSE %(wait)s END"""
CLOSE = f"""
UPDATE vendors_credential SET unreached_since = NULL,
    asked_wait = CASE WHEN {_OPEN} THEN {_ASKED} ELSE asked_wait END,
    retry_after_until = greatest(retry_after_until, clock_timestamp() + ({_ASKED}) * interval '1 second')
WHERE id = %(credential)s AND {CREDENTIAL_ALONE}
"""
SERVED = f"""
UPDATE vendors_credential SET asked_wait = NULL WHERE id = %(credential)s
    AND CASE WHEN asked_wait IS NOT NULL AND {_OPEN} THEN {CREDENTIAL_ALONE} END
"""
_FIRST = f"unreached_since IS NULL OR retry_after_until <= clock_timestamp() - interval '{RECOVERED} seconds'"
_LONGER = f"""greatest(%(least)s, CASE WHEN {_FIRST}
    THEN {BACKOFF_FIRST} ELSE greatest({BACKOFF_FIRST}, least({BACKOFF_MOST}, 2 * backoff)) END)"""
# Many calls fail together: only the first of them closes it.
BACK_OFF = f"""
UPDATE vendors_credential SET backoff = {_LONGER},
    unreached_since = CASE WHEN {_FIRST} THEN clock_timestamp() ELSE unreached_since END,
    retry_after_until = clock_timestamp() + ({_LONGER}) * interval '1 second'
WHERE id = %(credential)s AND CASE WHEN {_OPEN} THEN {CREDENTIAL_ALONE} END
"""
REACHED = f"""
UPDATE vendors_credential SET unreached_since = NULL WHERE id = %(credential)s AND CASE
    WHEN unreached_since < coalesce(%(at)s::timestamptz, clock_timestamp()) THEN {CREDENTIAL_ALONE} END
"""
FULL = f"""
UPDATE vendors_credential SET rate_limited_until = clock_timestamp() + %(wait)s * interval '1 second'
WHERE id = %(credential)s AND {CREDENTIAL_ALONE} RETURNING rate_limited_until
"""
REOPEN = f"""
UPDATE vendors_credential SET rate_limited_until = NULL WHERE vendor_id = %(vendor)s
    AND CASE WHEN rate_limited_until > clock_timestamp() THEN {VENDOR_ALONE} END
"""
PAUSE = f"""
UPDATE vendors_credential SET paused = true, paused_reason = %(reason)s
WHERE id = %(credential)s AND CASE WHEN NOT paused THEN {CREDENTIAL_ALONE} END
"""


async def close(connection: AsyncConnection[Any], credential_id: int, seconds: float) -> None:
    """Close the credential for so many seconds, as its vendor asked (Retry-After), up to a day.

    Where that is asked for again at once, the next wait is at least twice as long as the last, up to ASKED_MOST: a
    vendor that states 0 or nothing is not called at full speed without end. A good answer begins it anew (`served`).
    The length is in the row: all streams and processes follow it.
    """
    wait = min(max(0.0, seconds), RETRY_MAX)  # 0 of what is no number
    await connection.execute(CLOSE, {"credential": credential_id, "wait": wait})


async def served(connection: AsyncConnection[Any], credential_id: int) -> None:
    """Note that the vendor has answered a call well that began after the last wait that it asked for."""
    await connection.execute(SERVED, {"credential": credential_id})


async def back_off(connection: AsyncConnection[Any], credential_id: int, least: float = 0.0) -> None:
    """Closes a credential whose vendor cannot be reached: twice as long as the last time, up to BACKOFF_MOST.

    It begins anew with BACKOFF_FIRST when the vendor has been `reached` since. least: not for less, in seconds. The
    length is in the row: all streams and processes follow it, also those that begin later. One that is closed already
    stays closed for as long as it was.
    """
    await connection.execute(BACK_OFF, {"credential": credential_id, "least": least})


async def reached(connection: AsyncConnection[Any], credential_id: int, at: datetime | None = None) -> None:
    """The vendor has answered a call at that time, by the database's clock; None: now."""
    await connection.execute(REACHED, {"credential": credential_id, "at": at})


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
