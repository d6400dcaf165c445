"""The ways on from a campaign that stands still: who can have it go on, with the page for those who may.

Pauses of vendors and credentials have theirs in vendors/remedies.py. Here are those of the campaign itself: a pause, an
approval, complaints, doubts, and calls that are held after a takeover of the store.
"""

from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from campaigns.approvals import approval_rules
from campaigns.doors import labels
from campaigns.doors.who_may import name_users
from campaigns.models import Campaign
from campaigns.models.approvals import APPROVE
from campaigns.operations import approving
from campaigns.reporting.forecast.campaign_states import CampaignState
from vendors.ownership import ALL_SPONSORS

CHANGE = "campaigns.change_job"
SETTLE = ("campaigns.view_message", "campaigns.add_resolution")  # to decide about messages in doubt
RECOVER = ("campaigns.add_resolution", ALL_SPONSORS)  # as the page of operations asks
RECEIVERS = "campaigns.change_complaintpause"


@dataclass(frozen=True, slots=True)
class WayOn:
    """A sentence, and the page with its button for those who may press it; "" for others."""

    sentence: str
    button: str = ""
    address: str = ""


def find_ways(campaign: Campaign, state: CampaignState, user: Any) -> list[WayOn]:
    """Return the ways on for this user. Nothing is said twice: a pause that the user may end has its verb already."""
    found = [
        _way_by_approval(campaign, state, user),
        _way_by_resuming(campaign, state, user),
        _way_by_receivers(state, user),
        _way_by_doubts(state, user),
        _way_by_recovery(state, user),
    ]
    return [one for one in found if one]


def _way_by_approval(campaign: Campaign, state: CampaignState, user: Any) -> WayOn | None:
    waiting = [
        job.campaign.approval for job in state.jobs if approval_rules.is_undecided(job.campaign) and not state.finished
    ]
    if not waiting:
        return None
    page = reverse("approval", args=[campaign.pk])
    if not approving.may_decide(user):
        return WayOn(name_users(campaign.sponsor_id, APPROVE, _("%(names)s can approve it."), waiting[0].asked_user))
    if approving.approval_obstacle(waiting[0], user):
        form = _("You have asked for it yourself. %(names)s can approve it.")
        said = name_users(campaign.sponsor_id, APPROVE, form, user.pk)
        return WayOn(said, _("Look at the request"), page)
    return WayOn(_("You can approve it."), _("Look at it and decide"), page)


def _way_by_resuming(campaign: Campaign, state: CampaignState, user: Any) -> WayOn | None:
    paused = [
        job for job in state.jobs if job.paused_at and not job.is_done and not approval_rules.is_barred(job.campaign)
    ]
    if not paused or user.has_perm(CHANGE):
        return None
    return WayOn(name_users(campaign.sponsor_id, CHANGE, _("%(names)s can let it go on.")))


def _way_by_receivers(state: CampaignState, user: Any) -> WayOn | None:
    if not any(getattr(job, "paused_receivers", "") for job in state.jobs if not job.is_done):
        return None
    if user.is_staff and user.has_perm(RECEIVERS):
        page = reverse("admin:campaigns_complaintpause_changelist")
        return WayOn(_("You can resume the mail to this provider."), _("Look at the complaints"), f"{page}?lasts=yes")
    return WayOn(_("Ask whoever runs mailhub to resume the mail to this provider."))


def _way_by_doubts(state: CampaignState, user: Any) -> WayOn | None:
    many = state.sums.in_doubt
    if not many:
        return None
    doubtful = next((job for job in state.jobs if job.sums.in_doubt), state.jobs[0])
    if user.is_staff and user.has_perms(SETTLE):
        said = ngettext("You can decide about %(shown)s message.", "You can decide about %(shown)s messages.", many)
        page = f"{reverse('admin:attention')}?job={doubtful.pk}"
        return WayOn(said % {"shown": labels.format_number(many)}, _("Decide"), page)
    said = ngettext(
        "An operator decides about %(shown)s message: it may be at the vendor, whose answer was lost.",
        "An operator decides about %(shown)s messages: they may be at the vendor, whose answers were lost.",
        many,
    )
    return WayOn(said % {"shown": labels.format_number(many)})


def _way_by_recovery(state: CampaignState, user: Any) -> WayOn | None:
    if not any(job.forecast.halted for job in state.jobs):
        return None
    if user.is_staff and user.has_perms(RECOVER):
        return WayOn(_("You can decide about it."), _("Look at it and decide"), reverse("admin:operations-recover"))
    return WayOn(_("Ask whoever runs mailhub."))
