"""The nightly dispatch: one run for each vendor and local date, no matter what triggers it or how often (promise P6).

Document 000: every evening all rendered jobs are dispatched. When clocks change, a local time in the gap means the
first moment after it, and a time that occurs twice means the first one. A date skipped by a zone never has a run.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Q

from campaigns.engine.dispatch.dispatcher import BATCH, Dispatched, dispatch_in_batches
from campaigns.models import DispatchRun, Job
from campaigns.models.states import Status
from vendors import alarms
from vendors.models import Vendor

log = logging.getLogger(__name__)
LOOK_BACK = 9  # days to look back for the last due run: all weekdays, and a date that a zone skipped


@dataclass(frozen=True, slots=True)
class Run:
    """The run of one local date. started_at: None if it has not begun."""

    day: date
    started_at: datetime | None
    finished: bool
    missed: bool


@dataclass(frozen=True, slots=True)
class NextNight:
    """The run that will dispatch the jobs rendered now. at: in UTC; lost: an earlier run that did not take them."""

    day: date
    at: datetime
    lost: Run | None = None


def find_next_night(vendor: Vendor, runs: Iterable[Run], now: datetime) -> NextNight | None:
    """Return the next run still to come or to be finished, or None if the vendor dispatches on no weekday. Pure.

    runs: those of the last LOOK_BACK days. A date has one run (promise P6). If it is over and the vendor's hour is then
    moved to later that day, the next run is on the next day.
    """
    zone, known = ZoneInfo(vendor.time_zone), {run.day: run for run in runs}
    latest = latest_due_run(vendor, now)
    lost: Run | None = None
    if latest:
        run = known.get(latest[0])
        if (run and not run.missed and not run.finished) or (run is None and now - latest[1] <= vendor.catch_up):
            return NextNight(*latest)
        if run is None or run.missed:
            lost = run or Run(latest[0], None, finished=False, missed=True)
    today = now.astimezone(zone).date()
    for ahead in range(LOOK_BACK):
        day = today + timedelta(days=ahead)
        at = moment_in_utc(day, vendor.dispatch_at, zone)
        if at is None or at <= now or day.isoweekday() not in vendor.weekdays:
            continue
        if run := known.get(day):
            lost = lost or run  # it ran at another hour
        else:
            return NextNight(day, at, lost)
    return None


def latest_due_run(vendor: Vendor, now: datetime) -> tuple[date, datetime] | None:
    """Return the local date and the moment (UTC) of the vendor's latest due run. Pure.

    None: no run was due in the last LOOK_BACK days or since the vendor was created.
    """
    zone = ZoneInfo(vendor.time_zone)
    # Start with tomorrow: where clocks go back at midnight, tomorrow's midnight may already be past.
    latest = now.astimezone(zone).date() + timedelta(days=1)
    for back in range(LOOK_BACK):
        day = latest - timedelta(days=back)
        at = moment_in_utc(day, vendor.dispatch_at, zone)
        if at is not None and at <= now and day.isoweekday() in vendor.weekdays:
            return None if vendor.created_at and at < vendor.created_at else (day, at)
    return None


def moment_in_utc(day: date, at: time, zone: ZoneInfo) -> datetime | None:
    """Return that local time in UTC; None if the zone skipped the date (Apia, 30 December 2011)."""
    if _find_first_moment(day, time.min, zone).astimezone(zone).date() != day:
        return None
    return _find_first_moment(day, at, zone)


def _find_first_moment(day: date, at: time, zone: ZoneInfo) -> datetime:
    """Return the first moment with this local time, or the first one after the gap that contains it."""
    local = datetime.combine(day, at)
    found = local.replace(tzinfo=zone).astimezone(UTC)  # fold=0: the first of two
    if found.astimezone(zone).replace(tzinfo=None) == local:
        return found
    before, after = local.replace(tzinfo=zone, fold=1).astimezone(UTC), found
    while after - before > timedelta(seconds=1):  # the clocks change somewhere between the two readings
        middle = before + (after - before) // 2
        if middle.astimezone(zone).replace(tzinfo=None) < local:
            before = middle
        else:
            after = middle
    return after.replace(microsecond=0)


def start_due_run(vendor: Vendor, now: datetime) -> DispatchRun | None:
    """Begin the due run; return the vendor's oldest run in progress, or None.

    A run that did not begin within the vendor's catch-up time is marked as missed, once, and never begins. Its jobs are
    dispatched the next night, or by an operator.
    """
    latest = latest_due_run(vendor, now)
    if latest:
        _begin_run(vendor, *latest, now)
    return (
        DispatchRun.objects.filter(vendor=vendor, started_at__isnull=False, finished_at=None)
        .order_by("local_date")
        .first()
    )


def _begin_run(vendor: Vendor, day: date, at: datetime, now: datetime) -> None:
    runs = DispatchRun.objects.filter(vendor=vendor, local_date=day)
    if not runs.exists():
        new = DispatchRun(vendor=vendor, local_date=day, due_at=at)
        DispatchRun.objects.bulk_create([new], ignore_conflicts=True)
    untouched = runs.filter(started_at=None, missed=False)
    if now - at <= vendor.catch_up:
        untouched.update(started_at=now)
    elif untouched.update(missed=True):
        alarms.NIGHT_MISSED.log(log, vendor, day, at, now)


def run_night(vendor: Vendor, now: datetime, batch: int = BATCH) -> Dispatched:
    """Begin or continue the due run: dispatch all jobs rendered before it began, the sponsors' jobs in turns.

    A batch and its count are one transaction, so after a crash the next trigger does the rest.
    """
    done = Dispatched()
    while begun := start_due_run(vendor, now):
        waiting = Job.objects.filter(status=Status.RENDERED, created_at__lte=begun.started_at)
        done = sum(dispatch_in_batches(waiting, vendor, now, batch, begun), start=done)
        DispatchRun.objects.filter(pk=begun.pk, finished_at=None).update(finished_at=now)
    return done


def is_run_due(vendor: Vendor, now: datetime) -> bool:
    """Tell if a run should be begun, finished or marked as missed; change nothing."""
    latest = latest_due_run(vendor, now)
    if latest is None:
        return False
    ended = Q(finished_at__isnull=False) | Q(missed=True)
    return not DispatchRun.objects.filter(ended, vendor=vendor, local_date=latest[0]).exists()
