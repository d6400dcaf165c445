"""Reasons to leave a credential alone for a while: its vendor asked to wait, its limit is used up, or it is paused."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from vendors.limits.values import Letters, SharedAsk
from vendors.locks import CREDENTIAL_ALONE, VENDOR_ALONE
from vendors.outcomes import RETRY_MAX
from vendors.own_reasons import PAUSE, pause_params

PATIENCE = 5.0  # seconds that a sender waits at most; rather than wait longer, it puts the job back
LEAD = 1.0  # seconds before a permit is free; a mailcaster takes the job that early, so that its sender is ready


@dataclass(frozen=True, slots=True)
class Need:
    """Permits for the next claim, in units: up to `want`; with fewer than `least`, nothing can be called.

    letters, asker: as Throttle.acquire takes them.
    """

    want: int
    least: int
    letters: Letters = ()
    asker: SharedAsk | None = None


BACKOFF_FIRST, BACKOFF_MOST = 0.5, 30.0  # seconds that a credential is closed after its vendor could not be reached
RECOVERED = 120.0  # seconds without such a failure after which the backoff starts again

ASKED_LEAST, ASKED_MOST = 1.0, 300.0  # seconds to wait if the vendor keeps asking for less

# Each statement takes its turn before the row (vendors/locks.py): earlier claims end, later ones wait. Most answers and
# unused permits change nothing, so a CASE takes the turn only if there is something to change.
#
# A vendor gives this answer to many calls together. The first one closes the credential; the others can only extend it.
_OPEN = "coalesce(retry_after_until <= clock_timestamp(), true)"
_OPEN_BUT_BRAKED = f"(braked_at IS NOT NULL OR {_OPEN})"
_ASKED = f"""CASE WHEN {_OPEN_BUT_BRAKED}
    THEN greatest(%(wait)s, {ASKED_LEAST}, least({ASKED_MOST}, 2 * coalesce(asked_wait, 0))) ELSE %(wait)s END"""
# A vendor that asks to wait answers, so its brake ends; the time until its next probe is not a requested wait.
CLOSE = f"""
UPDATE vendors_credential SET unreached_since = NULL,
    braked_at = NULL, brake_released_at = CASE WHEN braked_at IS NULL THEN brake_released_at ELSE clock_timestamp() END,
    asked_wait = CASE WHEN {_OPEN_BUT_BRAKED} THEN {_ASKED} ELSE asked_wait END,
    retry_after_until = greatest(CASE WHEN braked_at IS NULL THEN retry_after_until END,
        clock_timestamp() + ({_ASKED}) * interval '1 second')
WHERE id = %(credential)s AND {CREDENTIAL_ALONE}
"""
SERVED = f"""
UPDATE vendors_credential SET asked_wait = NULL WHERE id = %(credential)s
    AND CASE WHEN asked_wait IS NOT NULL AND {_OPEN} THEN {CREDENTIAL_ALONE} END
"""
_FIRST = f"unreached_since IS NULL OR retry_after_until <= clock_timestamp() - interval '{RECOVERED} seconds'"
_LONGER = f"""greatest(%(least)s, CASE WHEN {_FIRST}
    THEN {BACKOFF_FIRST} ELSE greatest({BACKOFF_FIRST}, least({BACKOFF_MOST}, 2 * backoff)) END)"""
# Many calls fail together: only the first one closes the credential.
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


async def close_credential(connection: AsyncConnection[Any], credential_id: int, seconds: float) -> None:
    """Close the credential for this many seconds at its vendor's request (Retry-After), up to a day.

    If the vendor asks again right after the wait, the next one has at least twice its length, up to ASKED_MOST. A
    vendor that asks for 0 seconds, or states none, is therefore not called at full speed forever. A good answer resets
    this (`record_good_answer`). The length is stored in the row, so all streams and processes follow it.
    """
    wait = min(max(0.0, seconds), RETRY_MAX)  # NaN becomes 0
    await connection.execute(CLOSE, {"credential": credential_id, "wait": wait})


async def record_good_answer(connection: AsyncConnection[Any], credential_id: int) -> None:
    """Record a good answer to a call that began after the last wait that the vendor asked for."""
    await connection.execute(SERVED, {"credential": credential_id})


async def back_off(connection: AsyncConnection[Any], credential_id: int, least: float = 0.0) -> None:
    """Close a credential whose vendor cannot be reached. Each time doubles the span, up to BACKOFF_MOST.

    The backoff starts again at BACKOFF_FIRST once the vendor has been `reached`. least: minimum length in seconds. The
    length is stored in the row, so all streams and processes follow it, including later ones. A closed credential keeps
    its time.
    """
    await connection.execute(BACK_OFF, {"credential": credential_id, "least": least})


async def record_reached(connection: AsyncConnection[Any], credential_id: int, at: datetime | None = None) -> None:
    """Record that the vendor answered a call at that time, by the database's clock; None means now."""
    await connection.execute(REACHED, {"credential": credential_id, "at": at})


async def mark_limit_full(connection: AsyncConnection[Any], credential_id: int, seconds: float) -> datetime:
    """Mark the rate limit as used up for this many seconds and return when that ends.

    Until then mailcasters take no job. `undo_full` and an edit of the limits undo it.
    """
    cursor = await connection.execute(FULL, {"credential": credential_id, "wait": seconds})
    row = await cursor.fetchone()
    assert row is not None, "credentials with jobs are never deleted"
    until: datetime = row[0]
    return until


async def undo_full(connection: AsyncConnection[Any], vendor_id: int) -> None:
    """Undo `mark_limit_full` for a vendor after permits were returned."""
    await connection.execute(REOPEN, {"vendor": vendor_id})


async def pause_credential(connection: AsyncConnection[Any], credential_id: int, reason: str) -> None:
    """Pause the credential until somebody resumes it, because it was refused or its address is wrong."""
    await connection.execute(PAUSE, pause_params(credential_id, reason))
