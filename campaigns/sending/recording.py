"""What becomes of a job whose stream ends or cannot go on: expire, drain, put back."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection as django_connection
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from campaigns import failpoints
from campaigns.claiming.claims import NEW_PASS, UNCALLED, Lease
from campaigns.lifecycle import hold, holding, move
from campaigns.models import Job

EXPIRED_AT_ONCE = 20_000

# What is in flight seems to wait, but is in a claim.
EXPIRE = """
WITH held AS (
    SELECT FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING'
), late AS (
    UPDATE campaigns_message SET dequeued_at = clock_timestamp(), error_code = 'expired',
        error_sub_type = to_char(put_off_at AT TIME ZONE 'UTC', '"put off since" YYYY-MM-DD HH24:MI "UTC"')
    WHERE id >= %(low)s AND id < %(high)s AND dequeued_at IS NULL AND EXISTS (SELECT FROM held)
        AND id NOT IN (SELECT unnest(c.messages) FROM campaigns_claim c
            WHERE c.job_id = %(job)s AND c.fence = %(fence)s)
        AND (%(put_off)s::interval IS NULL OR put_off_at <= clock_timestamp() - %(put_off)s::interval)
    RETURNING id
)
UPDATE campaigns_job SET expired = expired + (SELECT count(*) FROM late), heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND EXISTS (SELECT FROM held)
"""


async def expire(
    connection: AsyncConnection[TupleRow], lease: Lease, first: int, end: int, put_off: timedelta | None = None
) -> None:
    """Lets messages expire that were not called: the campaign's deadline has passed.

    put_off: only those that the vendor has put off for that long. In slices, so that a stop does not wait for long.
    """
    for low in range(first, end, EXPIRED_AT_ONCE):
        params = {"job": lease.job_id, "fence": lease.fence, "put_off": put_off}
        params |= {"low": low, "high": min(low + EXPIRED_AT_ONCE, end)}
        await holding(connection, EXPIRE, params, jobs=[lease.job_id])


WAITING = """
SELECT count(*), CASE WHEN min(coalesce(call_after, '-infinity')) > clock_timestamp() THEN min(call_after) END
FROM campaigns_message WHERE id >= %(first)s AND id < %(end)s AND dequeued_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Drained:
    """Whether nothing is left; if something is, and the vendor has put off all of it: when the first may be called."""

    done: bool
    due: datetime | None = None


def drain(lease: Lease, first: int, end: int) -> Drained:
    """SENDING -> SENT if nothing is left to claim, else claims go on from the first waiting message.

    All calls must be answered.
    """
    params = {"job": lease.job_id, "fence": lease.fence, "first": first, "end": end}
    failpoints.here("before_drain")
    with transaction.atomic(), django_connection.cursor() as cursor:
        hold([lease.job_id])
        cursor.execute(WAITING, params)
        waiting, due = cursor.fetchone()
        if waiting:
            cursor.execute(NEW_PASS, params)
            return Drained(False, due)
        cursor.execute(UNCALLED, params)
        done = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "drain") == 1
    failpoints.here("after_drain")
    return Drained(done)


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Why the stream ended. drained: nothing was left. until: when it may go on; reason: why it waits.

    held: the job itself waits until then; else its credential does, which an operator may open earlier. paused: only an
    operator lets it go on. cursor: where the next sender begins.
    """

    drained: bool = False
    until: datetime | None = None
    reason: str = ""
    held: bool = False
    paused: bool = False
    cursor: int | None = None


def put_off(until: datetime) -> StreamEnd:
    """The vendor has put off all that is left; no sender waits for it."""
    return StreamEnd(until=until, reason="some are to be tried again", held=True)


def put_back(
    job_id: int,
    fence: int,
    *,
    not_before: Any = None,
    waits_for: str = "",
    paused: bool = False,
    cursor: int | None = None,
) -> bool:
    """Puts back a job that has something left: it is DISPATCHED again, not to be taken before `not_before`.

    All calls must be recorded. paused: somebody has to resume it, and equal refusals are counted anew then. cursor:
    where the next sender begins. False: the job was stopped, or another sender has it.
    """
    changes = {"not_before": not_before, "waits_for": waits_for[:255], "heartbeat_at": None, "mailcaster": None}
    if paused:
        changes["refusals_from"] = Now()
    if cursor is not None:
        changes["next_message"] = cursor
    failpoints.here("before_put_back")
    with transaction.atomic(), django_connection.cursor() as rows:
        hold([job_id])
        rows.execute(UNCALLED, {"job": job_id, "fence": fence})
        done = move(Job.objects.filter(pk=job_id, fence=fence), "put_back", **changes) == 1
    failpoints.here("after_put_back")
    return done


def in_a_minute() -> datetime:
    """When to try again after a failure before any call."""
    return timezone.now() + timedelta(minutes=1)
