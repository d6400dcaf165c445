"""Who goes out when: the nightly jobs on demand (document 000), and those that were ready to be sent at once.

The nightly run itself is in nightly.py. A paused vendor's jobs are dispatched too: they wait on its queue.
"""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Count, F, QuerySet
from django.utils import timezone

from campaigns.dispatch.queries import BATCH, Dispatched, in_batches, leaf
from campaigns.lifecycle import Status
from campaigns.models import Job
from vendors.models import Vendor


def dispatch(jobs: "QuerySet[Job] | None" = None, batch: int = BATCH, now: datetime | None = None) -> Dispatched:
    """Dispatches the RENDERED ones (of these jobs) now, without waiting for the night."""
    return _all(_rendered(jobs), now or timezone.now(), batch)


def dispatch_ready(job_ids: Iterable[int] | None = None, batch: int = BATCH, now: datetime | None = None) -> Dispatched:
    """Dispatches the READY jobs (or those of them) whose time has come: not_before and the campaign's send_at."""
    now = now or timezone.now()
    ready = Job.objects.filter(status=Status.READY)
    ready = ready.exclude(not_before__gt=now).exclude(campaign__send_at__gt=now)
    return _all(ready if job_ids is None else ready.filter(id__in=list(job_ids)), now, batch)


def dispatch_these(job_ids: Iterable[int], now: datetime | None = None) -> Dispatched:
    """Of these jobs the RENDERED ones, without waiting for the night, and the READY ones whose time has come."""
    now, ids = now or timezone.now(), list(job_ids)
    rendered = Job.objects.filter(status=Status.RENDERED, id__in=ids)
    return _all(rendered, now, BATCH) + dispatch_ready(ids, now=now)


def pending(jobs: "QuerySet[Job] | None" = None) -> Dispatched:
    """What `dispatch` would do now. Changes nothing."""
    small = leaf(F("vendor__small_audience_threshold"))
    rows = _rendered(jobs).order_by().values("vendor")
    counts = rows.annotate(leaves=Count("id", filter=small), parents=Count("id", filter=~small))
    found = (Dispatched(row["leaves"], row["parents"], frozenset([row["vendor"]])) for row in counts)
    return sum(found, start=Dispatched())


def _rendered(jobs: "QuerySet[Job] | None") -> "QuerySet[Job]":
    return (Job.objects.all() if jobs is None else jobs).filter(status=Status.RENDERED)


def _all(waiting: "QuerySet[Job]", now: datetime, batch: int) -> Dispatched:
    vendors = Vendor.objects.filter(pk__in=waiting.order_by().values("vendor"))
    return sum((done for one in vendors for done in in_batches(waiting, one, now, batch)), start=Dispatched())
