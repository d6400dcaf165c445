"""Obstacles: reasons not to call a job, rate limits apart. Pages, commands and the API get the same answer."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from campaigns.doors.labels import format_number
from campaigns.engine import quiet_hours, sending_hours
from campaigns.engine.casting.mailcaster import ORDER
from campaigns.engine.dispatch import nightly
from campaigns.engine.pausing import complaints
from campaigns.models import ComplaintPause
from campaigns.models.states import PARENTS, RUNNING, S
from campaigns.reporting.forecast.queues import LoginQueue, VendorQueue
from vendors.condition.values import ConditionKind
from vendors.instants import write_time
from vendors.models import Vendor
from vendors.own_reasons import read_reason
from vendors.remedies import Remedy
from vendors.said import show

MAY_BE_HELD = (S.RENDERED, S.READY)
# Jobs in any other state are with a sender or end without one.
WITH_NOBODY = (S.RENDERED, S.READY, S.DISPATCHED, S.RECOVERING, S.P_QUEUED, S.P_ASSIGNING)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """reason: a text for operators. until: its end, if nobody has to act; None: unknown. remedy: a person's way out.

    plain: the reason for campaign owners, if it differs. brief: for an obstacle of the whole vendor or credential, the
    same in a few words; "": it is of this job.
    """

    reason: str
    until: datetime | None = None
    remedy: Remedy | None = None
    plain: str = ""
    brief: str = ""

    @property
    def reason_for_owner(self) -> str:
        return self.plain or self.reason


def obstacle_of_job(job: Any, queue: VendorQueue, now: datetime) -> Obstacle | None:  # noqa: C901
    """Return the first obstacle to a job's calls; None if only rate limits are left.

    The job comes with its vendor, credential, campaign, holder and held (eta.forecast_jobs).
    """
    if job.is_done or job.status in (S.SENT, S.STOPPED, S.P_STOPPED):
        return None
    if queue.halted:
        return Obstacle(queue.halted, brief=_("nothing is called"))
    if job.paused_at:
        by = {"who": job.campaign.paused_by or _("somebody"), "why": show(job.campaign.why_paused)}
        return Obstacle(_("paused by %(who)s: %(why)s") % by)
    if job.status == S.P_ASSIGNING and job.is_kept_back:
        return Obstacle(
            _("waits after its first %(count)s for somebody to let the rest go")
            % {"count": format_number(job.wait_after)}
        )
    if job.status in MAY_BE_HELD and job.held:
        return Obstacle(show(job.held))
    if job.status == S.RENDERED:
        return night_obstacle(job.vendor, queue, now)
    login = queue.logins[job.credential_id]
    if stopped := queue.vendor_stop_reason or login.login_stop_reason:
        return Obstacle(stopped, remedy=queue.remedy(login), brief=login.name_condition(now))
    if waits := _condition_obstacle(queue, login, now):
        return waits
    if job.status not in RUNNING and (own := _time_obstacle(job, now)):
        return own
    if job.holder and not queue.disclosed:
        said = _("credential busy with another campaign")
        return Obstacle(said, plain=_("waits for another campaign to end, because its login sends one at a time"))
    if job.holder:
        said = _("credential busy with job %(job)s") % {"job": job.holder}
        return Obstacle(said, plain=_("waits for another campaign to end, because its login sends one at a time"))
    if job.status in WITH_NOBODY and not _is_taken(job, queue.kinds):
        return _no_caster(queue)
    if job.status in (*WITH_NOBODY, S.ENQUEUED):
        return _process_obstacle(queue)
    return None


def paused_receivers(jobs: Iterable[Any]) -> dict[int, str]:
    """Return by job id a sentence about the receivers to which its mail is paused. Other jobs are left out."""
    bulk = [job for job in jobs if complaints.may_hold(job.vendor, job.campaign) and not job.is_done]
    if not bulk:
        return {}
    of: dict[int, list[ComplaintPause]] = {}
    for pause in complaints.lasting_pauses({job.sponsor_id for job in bulk}):
        of.setdefault(pause.sponsor_id, []).append(pause)
    return {job.pk: tell_pauses(of[job.sponsor_id]) for job in bulk if job.sponsor_id in of}


def tell_pauses(pauses: Iterable[ComplaintPause]) -> str:
    """Return for the owner of a campaign which of its mail waits for a person, and why."""
    return "; ".join(
        _("mail to %(provider)s waits since %(at)s until an operator resumes it: %(why)s")
        % {
            "provider": show(one.provider),
            "at": formats.date_format(timezone.localtime(one.paused_at), "j M H:i"),
            "why": show(one.figures),
        }
        for one in pauses
    )


def obstacle_of_queue(queue: VendorQueue, now: datetime) -> Obstacle | None:
    """Return the obstacle for a vendor's whole queue, or None."""
    if queue.halted:
        return Obstacle(queue.halted)
    if queue.shut:
        return Obstacle(queue.vendor_stop_reason, remedy=queue.remedy(None))
    waiting = [login for login in queue.logins.values() if login.waiting]
    if waiting and all(login.is_stuck for login in waiting):
        return _stuck_obstacle(queue, waiting[0], now)
    if not queue.kinds:
        return _no_caster(queue)
    return _process_obstacle(queue)


def obstacle_of_login(queue: VendorQueue, login: LoginQueue, now: datetime) -> Obstacle | None:
    """Return the obstacle for a new batch over this credential, or None."""
    if whole := obstacle_of_queue(queue, now):
        return whole
    return _stuck_obstacle(queue, login, now) if login.is_stuck else None


def waiting_apart(vendor: Vendor, queue: VendorQueue, now: datetime) -> list[str]:
    """Return texts about messages that wait outside the queue, with reasons. Leaves out the reason
    `obstacle_of_queue` gives.
    """
    whole = obstacle_of_queue(queue, now)
    stuck = [
        (login, _stuck_obstacle(queue, login, now).reason)
        for login in queue.logins.values()
        if login.waiting and login.is_stuck
    ]
    found = [
        _("%(count)s wait: %(why)s") % {"count": format_number(login.waiting), "why": why}
        for login, why in stuck
        if not (whole and why == whole.reason)
    ]
    if queue.put_off:
        first = _(", the first until %(at)s") % {"at": write_time(queue.next_at, now)} if queue.next_at else ""
        off = _("%(count)s wait for a time of their own, or are paused") % {"count": format_number(queue.put_off)}
        found.append(off + first)
    if queue.rendered:
        night = night_obstacle(vendor, queue, now).reason
        found.append(_("%(count)s for the %(night)s") % {"count": format_number(queue.rendered), "night": night})
    return found


def night_obstacle(vendor: Vendor, queue: VendorQueue, now: datetime) -> Obstacle:
    """Return the obstacle of rendered jobs: their next nightly dispatch, and an earlier one that did not take them."""
    night = nightly.find_next_night(vendor, queue.nights, now)
    if night is None:
        return Obstacle(_("no nightly dispatch: the vendor has no weekday for it"))
    zone = ZoneInfo(vendor.time_zone)
    local, today = night.at.astimezone(zone), now.astimezone(zone).date()
    names = {0: _("today"), 1: _("tomorrow")}
    day = names.get((local.date() - today).days) or formats.date_format(local, "l")
    at = {"day": day, "at": formats.date_format(local, "j M H:i"), "zone": zone.key}
    reason = _("nightly dispatch %(day)s, %(at)s %(zone)s") % at
    plain = _("waits for the night: %(at)s") % {"at": write_time(night.at, now)}
    if night.lost:
        form = _("; that of %(day)s was missed") if night.lost.missed else _("; that of %(day)s has been")
        was = form % {"day": formats.date_format(night.lost.day, "j M")}
        reason, plain = reason + was, plain + was
    return Obstacle(reason, night.at, plain=plain)


def end_obstacle(job: Any, ends: datetime, now: datetime) -> Obstacle | None:
    """Return the obstacle before the forecast end: the deadline, or the end of the sending hours."""
    closes = sending_hours.closes_at(job.campaign, now)
    if closes is None or ends <= closes:
        sponsor, quiet = job.campaign.sponsor, quiet_hours.quiet_hours_of_campaign(job.campaign)
        start, end = (quiet.start, quiet.end) if quiet else (sponsor.quiet_from, sponsor.quiet_to)
        if start is None or (not quiet and quiet_hours.is_exempt(job.vendor.channel, job.campaign)):
            return None
        hours = {"start": f"{start:%H:%M}", "end": f"{end:%H:%M}", "at": write_time(ends, now)}
        said = _("ends about %(at)s, or later: nobody gets it between %(start)s and %(end)s of his time")
        return Obstacle(said % hours)
    if closes == job.campaign.deadline:
        return Obstacle(_("the rest expires %(at)s") % {"at": write_time(closes, now)}, closes)
    return Obstacle(_("not done by %(at)s, when its sending hours end") % {"at": write_time(closes, now)})


def _stuck_obstacle(queue: VendorQueue, login: LoginQueue, now: datetime) -> Obstacle:
    """Return the obstacle of a credential with calls that lack a known end."""
    said = login.login_stop_reason or login.describe_for_page(now)
    return Obstacle(said, remedy=queue.remedy(login), brief=login.name_condition(now))


def _condition_obstacle(queue: VendorQueue, login: LoginQueue, now: datetime) -> Obstacle | None:
    """Return the obstacle of a credential that fails, or that waits as its vendor asked."""
    condition = login.condition
    if condition.kind is ConditionKind.FAILING:
        return _stuck_obstacle(queue, login, now)
    if condition.until and condition.kind is ConditionKind.SHUT:
        return Obstacle(
            login.describe_for_page(now), condition.until, queue.remedy(login), brief=login.name_condition(now)
        )
    return None


def _time_obstacle(job: Any, now: datetime) -> Obstacle | None:
    opening = sending_hours.campaign_opens_at(job.campaign, now)
    until = max((at for at in (job.not_before, opening) if at), default=now)
    if until <= now:
        return None
    if until == job.not_before and job.waits_for:
        return Obstacle(show(read_reason(job.waits_for)), until)
    if opening == until and opening != job.campaign.send_at:
        form, values = sending_hours.opening_form(job.campaign, until)
        return Obstacle(_(form) % values, until)
    return Obstacle(_("waits until %(at)s") % {"at": write_time(until, now)}, until)


def _is_taken(job: Any, kinds: Iterable[str]) -> bool:
    """Return True if a mailcaster of one of these kinds would take the job once it is dispatched."""
    to_be_cut = not (job.parent_id or job.fence) and job.size >= job.vendor.small_audience_threshold
    status = S.P_QUEUED if job.status in PARENTS or (job.status == S.READY and to_be_cut) else S.DISPATCHED
    ranks = (rank for kind in kinds for rank in ORDER[kind])
    return any(status in rank.statuses and rank.children == (job.parent_id is not None) for rank in ranks)


def sender_obstacle(queue: VendorQueue) -> str:
    """Return the reason no sender begins a job without other obstacles."""
    if found := Obstacle(queue.halted) if queue.halted else _process_obstacle(queue):
        return found.reason
    if queue.busy >= (queue.slots or 0):
        said = _("all %(count)s streams of the workers that read vendor.%(vendor)s are in use")
        return said % {"count": queue.slots, "vendor": queue.slug}
    return _("the workers' log has to tell")


def _no_caster(queue: VendorQueue) -> Obstacle:
    reason = _("no enabled mailcaster takes it") if queue.kinds else _("no mailcaster of the vendor is enabled")
    return Obstacle(reason, plain=_("nobody takes it at present: an operator has to enable sending by this vendor"))


def _process_obstacle(queue: VendorQueue) -> Obstacle | None:
    plain = _("nobody sends at present: an operator has to look after mailhub")
    if queue.slots is None:
        return Obstacle(_("Redis cannot be reached"), plain=plain)
    if not queue.slots:
        return Obstacle(_("no worker reads the queue vendor.%(vendor)s") % {"vendor": queue.slug}, plain=plain)
    if queue.busy >= queue.slots and not queue.sending:
        said = _("all %(count)s senders are at work for other vendors") % {"count": queue.slots}
        plain = _("waits until other campaigns leave room")
        return Obstacle(said if queue.disclosed else _("no sender is free"), plain=plain)
    return None
