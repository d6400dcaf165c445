"""Step 6, send: start the job that a notification names, stream its messages, and leave it in the right state."""

import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import Error, connection, transaction
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from campaigns.engine import failpoints, ports, quiet_hours
from campaigns.engine.claiming import claims, letters
from campaigns.engine.claiming.claims import NEW_PASS, UNCALLED
from campaigns.engine.claiming.contexts import Contexts
from campaigns.engine.claiming.joint import JointClaims
from campaigns.engine.claiming.leases import Leases
from campaigns.engine.claiming.letters import Lease, LeasedJob
from campaigns.engine.connections import Connections
from campaigns.engine.journal import CallJournal, NoMarks, open_journal
from campaigns.engine.lifecycle import LOCKED_BRIEFLY, hold_jobs, move, move_statement, tells_locked
from campaigns.engine.pausing import pauses
from campaigns.engine.sending.recording import Recorder
from campaigns.engine.sending.stream import Stream, StreamEnd
from campaigns.engine.threads import DatabaseThreads, LoopThread, T, drop_lost_connection
from campaigns.models import Job
from vendors import alarms, histograms
from vendors.said import Said

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of a notification.

    ours: the job was ours to send; left: a message waits; until: the job may go on then; logged: nothing waits, and
    `log_drained` has logged the job.
    """

    job_id: int
    ours: bool = True
    left: bool = False
    until: datetime | None = None
    logged: bool = False


REPLY_LENGTH = 120  # characters of the vendor's reply in the reason of a paused campaign
LogDrained = Callable[[int, int, int], bool]


def _leave_it(job_id: int, first: int, end: int) -> bool:
    return False


class Sender:
    """Sends jobs, each for a caller that blocks until the job ends. Its resources stay open until `close`.

    many: callers come from many threads. Their jobs are then streams of one event loop and share a few connections to
    the database.
    """

    def __init__(self, *, many: bool = False) -> None:
        self._connections = Connections()
        self._database = DatabaseThreads(LOCKED_BRIEFLY) if many else None
        self._contexts = Contexts(self._connections.claims)
        self._leases = Leases(self._connections.results)  # no statement there waits for a job's lock
        self._joint = JointClaims(self._connections)
        self._recorder = Recorder(self._connections.results)
        self._loop: LoopThread | None = None
        self._starting = threading.Lock()
        self._journal: CallJournal | None = None
        self._journal_asked = False

    def send_claimed_job(
        self,
        job_id: int,
        fence: int,
        stopping: Callable[[], bool] = bool,
        log_drained: LogDrained = _leave_it,
    ) -> Sent:
        """Send the job that a mailcaster claimed under this fence. A duplicate or late notification does nothing.

        stopping: polled several times a second. Once it returns True, open calls are finished and the rest is put back.
        If the job is locked at that point, it is left to the sweep, and LockNotAvailable is raised. log_drained: called
        with (job, first message, end) in the transaction that finds nothing waiting; returns True if it logged the job.
        """
        started = self.run_in_database(claims.start_job, job_id, fence, over=stopping)
        if started is None:
            return Sent(job_id, ours=False)
        marks = self._marks_of(started)
        try:
            job = self.run_in_database(_load_started_job, started.lease, over=stopping)
            if isinstance(job, Sent):
                return job
            end = self._run_stream(self._stream_job(job, stopping, marks)) if started.waits else None
            while not (sent := self.run_in_database(_settle_job, job, end, log_drained, over=stopping)):
                end = self._run_stream(self._stream_job(job, stopping, marks))
            return sent
        finally:
            marks.give_up_places()

    def _marks_of(self, started: claims.Started) -> NoMarks:
        """Return the stream's part of the journal of calls; the first one makes the journal."""
        with self._starting:
            if not self._journal_asked:
                with suppress(Error, LockNotAvailable):  # the database is away: the next stream tries again
                    self._journal = self.run_in_database(open_journal)
                    self._journal_asked = True
            return NoMarks() if self._journal is None else self._journal.marks_of(started.lease, started.adoptions)

    def run_in_database(self, function: Callable[..., T], *args: Any, over: Callable[[], bool] = lambda: True) -> T:
        """Run a function that uses Django's connection to the database, and return its result.

        With `many`, threads share a few connections. A function that meets a lock is retried as a whole until `over`
        returns True; then LockNotAvailable is raised. A sender of one job simply waits.
        """
        return self._database.run_function(function, *args, over=over) if self._database else function(*args)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.run_coroutine(self._contexts.close())
            self._loop.run_coroutine(self._leases.close())
            self._loop.run_coroutine(self._joint.close())
            self._loop.run_coroutine(self._recorder.close())
            self._loop.run_coroutine(self._connections.close())
            self._loop.close()
            self._loop = None
        if self._journal is not None:
            self._journal.close()
            self._journal, self._journal_asked = None, False
        if self._database is not None:
            self._database.close()
            histograms.store_now(settings.REDIS_URL)  # one of a single job leaves that to the next look

    async def _stream_job(self, job: LeasedJob, stopping: Callable[[], bool], marks: NoMarks) -> StreamEnd:
        to_vendor = self._connections.lend_adapter(job.credential_id, job.connection_key, job.adapter)
        async with to_vendor as adapter:
            with self._contexts.follow_job(job) as followed, self._leases.kept(job.lease) as lives:
                job = replace(job, adapter=adapter)
                of_process = self._connections, self._joint, followed, self._recorder
                end = await Stream(job, *of_process, lives, stopping, marks).run_stream()
        await self._recorder.merge_ended(job.lease.job_id)
        return end

    def _run_stream(self, job: Coroutine[Any, Any, StreamEnd]) -> StreamEnd:
        with self._starting:
            self._loop = self._loop or LoopThread()
        return self._loop.run_coroutine(job)


def send_claimed_job(
    job_id: int, fence: int, stopping: Callable[[], bool] = bool, log_drained: LogDrained = _leave_it
) -> Sent:
    """Send one job with a sender of its own; see Sender.send_claimed_job."""
    with closing(Sender()) as sender:
        return sender.send_claimed_job(job_id, fence, stopping, log_drained)


def _load_started_job(lease: Lease) -> LeasedJob | Sent:
    """Load a job that has been started, or put it back."""
    job_id = lease.job_id
    try:
        with tells_locked():
            return letters.load_leased_job(lease)
    except LockNotAvailable:  # a locked table, as during a migration
        raise
    except ports.NoLinks as why:  # a mistake of the installation: no recipient is refused because of it
        pauses.pause_for(Job.objects.values_list("campaign", flat=True).get(pk=job_id), str(why))
        put_back(job_id, lease.fence, waits_for=f"paused: {why}")
        return Sent(job_id, left=True)
    except Exception as error:
        until = timezone.now() + timedelta(minutes=1)
        put_back(job_id, lease.fence, not_before=until, waits_for=f"cannot be sent: {error}")
        alarms.JOB_CANNOT_BE_SENT.log(log, job_id, exc_info=True)
        return Sent(job_id, left=True, until=until)


def _settle_job(job: LeasedJob, end: StreamEnd | None, log_drained: LogDrained) -> Sent | None:
    """Drain a job whose stream ended or was not needed, or put it back. Returns None if it must be streamed (again)."""
    lease = job.lease
    drop_lost_connection()
    if end is not None and end.sender:
        pauses.pause_for(job.campaign.pk, Said(pauses.SENDER_REFUSED, reply=end.sender[:REPLY_LENGTH]))
    if end is None or end.drained:
        drained = drain_job(lease, job.first, job.end, log_drained)
        if drained.done:
            return Sent(lease.job_id, logged=drained.logged)
        if end is None or drained.due is None:
            return None
        end = StreamEnd(until=drained.due, reason=drained.why, held=True)  # no sender waits that long
    held = end.until if end.held else None
    left = put_back(lease.job_id, lease.fence, not_before=held, waits_for=end.reason, cursor=end.cursor)
    return Sent(lease.job_id, left=left, until=end.until if left else None)


# A sender lets go of a job after all its calls are answered. It may have claims that it never heard of, because the
# database's answer was lost. Their messages were not called.
WAITING = """
SELECT count(*), CASE WHEN min(coalesce(call_after, '-infinity')) > clock_timestamp() THEN min(call_after) END,
    bool_and(put_off_at IS NULL)
FROM campaigns_message WHERE id >= %(first)s AND id < %(end)s AND dequeued_at IS NULL
"""
DRAIN = move_statement("drain", "id = %(job)s AND fence = %(fence)s")
# The usual case: nothing waits, and every claim is known.
DRAIN_ALL_CALLED = f"""{DRAIN} AND NOT EXISTS (SELECT FROM campaigns_claim WHERE job_id = %(job)s AND fence = %(fence)s)
    AND NOT EXISTS (SELECT FROM campaigns_message WHERE id >= %(first)s AND id < %(end)s AND dequeued_at IS NULL)"""


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of draining. due, why: set if everything left was put off: the earliest next call, and the reason.

    logged: nothing is left, and the job is already LOGGED.
    """

    done: bool
    due: datetime | None = None
    why: str = ""
    logged: bool = False


def drain_job(lease: Lease, first: int, end: int, log_drained: LogDrained = _leave_it) -> Drained:
    """Move SENDING -> SENT if nothing is left to claim; otherwise claims restart at the first waiting message.

    All calls must be answered. log_drained: as in Sender.send_claimed_job.
    """
    params = {"job": lease.job_id, "fence": lease.fence, "first": first, "end": end}
    failpoints.here("before_drain")
    with transaction.atomic(), connection.cursor() as cursor:
        hold_jobs([lease.job_id])
        cursor.execute(DRAIN_ALL_CALLED, params)
        if not cursor.rowcount:
            cursor.execute(WAITING, params)
            waiting, due, quiet = cursor.fetchone()
            if waiting:
                cursor.execute(NEW_PASS, params)
                return Drained(False, due, quiet_hours.WHY if quiet else "some are to be tried again")
            cursor.execute(UNCALLED, params)
            cursor.execute(DRAIN, params)
        done = cursor.rowcount == 1
        logged = done and log_drained(lease.job_id, first, end)
    failpoints.here("after_drain")
    return Drained(done, logged=logged)


def put_back(
    job_id: int,
    fence: int,
    *,
    not_before: Any = None,
    waits_for: str = "",
    cursor: int | None = None,
) -> bool:
    """Put back a job with messages left: it is DISPATCHED again and not taken before `not_before`.

    All calls must be recorded. cursor: where the next sender begins. Returns False if the job was stopped or another
    sender has it.
    """
    changes = {"not_before": not_before, "waits_for": waits_for[:255], "heartbeat_at": None, "mailcaster": None}
    if cursor is not None:
        changes["next_message"] = cursor
    failpoints.here("before_put_back")
    with transaction.atomic(), connection.cursor() as rows:
        hold_jobs([job_id])
        rows.execute(UNCALLED, {"job": job_id, "fence": fence})
        done = move(Job.objects.filter(pk=job_id, fence=fence), "put_back", **changes) == 1
    failpoints.here("after_put_back")
    return done
