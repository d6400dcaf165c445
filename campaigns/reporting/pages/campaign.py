"""A campaign's page: its state, reason to wait, forecast, reasons of failures, and recipients."""

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from campaigns.approvals import approval_rules
from campaigns.doors import labels
from campaigns.doors.access import owners_page
from campaigns.doors.polling import LivePart
from campaigns.engine import prepared, progress
from campaigns.engine.progress import Progress
from campaigns.models import Campaign, Job
from campaigns.models.campaigns import sponsor_ids_of
from campaigns.operations.verbs import is_legal
from campaigns.reporting import accounts, message_rows, reasons
from campaigns.reporting.forecast import campaign_states
from campaigns.reporting.forecast.campaign_states import CampaignState
from campaigns.reporting.pages.ways_on import find_ways
from campaigns.reporting.reasons import FailureReason
from vendors import deferrals, history, ownership
from vendors.causes.wording import KNOWN_CAUSES, list_causes, word_cause
from vendors.deferrals import ShownWait
from vendors.models import Vendor
from vendors.said import show

VERBS = ("pause", "resume", "stop", "retry")
MOST_PARTS = 500  # of one job
FEW = 5_000  # failures; above it a running campaign's reasons are not counted on each poll
DECIDED = 10  # decisions on the page
MEANS = {
    labels.WAITING: gettext_lazy("Nothing has been sent yet."),
    labels.SENDING: gettext_lazy("It is being sent."),
    labels.PAUSED: gettext_lazy("It is paused: nothing more is sent until somebody lets it go on."),
    labels.STOPPED: gettext_lazy("It was stopped: the rest is not sent unless somebody sends it."),
    labels.SENT: gettext_lazy("It has been sent to everybody."),
    labels.DELIVERED: gettext_lazy("Everybody has got it, as the vendor reports."),
    labels.PARTLY_SENT: gettext_lazy("It has ended. Not everybody was reached."),
    labels.FAILED: gettext_lazy("It has ended. Nobody was reached."),
    labels.EXPIRED: gettext_lazy("Its deadline passed before anything was sent."),
    labels.SUPPRESSED: gettext_lazy("Nobody on its list may be written to."),
    labels.ATTENTION: gettext_lazy("It has ended. Of some messages it is not known whether they were sent."),
}
STANDS = gettext_lazy("Part of it has been sent. Nothing is sent at the moment.")
STANDS_UNSENT = gettext_lazy("Nothing is sent at the moment.")
HELD = gettext_lazy("It waits: nothing more is sent until its vendor is called again.")
STATES = {  # of recipients, by their name in the URL, in the order of the choices
    "sent": labels.SENT,
    "delivered": labels.DELIVERED,
    "bounced": labels.BOUNCED,
    "failed": labels.FAILED,
    "expired": labels.EXPIRED,
    "suppressed": labels.SUPPRESSED,
    "attention": labels.ATTENTION,
    "open": labels.OPEN,
}


def campaign_of_user(request: HttpRequest, campaign_id: int) -> Campaign:
    """Return a campaign of the user's sponsors. Raises Http404 for any other."""
    mine, found = sponsor_ids_of(request.user), _CAMPAIGNS.of([campaign_id] if campaign_id < 2**63 else [])
    if not found or (mine is not None and found[0].sponsor_id not in mine):
        raise Http404
    return found[0]


def _campaigns_without_texts() -> "QuerySet[Campaign]":
    """Return all campaigns with what their pages name."""
    found = Campaign.objects.select_related(
        "sponsor", "identity", "credential__vendor", "route", "template_version__template"
    )
    texts = [f"template_version__{one}" for one in ("subject", "body", "text", "headers")]
    return found.defer("body", "text", "credential__secret", "identity__secret", *texts)


_CAMPAIGNS = prepared.RowsByKey(_campaigns_without_texts)


def channel_of(campaign: Campaign) -> str:
    return campaign.credential.vendor.channel


@owners_page()
def show_campaign(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show a campaign."""
    campaign = campaign_of_user(request, campaign_id)
    part, state = _live_campaign_part(request, campaign)
    context = {**part.page_context, "copy_key": uuid4(), "live": part.html(over=state.finished)}
    return render(request, "owners/campaign/page.html", context)


@owners_page()
def show_live_campaign(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Render the parts of the page that change while the campaign is sent."""
    part, state = _live_campaign_part(request, campaign_of_user(request, campaign_id))
    return part.answer(over=state.finished)


def _live_campaign_part(request: HttpRequest, campaign: Campaign) -> tuple[LivePart, CampaignState]:
    context: dict[str, Any] = {"campaign": campaign}
    url, around = reverse("campaign-live", args=[campaign.pk]), "owners/campaign/around.html"
    part = LivePart(request, url, "owners/campaign/live.html", context, around)
    state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
    sums = state.sums
    failures = count_failures(sums)
    waits = any(approval_rules.is_undecided(job.campaign) for job in state.jobs) and not state.finished
    counted = failures <= FEW or state.finished
    why = reasons_with_links(campaign, state) if failures and counted else []
    offers = verbs_for_user(request, state)
    reported = state.reports_deliveries
    left = sums.open_messages + sums.expired + sums.refused - count_left_out_of_retry(one["reason"] for one in why)
    context |= {
        "state": state,
        "parts": sums.parts,
        "cost": accounts.cost_so_far(state.jobs),
        "decided": history.latest_about({Campaign: [campaign.pk], Job: [job.pk for job in state.jobs]}, DECIDED),
        "system": history.SYSTEM,  # its entries already name the actor
        **_tell_state(campaign, state, waits),
        "numbers": outcome_numbers(state, reported),
        "unreported": sums.accepted > 0 and not reported,
        "verbs": [verb for verb in offers if verb != "retry" or left > 0],
        "nobody_left": "retry" in offers and left <= 0 and failures > 0,
        "failures": failures,
        "why_heading": failures_heading(sums),
        "reasons": why,
        "receivers": [] if state.finished else _receivers_that_wait(state, request.user),
        "ways": find_ways(campaign, state, request.user),
        "remedies": [] if waits else [(one, one.is_offered_to(request.user)) for one in state.list_remedies],
    }
    return part, state


def _receivers_that_wait(state: CampaignState, user: Any) -> list[ShownWait]:
    """Return the receiving domains that wait at the credentials of the campaign's open jobs."""
    logins = {job.credential_id for job in state.jobs if not job.is_done and job.vendor.channel == Vendor.Channel.EMAIL}
    found = deferrals.shown_waits(logins, lambda of: ownership.is_disclosed(of.pk)) if logins else []
    return deferrals.show_waits(found, user)


def _tell_state(campaign: Campaign, state: CampaignState, waits: bool) -> dict[str, Any]:
    """Return the state's sentence and its reason. waits: for approval; if that is the reason, it is told once."""
    if not waits:
        return {"means": state_sentence(state), "why": state.why}
    why = capfirst(show(campaign.why_paused))
    is_reason = why and why.casefold() in state.why.casefold()
    means = f"{why}." if is_reason else _("It waits for approval by another person.")
    return {"means": means, "why": "" if is_reason else state.why}


def state_sentence(state: CampaignState) -> Any:
    """Return the campaign's state as a sentence; the page adds the reason."""
    if state.label == labels.PAUSED and not any(job.paused_at for job in state.jobs):
        return HELD
    if state.has_stopped_short:
        return STANDS if state.sums.accepted else STANDS_UNSENT
    return MEANS.get(state.label, "")


def count_failures(sums: Progress) -> int:
    """Count the messages that have a reason on the page: not sent, come back, or in doubt."""
    return sums.refused + sums.expired + sums.suppressed + sums.bounced + sums.in_doubt


def failures_heading(sums: Progress) -> str:
    """Return the heading of the reasons. Messages in doubt or suppressed have not failed."""
    if sums.refused + sums.expired + sums.bounced == 0 < count_failures(sums):
        return _("Needs attention") if sums.in_doubt else _("Not to be written to")
    return _("Why did they fail?")


def outcome_numbers(state: CampaignState, reported: bool) -> list[tuple[str, str, int, str]]:
    """Return the relevant numbers as (name, look, number, state of these recipients).

    reported: the vendor reports deliveries.
    """
    sums = state.sums
    found = [
        (_("Sent"), "good", sums.accepted, ""),
        (_("Delivered"), "good", sums.delivered, "delivered"),
        (_("Came back"), "bad", sums.bounced, "bounced"),
        (_("Failed"), "bad", sums.refused, "failed"),
        (_("Expired"), "bad", sums.expired, "expired"),
        (_("Needs attention"), "warn", sums.in_doubt, "attention"),
        (_("Not to be written to"), "idle", sums.suppressed, "suppressed"),
        (_("Never sent") if state.finished else _("Waiting"), "idle", sums.open_messages, "open"),
    ]
    always = {
        _("Sent"),
        _("Failed"),
        *([_("Delivered")] if reported else ()),
        *(() if state.finished else [_("Waiting")]),
    }
    return [one for one in found if one[2] or one[0] in always]


def reasons_with_links(campaign: Campaign, state: CampaignState) -> list[dict[str, Any]]:
    """Return the reasons, each with the address of its recipients."""
    slugs = {label: slug for slug, label in STATES.items()}
    found = reasons.reasons_of_campaign(campaign, channel_of(campaign), state.sums)
    return [{"reason": one, "slug": slugs[one.state]} for one in found]


def count_left_out_of_retry(found: Iterable[FailureReason]) -> int:
    """Count refused messages that a retry leaves out: unknown recipients, and those who told the vendor to stop."""
    return sum(one.messages for one in found if one.key in reasons.NEVER_AGAIN)


def verbs_for_user(request: HttpRequest, state: CampaignState) -> list[str]:
    """Return the legal verbs that the user may use."""
    if not request.user.has_perm("campaigns.change_job"):
        return []
    return [verb for verb in VERBS if any(is_legal(verb, job, job.sums) for job in state.jobs)]


@owners_page()
def show_failures(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show the failures' reasons of a campaign with too many for polls to count."""
    campaign = campaign_of_user(request, campaign_id)
    state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
    why = reasons_with_links(campaign, state)
    heading = failures_heading(state.sums)
    context = {"campaign": campaign, "reasons": why, "most": reasons.MOST, "why_heading": heading}
    return render(request, "owners/campaign/failures.html", context)


@owners_page()
def show_parts(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show the parts of a large campaign; for htmx the table alone."""
    campaign = campaign_of_user(request, campaign_id)
    mine = Job.objects.filter(parent__isnull=False, parent__campaign=campaign).order_by("first_message")
    shown: list[Any] = list(mine.select_related("vendor").defer("vendor__settings")[: MOST_PARTS + 1])
    sums = progress.progress_of_jobs(shown[:MOST_PARTS])
    stands = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk].is_at_rest
    for number, part in enumerate(shown[:MOST_PARTS], start=1):
        part.number, part.sums = number, sums[part.pk]
        part.word = labels.label_of_sum(part.sums, stands=stands)
        part.first, part.last = part.first_message - campaign.first_message + 1, part.end - campaign.first_message
    more = len(shown) > MOST_PARTS
    context = {"campaign": campaign, "parts": shown[:MOST_PARTS], "more": more, "most": MOST_PARTS}
    context["follows"] = any(part.finished_at is None for part in shown) or not shown
    alone = "HX-Request" in request.headers
    return render(request, "owners/campaign/parts_table.html" if alone else "owners/campaign/parts.html", context)


def _states_of(campaign: Campaign, slug: str) -> dict[str, str]:
    """Return the states to choose from, without *Delivered* where no vendor reports it."""
    state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
    left_out = () if slug == "delivered" or state.reports_deliveries else ("delivered",)
    return {name: label for name, label in STATES.items() if name not in left_out}


@owners_page("campaigns.view_message")
def show_recipients(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Show the recipients by state and reason, masked for users who may not see them."""
    campaign = campaign_of_user(request, campaign_id)
    slug, reason, after = (request.GET.get(name, "") for name in ("state", "reason", "after"))
    cause = request.GET.get("cause", "")
    if (
        (slug and slug not in STATES)
        or (cause and cause not in KNOWN_CAUSES)
        or (after and not (after.isdecimal() and len(after) < 19))
    ):
        raise Http404
    channel = channel_of(campaign)
    found = message_rows.page_of_recipients(
        campaign, channel, STATES.get(slug, ""), reason[:300], int(after or 0), cause
    )
    seen = labels.sees_recipients(request.user)
    for row in found.rows:
        row.shown = labels.format_recipient(row.recipient, seen)
        row.cause_word = word_cause(row.cause)
    context = {
        "campaign": campaign,
        "rows": found.rows,
        "after": found.after,
        "first": not after,
        "slug": slug,
        "reason": reason,
        "cause": cause,
        "causes": list_causes(),
        "sentence": reasons.reason_sentence(reason, channel) if reason else "",
        "states": _states_of(campaign, slug),
        "masked": not seen,
    }
    return render(request, "owners/campaign/recipients.html", context)
