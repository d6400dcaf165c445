"""Step 7: finalise jobs, recover them from lost senders, finish parents.

Finalising changes only rows of its own job. In the systems of the documents it also put back other campaigns' rows
(promise P7).
"""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, Sum
from django.db.models.functions import Coalesce, Now

from campaigns.engine import failpoints, ground_truth, ports
from campaigns.engine.lifecycle import CALLED, CUT_SHORT, free_jobs, hold_jobs, move, move_statement
from campaigns.engine.merging import FORGET_CLAIMS, IN_FLIGHT
from campaigns.models import AnswerBatch, Claim, Job
from campaigns.models.states import FINALISING, PARENTS, Status

CALLING = (Status.SENDING, *FINALISING)  # calls may be open
OPEN = f"EXISTS (SELECT FROM {IN_FLIGHT})"  # of a job j
ENDED = f"""
SELECT first_message, first_message + size FROM campaigns_job j
WHERE id = %(job)s AND status IN ('SENT', 'STOPPED') AND NOT {OPEN}
"""
COUNTERS = ("accepted", "refused", "in_doubt", "expired", "suppressed", "delivered", "bounced")
COUNT = """
SELECT count(*) FILTER (WHERE message_id IS NOT NULL),
    count(*) FILTER (WHERE error_code <> ALL(ARRAY['expired', 'suppressed'])),
    count(*) FILTER (WHERE in_doubt_at IS NOT NULL), count(*) FILTER (WHERE error_code = 'expired'),
    count(*) FILTER (WHERE error_code = 'suppressed'),
    count(*) FILTER (WHERE report = 'delivered'), count(*) FILTER (WHERE report = 'bounced'),
    count(*) FILTER (WHERE dequeued_at IS NULL), count(*) FILTER (WHERE {refused_so}),
    EXISTS (SELECT FROM campaigns_claim WHERE job_id = %(job)s)
FROM campaigns_message m WHERE id >= %(first)s AND id < %(end)s
"""
FORGET = FORGET_CLAIMS.format(which="j.id = %(job)s AND c.job_id = j.id")
COUNTED = ", ".join(f"{name} = %({name})s" for name in COUNTERS)
ENDS = "mailcaster_id = NULL, not_before = NULL, waits_for = '', heartbeat_at = NULL, next_message = NULL"
LOG = move_statement("log", "id = %(job)s", "finished_at = statement_timestamp()", COUNTED, ENDS)
REQUEUE = move_statement("requeue", "id = %(job)s AND stopped_at IS NULL", COUNTED, ENDS)
# The next sender measures the time that a message is put off from the start.
NOT_PUT_OFF = """
UPDATE campaigns_message SET put_off_at = NULL, call_after = NULL, cause = NULL
WHERE id >= %(first)s AND id < %(end)s AND dequeued_at IS NULL AND put_off_at IS NOT NULL
"""


def finalise_job(job_id: int) -> bool:
    """Move SENT or STOPPED -> LOGGED if no call is open. Returns True if it did.

    By then all answers are in the ground truth. A SENT job becomes READY again if one of its messages waits: a sender
    given up for dead proved that its call was never made. That does not apply if the job was stopped meanwhile. If two
    processes finalise a job, one of them logs it. Recipients that the vendor refused as unknown are suppressed first,
    outside the transaction that locks the job.
    """
    failpoints.here("before_finalise")
    done, suppressed = _finalise_once(job_id, 0)
    while done is None:
        ports.suppressions.suppress_refused(job_id)
        failpoints.here("after_suppress")
        done, suppressed = _finalise_once(job_id, suppressed)
    failpoints.here("after_finalise")
    return done


def _finalise_once(job_id: int, suppressed: int) -> tuple[bool | None, int]:
    """Return (True if the job was logged, number of refusals to suppress). None: suppress those first."""
    with transaction.atomic(), connection.cursor() as cursor:
        hold_jobs([job_id])
        first, end = _fetch_first(cursor, ENDED, {"job": job_id}) or (0, 0)
        return _log_job(cursor, job_id, first, end, suppressed) if end else (False, suppressed)


def log_drained(job_id: int, first: int, end: int) -> bool:
    """Move SENT -> LOGGED in the transaction that made the locked job SENT. On False, call `finalise_job` after it."""
    with connection.cursor() as cursor:
        logged, _ = _log_job(cursor, job_id, first, end, 0)
    return bool(logged)


def _log_job(cursor: Any, job_id: int, first: int, end: int, suppressed: int) -> tuple[bool | None, int]:
    """Do the work of `_finalise_once` for a locked job without open calls."""
    failpoints.here("mid_finalise")
    its = {"job": job_id, "first": first, "end": end}
    *counted, waiting, unwanted, claimed = _fetch_first(
        cursor, COUNT.format(refused_so=ports.suppressions.REFUSED_SO), its
    )
    if unwanted > suppressed:
        return None, unwanted
    ended = {"job": job_id, **dict(zip(COUNTERS, counted, strict=True))}
    if waiting:
        cursor.execute(NOT_PUT_OFF, its)
        if _has_changed(cursor, REQUEUE, ended):
            return False, suppressed
    if claimed:
        cursor.execute(FORGET, its)
    return _has_changed(cursor, LOG, ended), suppressed


def _has_changed(cursor: Any, statement: str, params: dict[str, int]) -> bool:
    cursor.execute(statement, params)
    return bool(cursor.rowcount)


def _fetch_first(cursor: Any, statement: str, params: dict[str, int]) -> Any:
    cursor.execute(statement, params)
    return cursor.fetchone()


DOUBT = """
WITH lost AS (
    SELECT u.id, u.units, c.at, c.destination FROM campaigns_claim c, unnest(c.messages, c.units) AS u(id, units)
    WHERE c.job_id = %(job)s AND c.fence = %(fence)s
), doubted AS (
    UPDATE campaigns_message m SET dequeued_at = l.at, sent_at = l.at, in_doubt_at = clock_timestamp(),
        settle_at = clock_timestamp(), error_sub_type = 'the sender was lost in the call', cause = NULL,
        units = nullif(l.units, 1), destination = l.destination, asked_destination = NULL
    FROM lost l WHERE m.id = ANY(ARRAY[l.id]) AND m.dequeued_at IS NULL
    RETURNING coalesce(l.units, 1) AS units
)
SELECT count(*), coalesce(sum(units), 0) FROM doubted
"""


def recover_job(job_id: int, lease: timedelta) -> bool:
    """Recover a job whose lease has expired. Its open calls become in doubt.

    A SENDING job becomes RECOVERING and is taken before others; a SENT or STOPPED one keeps its status and can be
    finalised. The fence is raised, so a sender that wakes up claims nothing more. Acceptances known to it are still
    recorded. Returns False if the job is not abandoned.
    """
    with transaction.atomic():
        hold_jobs([job_id])
        job = Job.objects.filter(_abandoned_jobs(lease), pk=job_id).first()
        if job is None:
            return False
        _take_away(job)
    failpoints.here("after_recover")
    return True


def recover_dead(job_id: int, fences: Collection[int]) -> int | None:
    """Recover a job locked by the caller if its sender, known to be dead, had one of these fences.

    Returns the number of its open calls, now in doubt; None if the job is not the dead sender's any more.
    """
    its = Job.objects.filter(pk=job_id, fence__in=fences, status__in=CALLING)
    job = its.first()
    return None if job is None else _take_away(job)


def _take_away(job: Job) -> int:
    """Take a locked job from its sender. Returns the number of open calls, now in doubt."""
    with connection.cursor() as cursor:
        doubts, units = _fetch_first(cursor, DOUBT, {"job": job.pk, "fence": job.fence})
    failpoints.here("after_doubt")
    counted = {"in_doubt": F("in_doubt") + doubts, "units": F("units") + units}
    changes = {"fence": F("fence") + 1, "heartbeat_at": None, **counted}
    mine = Job.objects.filter(pk=job.pk)
    if not move(mine, "recover", mailcaster=None, **changes):
        mine.update(**changes)
    return int(doubts)


def _abandoned_jobs(lease: timedelta) -> Q:
    """Match jobs whose lease has expired, and jobs with open calls but without a sender."""
    calls = Claim.objects.filter(job=OuterRef("pk"), fence=OuterRef("fence"))
    silent = Q(status__in=CALLING, heartbeat_at__lt=Now() - lease)
    return silent | Q(Exists(calls), status__in=FINALISING, heartbeat_at=None)


def merge_answers(older_than: timedelta) -> None:
    """Merge answers left behind by their sender. Once a job is LOGGED, only acceptances count.

    Locked jobs are skipped: the process with the lock merges their answers.
    """
    left = AnswerBatch.objects.filter(at__lt=Now() - older_than).order_by()
    jobs = free_jobs(left.values_list("job", flat=True).distinct())
    for job_id in jobs:
        with transaction.atomic():
            hold_jobs([job_id])
    if jobs:
        ground_truth.accept_late(jobs)


def finish_parent(parent_id: int) -> bool:
    """End a parent if all its children are logged, with their sums as its counters. Returns True if it ended now.

    It is P_FINISHED if every message was called or has an end of its own, even if somebody stopped it after the last
    call. It is P_STOPPED if a stop left something: an uncut part, or messages of a stopped child. If only a child was
    stopped, the parent records who did it but gets no stopped_at: its other children were not stopped, and their calls
    in doubt may be repeated. Leaves stay unchanged.
    """
    with transaction.atomic():
        hold_jobs([parent_id])
        parent = Job.objects.filter(pk=parent_id, status__in=PARENTS).first()
        if parent is None or parent.children.exclude(status=Status.LOGGED).exists():
            return False
        sums = parent.children.aggregate(**{name: Sum(name, default=0) for name in (*COUNTERS, "units")})
        mine = Job.objects.filter(pk=parent_id)
        mine.update(**sums)
        failpoints.here("before_finish")
        cut_short = parent.children.filter(CUT_SHORT).order_by("-stopped_at").first()
        if cut_short is None:
            finished = move(mine.filter(remaining=0), "finish", finished_at=Coalesce("finished_at", Now()))
        else:
            finished = 0
            # Nobody stopped the parent itself: that part may be sent again before the end.
            mine.filter(status=Status.P_ASSIGNED, stopped_by="").update(stopped_by=cut_short.stopped_by)
        move(mine, "stop_again")
        stopped = mine.filter(status=Status.P_STOPPED, finished_at=None).update(finished_at=Now())
    failpoints.here("after_finish")
    return parent.finished_at is None and finished + stopped == 1


SEEN = """
SELECT j.id, j.status, j.size, j.accepted, j.refused, j.in_doubt, j.waits_for, j.vendor_id, v.slug, j.parent_id,
    (SELECT status FROM campaigns_job WHERE id = j.parent_id), c.routed
FROM campaigns_job j JOIN vendors_vendor v ON v.id = j.vendor_id JOIN campaigns_campaign c ON c.id = j.campaign_id
WHERE j.id = %(job)s
"""


class JobSeen(NamedTuple):
    """The current state of a job. parent: its id; routed: its campaign goes by a route."""

    id: int
    status: str
    size: int
    accepted: int
    refused: int
    in_doubt: int
    waits_for: str
    vendor_id: int
    vendor_slug: str
    parent: int | None
    parent_status: str | None
    routed: bool


def look_at(job_id: int) -> JobSeen:
    """Return the current state of the job."""
    with connection.cursor() as cursor:
        return JobSeen(*_fetch_first(cursor, SEEN, {"job": job_id}))


def ended_by(logged: JobSeen) -> list[int]:
    """Return the jobs that ended with this one: itself, or its parent if this was the last child.

    That parent is finished here.
    """
    if logged.parent is None:
        return [logged.id]
    # Any other parent has something left to cut.
    if logged.parent_status in (Status.P_ASSIGNED, Status.P_STOPPED) and finish_parent(logged.parent):
        return [logged.parent]
    return []


def jobs_to_recover(lease: timedelta) -> list[int]:
    """Return jobs whose lease has expired, and jobs with open calls but without a sender.

    Locked jobs are left out: their sender may be alive and unable to renew the lease.
    """
    return free_jobs(Job.objects.filter(_abandoned_jobs(lease)).values_list("pk", flat=True))


def claim_unstarted_jobs(lease: timedelta) -> list[Job]:
    """Return jobs that a mailcaster claimed and no sender started. Only one sweep gets each, to notify again.

    Locked jobs are left out: their sender may be waiting for the lock.
    """
    held = Job.objects.filter(status=Status.ENQUEUED, heartbeat_at__lt=Now() - lease)
    found = Job.objects.filter(pk__in=free_jobs(held.values_list("pk", flat=True))).select_related("vendor")
    return [job for job in found if _renew_heartbeat(job)]


def _renew_heartbeat(job: Job) -> bool:
    """Renew the heartbeat. Returns False if another sweep was first."""
    mine = Job.objects.filter(pk=job.pk, fence=job.fence, heartbeat_at=job.heartbeat_at)
    return mine.update(heartbeat_at=Now()) == 1


def jobs_to_finalise() -> list[int]:
    """Return unlocked jobs in SENT or STOPPED."""
    return free_jobs(Job.objects.filter(status__in=FINALISING).values_list("pk", flat=True))


def parents_to_finish() -> list[int]:
    """Return unlocked parents that can end.

    All their children are logged, and either nothing is left to cut or the parent was stopped. This includes parents
    that ended as stopped but have since turned out to have nothing left.
    """
    rows = Job.objects.filter(status__in=(Status.P_ASSIGNED, Status.P_STOPPED), finished_at=None).exclude(
        children__in=Job.objects.exclude(status=Status.LOGGED).filter(parent__isnull=False)
    )
    ended = Job.objects.filter(status=Status.P_STOPPED, remaining=0, finished_at__isnull=False, size__lte=CALLED)
    return free_jobs([*rows.values_list("pk", flat=True), *ended.values_list("pk", flat=True)])


UNWRITTEN = """
SELECT s.id FROM campaigns_session s JOIN campaigns_job j ON j.id = s.job_id
WHERE s.job_id = ANY(%(jobs)s) AND s.finished_at IS NULL AND j.finished_at IS NOT NULL ORDER BY s.id
"""


def sessions_to_write(job_ids: Iterable[int]) -> list[UUID]:
    """Return the unwritten sessions of these jobs, if the jobs are done; most jobs have none."""
    ids = list(job_ids)
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(UNWRITTEN, {"jobs": ids})
        return [session_id for (session_id,) in cursor.fetchall()]
