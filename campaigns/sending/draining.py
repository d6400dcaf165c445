"""What a sender does to rows once it has come through its job: expire, look for what is left, drain."""

from datetime import datetime, timedelta

from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

from campaigns import failpoints
from campaigns.claiming.claims import REACHED, Lease
from campaigns.lifecycle import move
from campaigns.locks import holding
from campaigns.models import Job

EXPIRE = """
WITH held AS (
    SELECT FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING'
), late AS (
    UPDATE campaigns_opsmessage SET error_code = 'expired',
        error_sub_type = to_char(put_off_at AT TIME ZONE 'UTC', '"put off since" YYYY-MM-DD HH24:MI "UTC"')
    WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
        AND EXISTS (SELECT FROM held)
        AND (%(put_off)s::interval IS NULL OR put_off_at <= clock_timestamp() - %(put_off)s::interval)
    RETURNING id
)
UPDATE campaigns_job SET expired = expired + (SELECT count(*) FROM late) WHERE id = %(job)s
"""


async def expire(
    connection: AsyncConnection[TupleRow], lease: Lease, first: int, end: int, put_off: timedelta | None = None
) -> None:
    """The campaign's deadline has passed: what was not called is not called any more, visibly.

    put_off: only what the vendor has asked to be called later about, each time for so long.
    """
    words = {"job": lease.job_id, "fence": lease.fence, "first": first, "end": end, "put_off": put_off}
    await holding(connection, EXPIRE, words, jobs=[lease.job_id])


LEFT = f"""
SELECT ({REACHED}) < %(end)s OR (
    SELECT id FROM campaigns_opsmessage
    WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
    ORDER BY id LIMIT 1
) IS NOT NULL
"""


DUE = """
SELECT min(call_after) FROM campaigns_opsmessage
WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
HAVING min(coalesce(call_after, '-infinity')) > clock_timestamp()
"""


def due(connection: Connection, lease: Lease, first: int, end: int) -> datetime | None:
    """When the first of a job's messages may be called, if the vendor has put off all that are left; else None."""
    row = connection.execute(DUE, {"job": lease.job_id, "first": first, "end": end}).fetchone()
    return row[0] if row else None


def drain(connection: Connection, lease: Lease, first: int, end: int) -> bool:
    """SENDING -> SENT if nothing is left, to pick or to enqueue."""
    row = connection.execute(LEFT, {"job": lease.job_id, "first": first, "end": end}).fetchone()
    if row is None or row[0]:
        return False
    failpoints.here("before_drain")
    drained = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "drain") == 1
    failpoints.here("after_drain")
    return drained
