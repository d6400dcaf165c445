"""Steps 4 and 5: take a job, start it, claim its messages, begin a new pass. One function a verb.

A claim is one row with the ids of the messages whose calls may start, committed before the first of them. It checks the
fence, so only the holder of the job claims, and a sender that was thought dead claims nothing. The holder claims
forward, one claim after the other; before another pass, and before another sender takes the job, each claimed message
has an end or is known to wait. So no message is called for two claims.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection as django_connection
from django.db.models.functions import Now
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from campaigns import failpoints
from campaigns.claiming.letters import ClaimedMessage, Lease, LeasedJob
from campaigns.failover import guard
from campaigns.lifecycle import holding, move
from campaigns.models import Job
from vendors.adapters.base import Letter
from vendors.outcomes import Refused


@dataclass(slots=True)
class OpenClaim:
    """A claim of which `left` messages are not answered yet. at: from when on its calls were allowed."""

    id: int
    at: datetime
    left: int


class PermittedCall(NamedTuple):
    """A claimed message with its permits; no call may start after `latest` (seconds of time.monotonic).

    letter: if it is made already; Refused: it is not called.
    """

    message: ClaimedMessage
    claim: OpenClaim
    permits: Sequence[str]
    latest: float
    letter: Letter | Refused | None = None


TAKE = """
UPDATE campaigns_job SET fence = fence + 1, heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND fence = %(fence)s AND status = 'ENQUEUED'
"""


def take(job_id: int, fence: int) -> Lease | None:
    """Takes the job that a mailcaster claimed under this fence; None: a doubled or late notification."""
    failpoints.here("before_take")
    with django_connection.cursor() as cursor:
        cursor.execute(TAKE, {"job": job_id, "fence": fence})
        if not cursor.rowcount:
            return None
    failpoints.here("after_take")
    return Lease(job_id, fence + 1)


def start(lease: Lease) -> bool:
    """ENQUEUED -> SENDING."""
    started = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "send", heartbeat_at=Now()) == 1
    failpoints.here("after_start")
    return started


# Nothing is claimed from a store that was taken over or has the tables of another version, nor by a sender that began
# before the last adoption. The vendor's row is locked: a rebuild of the window under a new generation, an edit of the
# limits, or a new suppression, waits for the claims before it and is seen by all after it. So is the job's row: once
# a stop or a pause has committed nothing is claimed any more. The time is read after these locks, and no call is
# allowed once the campaign has closed.
#
# The messages are read as they were when the statement began, and one that waited then may be accepted now by a report
# or a late answer: nothing is claimed if one was learned during the wait for the lock, nor while answers of an earlier
# sender are to be merged.
CLAIMING = """
WITH holder AS (
    SELECT learned FROM campaigns_job
    WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING' AND paused_at IS NULL FOR SHARE
), gate AS (
    SELECT v.suppressions FROM vendors_vendor v JOIN vendors_credential c ON c.id = %(credential)s
    WHERE v.id = %(vendor)s AND v.generation = %(generation)s AND v.limits_version = %(limits_version)s AND NOT v.paused
        AND NOT c.paused AND (c.retry_after_until IS NULL OR c.retry_after_until <= clock_timestamp())
        AND (SELECT learned FROM holder) = (SELECT learned FROM campaigns_job WHERE id = %(job)s)
        AND NOT EXISTS (SELECT FROM campaigns_answerbatch WHERE job_id = %(job)s AND fence < %(fence)s)
        AND EXISTS ({known} AND s.adoptions = %(adoptions)s)
    FOR SHARE OF v
), moment AS (
    SELECT at, suppressions FROM (SELECT clock_timestamp() AS at, suppressions FROM gate) now
    WHERE at < coalesce(%(closes)s::timestamptz, 'infinity')
), picked AS (
    SELECT m.id, m.uuid, m.resend_no, m.recipient, m.params FROM campaigns_message m
    WHERE {those} AND m.dequeued_at IS NULL
        AND (m.call_after IS NULL OR m.call_after <= (SELECT at FROM moment)) AND EXISTS (SELECT FROM moment)
    ORDER BY m.id {most}
), claim AS (
    INSERT INTO campaigns_claim (job_id, fence, at, messages, units)
    SELECT %(job)s, %(fence)s, (SELECT at FROM moment), array_agg(id ORDER BY id), {units}
    FROM picked HAVING count(*) > 0 RETURNING id
), ledger AS (
    INSERT INTO vendors_usage (vendor_id, credential_id, at, until, units, "grant")
    SELECT %(vendor)s, %(credential)s, clock_timestamp(), clock_timestamp() + %(hold)s * interval '1 second',
        {sum}, %(grant)s::text
    FROM picked HAVING {sum} > 0
)
SELECT (SELECT id FROM claim), moment.at, moment.suppressions, p.id, p.uuid || '-' || p.resend_no, p.recipient, p.params
FROM moment LEFT JOIN picked p ON true ORDER BY p.id
"""
CLAIM = CLAIMING.format(
    known=guard.KNOWN,
    those="m.id >= %(cursor)s AND m.id < %(end)s",
    most="LIMIT %(most)s",
    units="NULL::int[]",
    sum="count(*)",
)

# Where letters cost different numbers of units, the next messages are read first, and exactly those are claimed.
COST = "(%(units)s::int[])[array_position(%(ids)s::bigint[], id)]"
CLAIM_THESE = CLAIMING.format(
    known=guard.KNOWN,
    those="m.id = ANY(%(ids)s::bigint[])",
    most="",
    units=f"array_agg({COST} ORDER BY id)",
    sum=f"sum({COST})",
)


class Claimed(NamedTuple):
    """What a claim came to. claim: None if it was not allowed, or nothing waits. nothing_waits: from the cursor on.

    suppressions: the position of the last one that was stored before this claim.
    """

    messages: list[ClaimedMessage]
    claim: OpenClaim | None = None
    nothing_waits: bool = False
    suppressions: int = 0


async def claim(connection: AsyncConnection[TupleRow], params: dict[str, Any], statement: str = "") -> Claimed:
    """Claims at most `most` messages from `cursor` on. If it was not allowed, contexts.read may say why.

    params: as CLAIM names them; closes: from when on nothing is claimed. statement: replaces CLAIM.
    """
    cursor = await connection.execute(statement or CLAIM, {"closes": None, "grant": None, **params})
    rows = await cursor.fetchall()
    failpoints.here("after_claim")
    if not rows or rows[0][0] is None:
        return Claimed([], nothing_waits=bool(rows))
    claim = OpenClaim(rows[0][0], rows[0][1], len(rows))
    return Claimed([ClaimedMessage(*row[3:]) for row in rows], claim, suppressions=rows[0][2])


async def claim_these(
    connection: AsyncConnection[Any], params: dict[str, Any], ids: list[int], units: list[int]
) -> Claimed:
    """Claims those of these messages that still wait, each for its units; 0: it will be refused without a call."""
    return await claim(connection, params | {"ids": ids, "units": units}, CLAIM_THESE)


AHEAD = """
SELECT m.id, m.uuid || '-' || m.resend_no, m.recipient, m.params FROM campaigns_message m
WHERE m.id >= %(after)s AND m.id < %(end)s AND m.dequeued_at IS NULL
    AND (m.call_after IS NULL OR m.call_after <= clock_timestamp())
ORDER BY m.id LIMIT %(most)s
"""


async def ahead(connection: AsyncConnection[Any], after: int, end: int, most: int) -> list[ClaimedMessage]:
    """Reads the next waiting messages; claims nothing."""
    params = {"after": after, "end": end, "most": most}
    return list(map(ClaimedMessage._make, await (await connection.execute(AHEAD, params)).fetchall()))


# All calls that the sender started are answered. What else it has claimed it does not know of: the database's answer to
# that claim was lost.
UNCALLED = "DELETE FROM campaigns_claim WHERE job_id = %(job)s AND fence = %(fence)s"
FIRST_WAITING = """
SELECT coalesce((
    SELECT id FROM campaigns_message WHERE id >= %(first)s AND id < %(end)s AND dequeued_at IS NULL ORDER BY id LIMIT 1
), %(end)s)
"""


def anything_waits(job: LeasedJob) -> bool:
    """Whether a message waits where the sender begins or after that; others are found when the job is drained."""
    with django_connection.cursor() as cursor:
        cursor.execute(FIRST_WAITING, {"first": job.begin, "end": job.end})
        return bool(cursor.fetchone()[0] < job.end)


NEW_PASS = f"""
WITH uncalled AS ({UNCALLED})
UPDATE campaigns_job SET next_message = ({FIRST_WAITING}) WHERE id = %(job)s AND fence = %(fence)s
RETURNING next_message
"""


async def new_pass(connection: AsyncConnection[Any], lease: Lease, first: int, end: int) -> int:
    """All calls are answered: returns the first message that waits nevertheless; `end` if none does."""
    params = {"job": lease.job_id, "fence": lease.fence, "first": first, "end": end}
    row = await (await holding(connection, NEW_PASS, params, jobs=[lease.job_id])).fetchone()
    return int(row[0]) if row else end


HEARTBEAT = """
UPDATE campaigns_job SET heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND fence = %(fence)s AND status IN ('SENDING', 'STOPPED')
"""


async def heartbeat(connection: AsyncConnection[TupleRow], lease: Lease) -> None:
    """Renews the lease: also after a stop, until what is in flight is recorded."""
    await connection.execute(HEARTBEAT, {"job": lease.job_id, "fence": lease.fence})
