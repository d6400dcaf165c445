"""What ends a job's stay in ops: finalise, recover, finish a parent. Each verb is one transaction.

Finalising touches only rows of its own job's key range and job number: the known systems un-dequeued other campaigns'
rows here (promise P7).
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, Sum
from django.db.models.functions import Now

from campaigns import failpoints
from campaigns.lifecycle import DONE, PARENTS, Status, hold, move
from campaigns.models import Job, OpsMessage, Session

SLICE = 20_000

ENDED = (
    "SELECT first_message, first_message + size FROM campaigns_job WHERE id = %(job)s AND status IN ('SENT', 'STOPPED')"
)
OPEN = """
SELECT EXISTS (SELECT FROM campaigns_opsmessage WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s
    AND sent_at IS NOT NULL AND delivered_at IS NULL AND in_doubt_at IS NULL)
"""
# What was never called goes back to waiting; the rest takes its result along.
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
    count(*) FILTER (WHERE receipt = 'delivered'), count(*) FILTER (WHERE receipt = 'bounced'),
    count(*) FILTER (WHERE dequeued_at IS NULL)
FROM campaigns_message WHERE id >= %(first)s AND id < %(end)s
"""


def finalise(job_id: int) -> bool:
    """SENT or STOPPED -> LOGGED if no answer is open any more: ops back to the ground truth, ops rows deleted.

    A job that was SENT is READY again if one of its messages turns out to be waiting: a sender that was thought dead
    has proved that its call was never made. But not if a person has said stop meanwhile. In slices, each a
    transaction, so that no lock is held for long; the last one logs. Two at once: one logs.
    """
    with connection.cursor() as cursor:
        ended = _ended(cursor, job_id)
    if ended is None:
        return False
    failpoints.here("before_finalise")
    first, end = ended
    for low in range(first, end, SLICE):
        words = {"job": job_id, "first": first, "end": end, "low": low, "high": min(low + SLICE, end)}
        if not _slice(words):
            return False
    failpoints.here("after_finalise")
    return True


def _slice(words: dict[str, int]) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        hold([words["job"]])
        if not _ended(cursor, words["job"]) or _one(cursor, OPEN, words)[0]:
            return False
        cursor.execute(BACK, words)
        failpoints.here("mid_finalise")
        if words["high"] < words["end"]:
            return True
        *counted, waiting = _one(cursor, COUNT, words)
        counts = dict(zip(COUNTERS, counted, strict=True))
        ends = {"mailcaster": None, "not_before": None, "waits_for": "", "heartbeat_at": None}
        mine = Job.objects.filter(pk=words["job"])
        if waiting and move(mine.filter(stopped_at=None), "again", **counts, **ends):
            return False
        return move(mine, "log", finished_at=Now(), **counts, **ends) == 1


def _ended(cursor: Any, job_id: int) -> tuple[int, int] | None:
    """First message and end of a job that is to be finalised."""
    cursor.execute(ENDED, {"job": job_id})
    row: tuple[int, int] | None = cursor.fetchone()
    return row


def _one(cursor: Any, statement: str, words: dict[str, int]) -> tuple[Any, ...]:
    cursor.execute(statement, words)
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
    """Nobody answers for the job's open calls any more: they are in doubt, and the job goes first again.

    A job that was SENT or STOPPED meanwhile keeps its state and can be finalised then. The fence goes up, so the
    sender, should it wake up, claims nothing more; what it knows of acceptances is still recorded.
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
    """Jobs whose sender has not been heard of for longer than a lease, or that have open calls and no sender."""
    calls = OpsMessage.objects.filter(OPEN_CALL, job=OuterRef("pk"), id__gte=OuterRef("first_message"))
    calls = calls.filter(id__lt=OuterRef("first_message") + OuterRef("size"))
    silent = Q(status__in=(Status.SENDING, Status.SENT, Status.STOPPED), heartbeat_at__lt=Now() - lease)
    return silent | Q(Exists(calls), status__in=(Status.SENT, Status.STOPPED), heartbeat_at=None)


def finish_parent(parent_id: int) -> bool:
    """P_ASSIGNED -> P_FINISHED if all children are logged; its counters are theirs. Called by chord, bell and sweep.

    One that was stopped before it was cut, and of which only a child was sent again, is P_STOPPED again. A leaf is left
    as it is.
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
        finished = move(mine.filter(remaining=0), "finish", finished_at=Now()) == 1
        move(mine, "rest")
    failpoints.here("after_finish")
    return finished


def silent(lease: timedelta) -> list[int]:
    """Jobs whose open calls nobody answers for any more."""
    return list(Job.objects.filter(_abandoned(lease)).values_list("pk", flat=True))


def unstarted(lease: timedelta) -> list[Job]:
    """Jobs that a caster claimed and whose bell nobody has answered, or whose sender died before it started."""
    held = Job.objects.filter(status=Status.ENQUEUED, heartbeat_at__lt=Now() - lease).select_related("vendor")
    return [job for job in held if _touch(job)]


def _touch(job: Job) -> bool:
    """Of two sweeps, one rings."""
    mine = Job.objects.filter(pk=job.pk, fence=job.fence, heartbeat_at=job.heartbeat_at)
    return mine.update(heartbeat_at=Now()) == 1


def ended() -> list[int]:
    """Jobs that wait to be finalised."""
    return list(Job.objects.filter(status__in=(Status.SENT, Status.STOPPED)).values_list("pk", flat=True))


def ripe_parents() -> list[int]:
    """Parents without anything left to cut whose children are all logged."""
    rows = Job.objects.filter(status=Status.P_ASSIGNED).exclude(
        children__in=Job.objects.exclude(status=Status.LOGGED).filter(parent__isnull=False)
    )
    return list(rows.values_list("pk", flat=True))


def sessions_to_write(job_ids: Iterable[int]) -> list[UUID]:
    """The unwritten sessions of those of the jobs that are done; most jobs have none."""
    mine = Session.objects.filter(job__in=list(job_ids), finished_at=None, job__status__in=DONE)
    return list(mine.values_list("pk", flat=True))
