"""Celery's tasks, and the notifications that start them. A task takes only ids and acts on the rows.

So a notification may be lost, duplicated or late. The command packets of document 000, on the vendor's queue, are
`cast` (something waits for this vendor: one packet for all its jobs) and `send_job` (one for each job taken by a
mailcaster).
"""

import gc
import logging
import multiprocessing
import resource
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from inspect import signature
from typing import Any
from uuid import UUID

from billiard import current_process
from celery import chord, concurrency, current_app, shared_task, signals
from celery.concurrency.thread import TaskPool as ThreadPool
from django.conf import settings
from django.db import connection
from django.utils import timezone
from kombu.exceptions import OperationalError
from psycopg.errors import LockNotAvailable

from campaigns.engine import audit as promises
from campaigns.engine import delivery_reports, failpoints, sending
from campaigns.engine.casting import mailcaster
from campaigns.engine.dispatch import dispatcher, nightly
from campaigns.engine.dispatch.dispatcher import flower_options, notify_vendors
from campaigns.engine.doubts import reconciler
from campaigns.engine.finishing import finalizer, journals
from campaigns.engine.finishing import sweep as sweeper
from campaigns.engine.lifecycle import passes_locked, tells_locked, unless_locked
from campaigns.engine.pausing import complaints, pauses, rates
from campaigns.engine.routes import moving
from campaigns.engine.threads import drop_lost_connection
from campaigns.integrations.results import writer
from campaigns.integrations.webhooks import delivery
from campaigns.lists.drafts import keeping
from campaigns.lists.intake import files, uploads
from vendors import alarms, deferrals, receiver_domains
from vendors.models import Vendor, queue_of

log = logging.getLogger(__name__)
WEBHOOKS = "webhooks"  # a separate queue, so that dead receivers do not delay mail
SOON = timedelta(minutes=1)  # the sweep notifies of calls that fall due later

# Made before the pool forks, and without a lock: a process killed during a read would keep an Event's lock forever.
_stopping = multiprocessing.RawValue("b", 0)
# The sender of a worker's process; in a pool of threads all tasks share it. Elsewhere each job has one of its own.
_kept: sending.Sender | None = None
_watch: journals.JournalWatch | None = None


def _is_stopping() -> bool:
    return bool(_stopping.value)


# Not revocable: in a pool of threads, each thread would open a database connection for that check.
@shared_task(is_revocable=False)  # type: ignore[call-overload, untyped-decorator]  # an attribute of the task
def cast(vendor_id: int) -> None:
    """Let each idle mailcaster take its next job or child, and send a `send_job` for each to the vendor's queue."""
    _run_with_database(lambda: _wake_casters(vendor_id, Vendor.objects.get(pk=vendor_id).queue))


def _run_with_database(function: Callable[..., Any], *args: Any, **over: Any) -> Any:
    """Run the function; in a pool of threads, on shared connections instead of one for each thread.

    over: see Sender.run_in_database.
    """
    return _kept.run_in_database(function, *args, **over) if _kept else function(*args)


def _wake_casters(vendor_id: int, queue: str) -> None:
    children: dict[int, list[Any]] = defaultdict(list)
    wait = True
    for caster_id in mailcaster.idle_casters(vendor_id):
        try:
            with tells_locked():
                claimed = mailcaster.claim_next_job(caster_id, timezone.now(), wait=wait)
        except LockNotAvailable:  # the sweep wakes it again; the other casters do not wait for this lock
            claimed, wait = None, False
        if claimed is None:
            continue
        failpoints.here("before_notify")
        shown = _packet_options(claimed.job_id, claimed.parent_id, claimed.size)
        packet = send_job.si(claimed.job_id, claimed.fence).set(queue=queue, **shown)
        if claimed.parent_id is None:
            packet.apply_async(ignore_result=True)
        else:
            children[claimed.parent_id].append(packet)
    for parent_id, packets in children.items():
        _notify_children(parent_id, packets)
    failpoints.here("after_notify")


def _notify_children(parent_id: int, packets: list[Any]) -> None:
    """Notify a parent's children: several as a chord, or as single tasks if the result backend is away."""
    if len(packets) == 1:  # logging the last child also finishes the parent
        packets[0].apply_async(ignore_result=True)
        return
    try:
        body = finish_parent.si(parent_id).set(
            queue=settings.CELERY_TASK_DEFAULT_QUEUE, **flower_options(f"job={parent_id}")
        )
        chord(packets, body).apply_async()
    except Exception as error:  # Celery raises many kinds
        alarms.NO_CHORD.log(log, parent_id, error)
        for packet in packets:
            packet.apply_async(ignore_result=True)


def _packet_options(job_id: int, parent_id: int | None, size: int) -> dict[str, Any]:
    return flower_options(f"job={parent_id} child={job_id} n={size}" if parent_id else f"job={job_id} n={size}")


@shared_task(ignore_result=False, acks_late=False)
def send_job(job_id: int, fence: int) -> None:
    """Send a leaf that a mailcaster claimed under this fence, then wake the vendor's mailcasters.

    The task is acknowledged at its start, because it may run for days. A broker redelivers an unacknowledged task after
    an hour (Redis) or half an hour (RabbitMQ). If a worker is killed, the sweep finds the job by its lease.
    """
    with suppress(LockNotAvailable):  # locked jobs are left to the sweep
        sent = (_kept or sending).send_claimed_job(job_id, fence, _is_stopping, finalizer.log_drained)
        _run_with_database(
            _finish_after_sending,
            sent,
            sent.logged or _run_with_database(finalizer.finalise_job, sent.job_id, over=_is_stopping),
        )


def _finish_after_sending(sent: sending.Sent, logged: bool) -> None:
    if not (logged or sent.ours):
        return
    job = finalizer.look_at(sent.job_id)
    if logged:
        with passes_locked():
            announce_results(finalizer.ended_by(job))
    if not sent.ours or _is_stopping():
        return
    log.info(
        "job %s %s: %s accepted, %s refused, %s in doubt of %s%s",
        *(job.id, job.status, job.accepted, job.refused, job.in_doubt, job.size),
        f"; waits: {job.waits_for}" if job.waits_for else "",
    )
    queue = queue_of(job.vendor_slug)
    if sent.left and job.routed:
        with passes_locked():
            notify_vendors(moving.reroute_parent(job.parent or job.id).vendors)
    if sent.until is not None:
        dispatcher.notify_queue(job.vendor_id, queue, eta=sent.until)
    _wake_casters(job.vendor_id, queue)


@shared_task(ignore_result=False)
def finish_parent(parent_id: int) -> None:
    """Finish a parent: the body of the chord.

    The rows decide, so it may run early, twice or never. A locked parent is left to the sweep.
    """
    if unless_locked(finalizer.finish_parent, parent_id):
        announce_results([parent_id])


def announce_results(job_ids: Iterable[int]) -> None:
    """Notify that results of these jobs' sessions can be written (document 002); the sweep repeats that."""
    for session_id in finalizer.sessions_to_write(job_ids):
        _notify_task(consume_session, str(session_id))


@shared_task
def consume_session(session_id: str) -> None:
    """Write a session's result. The task is acknowledged once it is written, or dropped after a few tries."""
    if writer.write_result(UUID(session_id)):
        notify_webhooks()


def notify_webhooks(eta: datetime | None = None) -> None:
    """Notify that webhook calls are due; the sweep repeats that."""
    try:
        deliver_webhooks.apply_async(
            queue=WEBHOOKS, **({"eta": eta} if eta else {"expires": 60}), **flower_options("webhooks")
        )
    except OperationalError as error:
        alarms.QUEUE_NOT_NOTIFIED.log(log, WEBHOOKS, error)


@shared_task
def deliver_webhooks() -> None:
    """Post the due events, and notify for those due soon."""
    delivery.deliver_due(_is_stopping)
    if (due := delivery.find_next_call()) and due < timezone.now() + SOON:
        notify_webhooks(eta=due)


@shared_task
def sweep_sessions() -> None:
    """Find unwritten results and unposted events."""
    for session_id in writer.left_behind():
        _notify_task(consume_session, str(session_id), expires=60)
    delivery.give_up()
    if (due := delivery.find_next_call()) and due <= timezone.now():
        notify_webhooks()


def notify_of_draft(task: str, draft_id: int) -> None:
    """Send a task for a draft (mailhub.tasks); if the broker is away, the sweep finds the draft."""
    with suppress(OperationalError):
        current_app.send_task(f"mailhub.tasks.{task}", (draft_id,), ignore_result=True)


def _notify_task(task: Any, argument: Any, **options: Any) -> None:
    name = next(iter(signature(task.run).parameters))
    try:
        task.apply_async((argument,), **flower_options(f"{name}={argument}"), **options)
    except OperationalError as error:
        alarms.JOB_NOT_NOTIFIED.log(log, task.name, argument, error)


@shared_task
def dispatch_one(job_id: int) -> None:
    """Dispatch a job at its time, unless that has been done. A job that stays locked is left to the sweep."""
    if done := unless_locked(dispatcher.dispatch_ready, [job_id]):
        notify_vendors(done.vendors)


@shared_task
def dispatch_night(vendor_id: int) -> None:
    """Run a vendor's nightly dispatch (document 000); its DispatchRun row makes it happen only once."""
    vendor = Vendor.objects.get(pk=vendor_id)
    went = nightly.run_night(vendor, timezone.now())
    if went.jobs:
        log.info("vendor %s: the night dispatched %s jobs, %s of them to be cut", vendor, went.jobs, went.parents)
        notify_vendors(went.vendors)


@shared_task
def sweep() -> None:
    """Do the work that lost notifications or workers left. Runs every few seconds, and is idempotent."""
    facts = sweeper.run_sweep(timedelta(seconds=settings.LEASE_SECONDS))
    announce_results(facts.finalised)
    for job in facts.unanswered:
        shown = _packet_options(job.pk, job.parent_id, job.size)
        send_job.si(job.pk, job.fence).set(queue=job.vendor.queue, **shown).apply_async(ignore_result=True)
    for vendor_id in facts.nights_due:
        dispatch_night.delay(vendor_id)
    # A late notification is useless: the next sweep notifies again.
    notify_vendors(facts.vendors_waiting, expires=max(30.0, 3 * settings.SWEEP_SECONDS))
    deferrals.warn_of_lasting_waits()
    delivery_reports.take_waiting()  # last, so that an error there blocks nothing else


@shared_task
def pause_campaigns() -> None:
    """Pause campaigns with too many failures or complaints, and those whose first messages are sent.

    Also pauses a sponsor's bulk mail to providers at which too many complain.
    """
    paused: list[int] = []
    try:
        paused += rates.pause_those_too_high()
    finally:  # even after an error there, campaigns must pause after their first messages
        try:
            receiver_domains.refresh_domains()
            complaints.judge_complaints()
        finally:
            if paused + pauses.pause_after_first():
                notify_webhooks()


@shared_task
def settle_doubts() -> None:
    """Ask the vendors about messages in doubt."""
    reconciler.reconcile_due_doubts()


def reconcile_soon() -> None:
    """Start settle_doubts now; beat also runs it from time to time."""
    try:
        settle_doubts.delay()
    except OperationalError as error:
        alarms.DOUBTS_NOT_NOTIFIED.log(log, error)


@shared_task
def audit() -> None:
    """Audit the promises; log each breach as an error."""
    for check in promises.run_and_keep():
        if not check.is_kept:
            alarms.PROMISE_BROKEN.log(log, check.promise, check.question, check.breaches, check.examples)


@shared_task
def delete_files() -> None:
    """Delete old drafts, unused uploads, and files stored for requests that were refused afterwards."""
    keeping.delete_old_drafts()
    uploads.delete_unused()
    files.delete_unused()


@signals.worker_shutting_down.connect
def _note_stop(*_: Any, **__: Any) -> None:
    _stopping.value = 1


@signals.worker_init.connect
def _begin_in_threads(sender: Any, **_: Any) -> None:
    """Set up a pool of threads. Celery announces the start of pools only for processes (worker_process_init)."""
    if issubclass(concurrency.get_implementation(sender.pool_cls), ThreadPool):
        _begin_sending(sending.Sender(many=True))
        # Other tasks use their thread's connection. If it were kept, each of hundreds of threads would have one.
        signals.task_postrun.connect(_close_connection)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # each call in flight is an open file
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@signals.worker_ready.connect
def _say_what_is_missing(**_: Any) -> None:
    if not settings.PUBLIC_URL:
        alarms.NO_PUBLIC_URL.log(log)


@signals.worker_process_init.connect
def _begin_in_pool(**_: Any) -> None:
    _begin_sending(sending.Sender())
    signals.task_prerun.connect(drop_lost_connection)  # Celery keeps the connection between tasks (mailhub/celery.py)
    if current_process().name != "MainProcess":  # the solo pool sends this signal too, from the worker's own process
        signals.task_prerun.connect(_hear_the_end)


def _close_connection(**_: Any) -> None:
    connection.close()


def _begin_sending(sender: sending.Sender) -> None:
    global _kept, _watch
    _kept = sender
    _watch = journals.JournalWatch()
    # Everything loaded so far stays alive. Scanning it again and again would be a large part of the cost of a message.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@signals.worker_process_shutdown.connect
@signals.worker_shutdown.connect
def _close_kept(**_: Any) -> None:
    if _watch is not None:
        _watch.close()
    if _kept is not None:
        _kept.close()


def _hear_the_end(**_: Any) -> None:
    """Finish open calls at SIGTERM, which a supervisor may send to all processes.

    Set at each task, because the pool installs its own handler.
    """
    signal.signal(signal.SIGTERM, _note_stop)
