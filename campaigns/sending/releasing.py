"""What becomes of a job that its sender lets go of: it is drained, or put back.

All calls must be answered. What the sender has claimed and does not know of, because the database's answer to that
claim was lost, was not called.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Now

from campaigns import failpoints
from campaigns.claiming.claims import NEW_PASS, UNCALLED
from campaigns.claiming.letters import Lease
from campaigns.lifecycle import hold, move
from campaigns.models import Job

WAITING = """
SELECT count(*), CASE WHEN min(coalesce(call_after, '-infinity')) > clock_timestamp() THEN min(call_after) END,
    EXISTS (SELECT FROM campaigns_claim WHERE job_id = %(job)s AND fence = %(fence)s)
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
    with transaction.atomic(), connection.cursor() as cursor:
        hold([lease.job_id])
        cursor.execute(WAITING, params)
        waiting, due, uncalled = cursor.fetchone()
        if waiting:
            cursor.execute(NEW_PASS, params)
            return Drained(False, due)
        if uncalled:
            cursor.execute(UNCALLED, params)
        done = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "drain") == 1
    failpoints.here("after_drain")
    return Drained(done)


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
    with transaction.atomic(), connection.cursor() as rows:
        hold([job_id])
        rows.execute(UNCALLED, {"job": job_id, "fence": fence})
        done = move(Job.objects.filter(pk=job_id, fence=fence), "put_back", **changes) == 1
    failpoints.here("after_put_back")
    return done
