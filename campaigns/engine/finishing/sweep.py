"""The sweep: finds in the rows the work that a lost notification or a killed worker left (document 003, RECOVERING)."""

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from campaigns.engine import ports
from campaigns.engine.claiming import rebuild, receiver_waits
from campaigns.engine.dispatch import dispatcher, nightly
from campaigns.engine.failover import crash, guard
from campaigns.engine.failover import queries as failover_queries
from campaigns.engine.finishing import finalizer, journals
from campaigns.engine.refusal_runs import putting_back
from campaigns.engine.routes import moving
from campaigns.models import Job
from campaigns.models.states import Status
from vendors import alarms, shut
from vendors.limits.throttle import ThrottleUnreachable
from vendors.models import Credential, Mailcaster, Vendor

log = logging.getLogger(__name__)

WAITING = (Status.RECOVERING, Status.DISPATCHED, Status.P_QUEUED, Status.P_ASSIGNING)
LEFT_BEHIND = timedelta(seconds=5)  # senders merge their answers within a second


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep, and the notifications to send."""

    recovered: list[int]
    finalised: list[int]
    unanswered: list[Job]
    vendors_waiting: set[int]
    nights_due: list[int]


def run_sweep(lease: timedelta) -> Swept:
    """Do all overdue work. Concurrent sweeps do no harm: each step is a conditional statement.

    Locked rows are left to the next sweep; waiting for one lock would delay all the other work.
    """
    if (why := _start_refusal()) is not None:
        alarms.NOTHING_CALLED.log(log, why)
    taken = journals.read_journals()
    recovered = [job_id for job_id in finalizer.jobs_to_recover(lease) if finalizer.recover_job(job_id, lease)]
    if recovered:
        alarms.JOBS_RECOVERED.log(log, recovered, lease)
    finalizer.merge_answers(LEFT_BEHIND)
    putting_back.put_runs_back()
    finalised = [job_id for job_id in finalizer.jobs_to_finalise() if finalizer.finalise_job(job_id)]
    finalised += [parent_id for parent_id in finalizer.parents_to_finish() if finalizer.finish_parent(parent_id)]
    dispatcher.dispatch_ready(dispatcher.free_and_ready())
    rerouted = moving.reroute_due()
    ports.events.swept()
    if why is None:
        rebuild.forget_old_usage(timedelta(hours=1))  # a recovery needs the whole ledger
        receiver_waits.forget_ended_waits()
    waiting = _vendors_waiting() | rerouted.vendors
    return Swept(taken + recovered, finalised, finalizer.claim_unstarted_jobs(lease), waiting, _nights_due())


def _start_refusal() -> str | None:
    """Return why no call may start, or None. After a crash of PostgreSQL, compare first."""
    why = failover_queries.notice_halt()
    if why == guard.CRASHED:
        with suppress(ThrottleUnreachable):
            why = crash.compare_after_crash()
    return why


def _vendors_waiting() -> set[int]:
    """Return vendors with waiting jobs and an idle mailcaster.

    If all credentials of a vendor are shut, only overdue jobs count, because they expire.
    """
    waits = Job.objects.filter(status__in=WAITING)
    logins = list(Credential.objects.annotate(shut=shut.OF_LOGINS).values_list("vendor", "shut"))
    closed = {vendor for vendor, _ in logins} - {vendor for vendor, why in logins if not why}
    waiting = waits.exclude(vendor__in=closed).values("vendor_id")
    overdue = waits.filter(vendor__in=closed, campaign__deadline__lte=timezone.now()).values("vendor_id")
    idle = Mailcaster.objects.filter(Q(vendor__in=waiting) | Q(vendor__in=overdue), enabled=True).exclude(
        jobs__in=Job.objects.filter(status__in=(Status.ENQUEUED, Status.SENDING))
    )
    return set(idle.values_list("vendor_id", flat=True))


def _nights_due() -> list[int]:
    """Return vendors whose nightly run may have been missed by beat; the run's row makes it happen only once."""
    now = timezone.now()
    return [vendor.pk for vendor in Vendor.objects.all() if nightly.is_run_due(vendor, now)]
