"""Step 7: finalise jobs, recover them from lost senders, finish parents.

Finalising changes only rows of its own job's key range and number; in the systems of the documents it put other
campaigns' rows back, too (promise P7).
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, Sum
from django.db.models.functions import Now

from campaigns import failpoints
from campaigns.lifecycle import PARENTS, Status, hold, move
from campaigns.models import Job, OpsMessage, Session

SLICE = 20_000

ENDED = (
    "SELECT first_message, first_message + size FROM campaigns_job WHERE id = %(job)s AND status IN ('SENT', 'STOPPED')"
)
OPEN = """
SELECT EXISTS (SELECT FROM campaigns_opsmessage WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s
    AND sent_at IS NOT NULL AND delivered_at IS NULL AND in_doubt_at IS NULL)
"""
# Messages that were never called wait again; the others keep their result.
BACK = """
WITH moved AS (
    DELETE FROM campaigns_opsmessage WHERE id >= %(low)s AND id < %(high)s AND job_id = %(job)s RETURNING *
)
UPDATE campaigns_message m SET
    dequeued_at = CASE WHEN moved.sent_at IS NOT NULL OR moved.error_code IS NOT NULL THEN m.dequeued_at END,
    sent_at = moved.sent_at, delivered_at = moved.delivered_at, in_doubt_at = moved.in_doubt_at,
    message_id = moved.message_id, error_code = moved.error_code, error_sub_type = moved.error_sub_type,
    settle_at = moved.in_doubt_at
FROM moved WHERE m.id = moved.id AND m.message_id IS NULL
"""
OPEN_CALL = Q(sent_at__isnull=False, delivered_at=None, in_doubt_at=None)
COUNTERS = ("accepted", "refused", "in_doubt", "expired", "delivered", "bounced")
COUNT = """
SELECT count(*) FILTER (WHERE message_id IS NOT NULL),
    count(*) FILTER (WHERE error_code IS NOT NULL AND error_code <> 'expired'),
    count(*) FILTER (WHERE in_doubt_at IS NOT NULL), count(*) FILTER (WHERE error_code = 'expired'),
    count(*) FILTER (WHERE report = 'delivered'), count(*) FILTER (WHERE report = 'bounced'),
    count(*) FILTER (WHERE dequeued_at IS NULL)
FROM campaigns_message WHERE id >= %(first)s AND id < %(end)s
"""


def finalise(job_id: int) -> bool:
    """SENT or STOPPED -> LOGGED if no call is open: writes ops back to the ground truth; whether it did.

    A SENT job is READY again if one of its messages turns out to be waiting, because a sender that was thought dead
    has proved that its call was never made; not if the job was stopped meanwhile. Works in slices, each a transaction,
    so that no lock is held for long; the last slice logs. Of two at once, one logs.
    """
    with connection.cursor() as cursor:
        ended = _ended(cursor, job_id)
    if ended is None:
        return False
    failpoints.here("before_finalise")
    first, end = ended
    for low in range(first, end, SLICE):
        params = {"job": job_id, "first": first, "end": end, "low": low, "high": min(low + SLICE, end)}
        if not _slice(params):
            return False
    failpoints.here("after_finalise")
    return True


def _slice(params: dict[str, int]) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        hold([params["job"]])
        if not _ended(cursor, params["job"]) or _one(cursor, OPEN, params)[0]:
            return False
        cursor.execute(BACK, params)
        failpoints.here("mid_finalise")
        if params["high"] < params["end"]:
            return True
        *counted, waiting = _one(cursor, COUNT, params)
        counts = dict(zip(COUNTERS, counted, strict=True))
        ends = {"mailcaster": None, "not_before": None, "waits_for": "", "heartbeat_at": None}
        mine = Job.objects.filter(pk=params["job"])
        if waiting and move(mine.filter(stopped_at=None), "requeue", **counts, **ends):
            return False
        return move(mine, "log", finished_at=Now(), **counts, **ends) == 1


def _ended(cursor: Any, job_id: int) -> tuple[int, int] | None:
    """(first message, end) of a job that is to be finalised; None: it is not."""
    cursor.execute(ENDED, {"job": job_id})
    row: tuple[int, int] | None = cursor.fetchone()
    return row


def _one(cursor: Any, statement: str, params: dict[str, int]) -> tuple[Any, ...]:
    cursor.execute(statement, params)
    row: tuple[Any, ...] = cursor.fetchone()
    return row


DOUBT = """
WITH doubted AS (
    UPDATE campaigns_opsmessage SET in_doubt_at = clock_timestamp(), error_sub_type = 'the sender was lost in the call'
    WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s
        AND sent_at IS NOT NULL AND delivered_at IS NULL AND in_doubt_at IS NULL
    RETURNING units
)
SELECT count(*), coalesce(sum(units), 0) FROM doubted
"""


def recover(job_id: int, lease: timedelta) -> bool:
    """Takes a job from a sender that is silent for longer than the lease: its open calls are in doubt.

    The job is RECOVERING and is taken first again; if it was SENT or STOPPED it keeps its status and can be finalised.
    The fence is raised, so that the sender, should it wake up, claims nothing more; acceptances that it knows of are
    still recorded. False: the job is not abandoned.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        hold([job_id])
        job = Job.objects.filter(_abandoned(lease), pk=job_id).first()
        if job is None:
            return False
        doubts, units = _one(cursor, DOUBT, {"job": job.pk, "first": job.first_message, "end": job.end})
        failpoints.here("after_doubt")
        counted = {"in_doubt": F("in_doubt") + doubts, "units": F("units") + units}
        changes = {"fence": F("fence") + 1, "heartbeat_at": None, **counted}
        mine = Job.objects.filter(pk=job.pk)
        if not move(mine, "recover", mailcaster=None, **changes):
            mine.update(**changes)
    failpoints.here("after_recover")
    return True


def _abandoned(lease: timedelta) -> Q:
    """Jobs without a heartbeat for longer than a lease, or with open calls and no sender."""
    calls = OpsMessage.objects.filter(OPEN_CALL, job=OuterRef("pk"), id__gte=OuterRef("first_message"))
    calls = calls.filter(id__lt=OuterRef("first_message") + OuterRef("size"))
    silent = Q(status__in=(Status.SENDING, Status.SENT, Status.STOPPED), heartbeat_at__lt=Now() - lease)
    return silent | Q(Exists(calls), status__in=(Status.SENT, Status.STOPPED), heartbeat_at=None)


def finish_parent(parent_id: int) -> bool:
    """P_ASSIGNED -> P_FINISHED if all children are logged; its counters become their sums. Whether it has ended now.

    A parent that was stopped before it was cut, and of which only a child was sent again, is P_STOPPED again. One that
    is P_STOPPED stays so, and has ended (finished_at) when its children have. Leaves stay as they are.
    """
    with transaction.atomic():
        hold([parent_id])
        parent = Job.objects.filter(pk=parent_id, status__in=PARENTS).first()
        if parent is None or parent.children.exclude(status=Status.LOGGED).exists():
            return False
        sums = parent.children.aggregate(**{name: Sum(name, default=0) for name in (*COUNTERS, "units")})
        mine = Job.objects.filter(pk=parent_id)
        mine.update(**sums)
        failpoints.here("before_finish")
        finished = move(mine.filter(remaining=0), "finish", finished_at=Now())
        move(mine, "stop_again")
        stopped = mine.filter(status=Status.P_STOPPED, finished_at=None).update(finished_at=Now())
    failpoints.here("after_finish")
    return finished + stopped == 1


def jobs_to_recover(lease: timedelta) -> list[int]:
    """Jobs whose sender is silent, or that have open calls and no sender."""
    return list(Job.objects.filter(_abandoned(lease)).values_list("pk", flat=True))


def unstarted(lease: timedelta) -> list[Job]:
    """Jobs that a mailcaster claimed and no sender started: to be notified about again, by one sweep only."""
    held = Job.objects.filter(status=Status.ENQUEUED, heartbeat_at__lt=Now() - lease).select_related("vendor")
    return [job for job in held if _touch(job)]


def _touch(job: Job) -> bool:
    """Renews the heartbeat; False: another sweep was first."""
    mine = Job.objects.filter(pk=job.pk, fence=job.fence, heartbeat_at=job.heartbeat_at)
    return mine.update(heartbeat_at=Now()) == 1


def jobs_to_finalise() -> list[int]:
    """Jobs that are SENT or STOPPED."""
    return list(Job.objects.filter(status__in=(Status.SENT, Status.STOPPED)).values_list("pk", flat=True))


def parents_to_finish() -> list[int]:
    """Parents without anything left to cut, or stopped, that have not ended and whose children are all logged."""
    rows = Job.objects.filter(status__in=(Status.P_ASSIGNED, Status.P_STOPPED), finished_at=None).exclude(
        children__in=Job.objects.exclude(status=Status.LOGGED).filter(parent__isnull=False)
    )
    return list(rows.values_list("pk", flat=True))


def sessions_to_write(job_ids: Iterable[int]) -> list[UUID]:
    """The unwritten sessions of those of the jobs that are done; most jobs have none."""
    mine = Session.objects.filter(job__in=list(job_ids), finished_at=None, job__finished_at__isnull=False)
    return list(mine.values_list("pk", flat=True))
