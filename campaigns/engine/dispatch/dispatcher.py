"""Step 2, dispatch: opens waiting jobs to the mailcasters, in batches with a commit each (document 000).

A job becomes DISPATCHED, or P_QUEUED if it will be cut. This module dispatches nightly jobs on demand, and jobs whose
time has come; nightly.py has the nightly run. Jobs of a paused vendor are dispatched too, and wait on its queue. A job
stays as it is if its sponsor may no longer use its vendor, credential or identity (entitlements.may_go_now). So does a
rendered job whose campaign waits for approval. A job that a quota of its sponsor holds (decision 64) waits as READY
once its night has come, so the sweep dispatches it when the quota has room.

Callers that dispatch then notify the vendors. Celery's tasks (campaigns/tasks.py) are named as texts here, so commands
and pages do not load the workers' code.
"""

import logging
import threading
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from textwrap import shorten
from typing import Any, Self

from celery import current_app
from django.db import transaction
from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import Now, RowNumber
from django.utils import timezone
from kombu.exceptions import OperationalError

from campaigns.engine import failpoints, ports
from campaigns.engine.lifecycle import free_jobs, hold_jobs, move, wait_at_most
from campaigns.models import Approval, Campaign, DispatchRun, Job
from campaigns.models.states import Status
from vendors import alarms
from vendors.models import Vendor, queue_of

log = logging.getLogger(__name__)
BATCH = 1000
_waking: set[int] = set()  # vendors that a thread wakes
MOST_SHOWN = 200  # characters of a task's arguments in its headers, whose size RabbitMQ limits


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Numbers of dispatched jobs. leaves: sent whole; parents: to be cut. vendors: ids of the vendors to notify."""

    leaves: int = 0
    parents: int = 0
    vendors: frozenset[int] = frozenset()

    @property
    def jobs(self) -> int:
        return self.leaves + self.parents

    def __add__(self, other: Self) -> "Dispatched":
        return Dispatched(self.leaves + other.leaves, self.parents + other.parents, self.vendors | other.vendors)


def leaf_condition(threshold: "int | F") -> Q:
    """Match jobs to be sent whole: small ones, children, and those claimed before (a retried leaf is never cut).

    A job that pauses after its first messages is cut regardless of size. So is one with a route, because its children
    may go by several vendors.
    """
    return Q(size__lt=threshold, wait_after=None, campaign__route=None) | Q(parent__isnull=False) | Q(fence__gt=0)


def dispatch_in_batches(
    waiting: "QuerySet[Job]", vendor: Vendor, now: datetime, batch: int = BATCH, run: DispatchRun | None = None
) -> Iterator[Dispatched]:
    """Dispatch the vendor's jobs among the waiting ones; yield the result of each committed batch.

    Urgent jobs come first, then usual, then bulk ones. Within a class the sponsors' oldest jobs come first, then the
    second of each, and so on: no sponsor's thousand jobs stand before another's first one. After an interruption, the
    same call continues with the rest. run: its counter is updated in each batch's commit.
    """
    mine = waiting.filter(_may_dispatch(), vendor=vendor)
    for ids in _batches_by_turns(mine, batch):
        done = _dispatch_batch(mine.filter(id__in=ids), vendor, now, run)
        if done.jobs:
            yield done


def _batches_by_turns(jobs: "QuerySet[Job]", batch: int) -> Iterator[list[int]]:
    """Yield the ids of the jobs in batches: by class, within it the sponsors' jobs in turns, each one's oldest first.

    The order is made once. Only ids are kept, eight bytes each.
    """
    number = Window(RowNumber(), partition_by=["mail_class", "sponsor"], order_by="id")
    ordered = jobs.order_by().annotate(number=number).order_by("mail_class", "number", "id")
    ids = array("q", ordered.values_list("id", flat=True))
    for start in range(0, len(ids), batch):
        yield ids[start : start + batch].tolist()


def _dispatch_batch(jobs: "QuerySet[Job]", vendor: Vendor, now: datetime, run: DispatchRun | None) -> Dispatched:
    with transaction.atomic():
        if run:
            wait_at_most()  # the sweep continues the run
        locked = hold_jobs(jobs.values_list("id", flat=True))
        mine = jobs.filter(id__in=locked)  # a second dispatcher finds them gone
        if locked and (held := ports.gates.hold_back(locked, now)):
            if run:
                move(mine.filter(id__in=held), "await_quota")
            mine = mine.exclude(id__in=held)
        sets = {"dispatched_at": now, "started_at": None} | ({"run": run} if run else {})
        leaves = move(mine.filter(leaf_condition(vendor.small_audience_threshold)), "dispatch", **sets)
        failpoints.here("mid_dispatch")
        parents = move(mine, "queue", remaining=F("size"), remaining_suppressed=F("suppressed"), **sets)
        if run:
            DispatchRun.objects.filter(pk=run.pk).update(dispatched=F("dispatched") + leaves + parents)
    failpoints.here("after_dispatch")
    return Dispatched(leaves, parents, frozenset([vendor.pk]) if leaves + parents else frozenset())


def dispatch_rendered(
    jobs: "QuerySet[Job] | None" = None, batch: int = BATCH, now: datetime | None = None
) -> Dispatched:
    """Dispatch RENDERED jobs now instead of at night: all, or those among `jobs`. batch: jobs in each commit."""
    return _dispatch_all_vendors(_rendered_jobs(jobs), now or timezone.now(), batch)


def dispatch_ready(job_ids: Iterable[int] | None = None, batch: int = BATCH, now: datetime | None = None) -> Dispatched:
    """Dispatch READY jobs, all or those named, if their not_before and their campaign's send_at have passed."""
    now = now or timezone.now()
    ready = _ready_jobs(now)
    return _dispatch_all_vendors(ready if job_ids is None else ready.filter(id__in=list(job_ids)), now, batch)


def free_and_ready() -> list[int]:
    """Return the unlocked jobs that `dispatch_ready` would dispatch now."""
    now = timezone.now()
    found = free_jobs(_ready_jobs(now).filter(_may_dispatch()).values_list("id", flat=True))
    held = set(ports.gates.held_by_quotas(found, now)) if found else set()
    return [job_id for job_id in found if job_id not in held]


def sweep_soon() -> None:
    """Have held jobs looked at now, as a quota has changed. The next sweep does the same."""
    try:
        current_app.send_task("campaigns.tasks.sweep", ignore_result=True, expires=60)
    except OperationalError as error:
        alarms.TASK_NOT_NOTIFIED.log(log, "sweep", "a quota", error)


def _ready_jobs(now: datetime) -> "QuerySet[Job]":
    ready = Job.objects.filter(status=Status.READY)
    return ready.exclude(not_before__gt=now).exclude(campaign__send_at__gt=now)


def dispatch_these(job_ids: Iterable[int]) -> Dispatched:
    """Dispatch the RENDERED jobs among these, and the READY ones with their time reached."""
    now, ids = timezone.now(), list(job_ids)
    rendered = Job.objects.filter(status=Status.RENDERED, id__in=ids)
    return _dispatch_all_vendors(rendered, now, BATCH) + dispatch_ready(ids, now=now)


def preview_dispatch(jobs: "QuerySet[Job] | None" = None) -> Dispatched:
    """Return what `dispatch_rendered` would do now, without changing anything."""
    small = leaf_condition(F("vendor__small_audience_threshold"))
    rows = _rendered_jobs(jobs).filter(_may_dispatch()).order_by().values("vendor")
    counts = rows.annotate(leaves=Count("id", filter=small), parents=Count("id", filter=~small))
    found = (Dispatched(row["leaves"], row["parents"], frozenset([row["vendor"]])) for row in counts)
    return sum(found, start=Dispatched())


def _may_dispatch() -> Q:
    """Match jobs that may be dispatched; not rendered ones whose campaign still waits for approval.

    Once approved by day, those wait for the night intended for them. Past its deadline such a job is dispatched, so
    that its messages expire.
    """
    undecided = Exists(Approval.objects.filter(campaign=OuterRef("campaign"), verdict=None))
    late = Exists(Campaign.objects.filter(pk=OuterRef("campaign"), deadline__lte=Now()))
    return ports.gates.may_go() & (~Q(undecided, status=Status.RENDERED) | Q(late))


def _rendered_jobs(jobs: "QuerySet[Job] | None") -> "QuerySet[Job]":
    return (Job.objects.all() if jobs is None else jobs).filter(status=Status.RENDERED)


def _dispatch_all_vendors(waiting: "QuerySet[Job]", now: datetime, batch: int) -> Dispatched:
    vendors = Vendor.objects.filter(pk__in=waiting.order_by().values("vendor"))
    return sum((done for one in vendors for done in dispatch_in_batches(waiting, one, now, batch)), start=Dispatched())


def notify_vendors(vendor_ids: Iterable[int], **options: Any) -> None:
    """Wake the mailcasters of these vendors. Raises nothing if the broker is away: the sweep notifies again."""
    for vendor in Vendor.objects.filter(pk__in=set(vendor_ids)):
        notify_queue(vendor.pk, vendor.queue, **options)


def notify_queue(vendor_id: int, queue: str, **options: Any) -> None:
    """Wake the mailcasters of one vendor without reading its row."""
    _notify_worker("cast", vendor_id, queue, queue=queue, **options)


def wake_vendor(vendor_id: int, slug: str) -> None:
    """Wake the mailcasters of one vendor from an event loop, without waiting for the broker.

    A broker may accept a connection and say nothing, so nobody waits for this thread, at the end of the process either.
    The sweep is as good, and later. A vendor has one such thread at a time.
    """
    if vendor_id not in _waking:
        _waking.add(vendor_id)
        threading.Thread(target=_notify_alone, args=(vendor_id, slug), name=f"wakes {slug}", daemon=True).start()


def _notify_alone(vendor_id: int, slug: str) -> None:
    try:
        notify_queue(vendor_id, queue_of(slug))
    except Exception as error:  # of a broker's client; the sweep wakes them
        alarms.TASK_NOT_NOTIFIED.log(log, "cast", queue_of(slug), error)
    finally:
        _waking.discard(vendor_id)


def dispatch_later(job_id: int, at: datetime) -> None:
    """Notify of a READY job at that time; the waiter keeps notifications for the far future (document 004)."""
    _notify_worker("dispatch_one", job_id, f"job_id={job_id}", eta=at)


def flower_options(text: str) -> dict[str, Any]:
    """Return the option that makes Flower show this text instead of bare ids."""
    return {"argsrepr": f"({shorten(text, MOST_SHOWN)})"}


def _notify_worker(task: str, id: int, text: str, **options: Any) -> None:
    try:
        current_app.send_task(f"campaigns.tasks.{task}", (id,), ignore_result=True, **flower_options(text), **options)
    except OperationalError as error:
        alarms.TASK_NOT_NOTIFIED.log(log, task, text, error)
