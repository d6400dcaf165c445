"""A job's page, which updates itself: progress, next steps, reasons of failures, parts and dates."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from campaigns.doors import labels
from campaigns.engine.progress import Progress
from campaigns.engine.routes import moving, whose
from campaigns.models import Job
from campaigns.reporting import reasons
from campaigns.reporting.reasons import FailureReason
from vendors import deferrals, ownership, said
from vendors.deferrals import ShownWait
from vendors.models import Vendor


@dataclass(frozen=True, slots=True)
class Share:
    """The number of a job's messages in one state. address: of their list, or empty if no list can show them."""

    word: str
    messages: int
    address: str = ""


COUNTED_AT_ONCE = 10_000  # failures; above it the reasons are counted on request


def failure_reasons(job: Any) -> list[tuple[FailureReason, str]]:
    """Return the reasons, each with the address of its messages."""
    return [(one, _messages_address(job, reason=one.key)) for one in reasons.reasons_of_job(job, job.sums)]


def job_context(request: HttpRequest, job: Any) -> dict[str, Any]:
    """Return the page's context. job: with its sums, label and forecast, as jobs.add_progress adds them."""
    user: Any = request.user
    remedy = job.remedy
    return {
        "job": job,
        "remedy": remedy,
        "remedy_offered": bool(remedy and remedy.is_offered_to(user)),
        "ahead": job.forecast.describe_ahead(timezone.now(), is_operator=ownership.sees_all_sponsors()),
        "receivers": _waiting_receivers(job, user),
        "disclosed": ownership.is_disclosed(job.vendor_id),
        "governs": user.has_perm("vendors.view_credential") and ownership.owns_vendor(user, job.vendor_id),
        "shares": message_shares(job),
        "failures": count_failures(job),
        "dates": [(word, at) for word, at in _job_dates(job) if at],
        "route": _route_lines(job),
        "to_messages": _messages_address(job),
        "sees_messages": user.has_perm("campaigns.view_message"),
        "sees_vendors": user.has_perm("vendors.view_vendor"),
    }


def _waiting_receivers(job: Any, user: Any) -> list[ShownWait]:
    """Return the receiving domains that wait at the job's credential while it is not done."""
    if job.is_done or job.vendor.channel != Vendor.Channel.EMAIL:
        return []
    found = deferrals.shown_waits([job.credential_id], lambda of: ownership.is_disclosed(of.pk))
    return deferrals.show_waits(found, user)


def count_failures(job: Any) -> int:
    """Count the messages that failed, may have failed, or are in doubt."""
    sums: Progress = job.sums
    return sums.refused + sums.expired + sums.suppressed + sums.bounced + sums.in_doubt


def message_shares(job: Any) -> list[Share]:
    """Return the job's messages by state, without empty states."""
    sums = job.sums
    counts = [
        (labels.WAITING, sums.waiting, ""),
        (labels.SENDING, sums.in_flight, ""),
        (labels.SENT, sums.accepted - sums.delivered - sums.bounced, labels.SENT),
        (labels.DELIVERED, sums.delivered, labels.DELIVERED),
        (labels.BOUNCED, sums.bounced, labels.BOUNCED),
        (labels.FAILED, sums.refused, labels.FAILED),
        (labels.EXPIRED, sums.expired, labels.EXPIRED),
        (labels.SUPPRESSED, sums.suppressed, labels.SUPPRESSED),
        (labels.ATTENTION, sums.in_doubt, labels.ATTENTION),
    ]
    shown = (
        (word, number, _messages_address(job, state=state) if state else "") for word, number, state in counts if number
    )
    return [Share(word, number, address) for word, number, address in shown]


def _messages_address(job: Job, **more: str) -> str:
    return f"{reverse('admin:campaigns_message_changelist')}?{urlencode({'job': str(job.pk), **more})}"


def _job_dates(job: Job) -> list[tuple[str, datetime | None]]:
    stopped = _("Stopped by %s") % job.stopped_by if job.stopped_by else _("Stopped")
    return [
        (_("Created"), job.created_at),
        (_("Not before"), None if job.is_done else job.not_before),
        (_("Dispatched"), job.dispatched_at),
        (_("First taken by a sender"), job.started_at),
        (_("Paused"), job.paused_at),
        (stopped, job.stopped_at),
        (_("Finished"), job.finished_at),
    ]


def _route_lines(job: Job) -> list[str]:
    if not job.campaign.routed:
        return []
    name = job.campaign.route.name if job.campaign.route else _("a route that was removed")
    return [name, *map(str, whose.list_moves(job.campaign_id)), *map(said.show, moving.describe_stay(job))]
