"""Decisions about a campaign: a page shows the effect in numbers, and the decision applies to exactly these jobs."""

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from campaigns.doors.access import LOOK, owners_page
from campaigns.doors.owner_phrases import tell_owner
from campaigns.engine.decisions import Verdict
from campaigns.models import Campaign
from campaigns.operations import verbs
from campaigns.reporting import reasons
from campaigns.reporting.forecast import campaign_states
from campaigns.reporting.forecast.campaign_states import CampaignState
from campaigns.reporting.pages import campaign as campaign_page
from vendors.history import Actor

TITLES = {
    "pause": gettext_lazy("Pause"),
    "resume": gettext_lazy("Let it go on"),
    "stop": gettext_lazy("Stop"),
    "retry": gettext_lazy("Send to those who were not reached"),
}
LEVELS = {Verdict.DONE: messages.SUCCESS, Verdict.ALREADY: messages.INFO}
LONGEST = 500  # characters of a reason


@owners_page(LOOK, "campaigns.change_job")
def decide_on_page(request: HttpRequest, campaign_id: int, verb: str) -> HttpResponse:
    """Show the decision's effect (GET), or make it with a reason (POST)."""
    if verb not in TITLES:
        raise Http404
    campaign = campaign_page.campaign_of_user(request, campaign_id)
    state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
    if request.method != "POST":
        return _ask_on_page(request, campaign, state, verb)
    reason = request.POST.get("reason", "").strip()[:LONGEST]
    if not reason:
        return _ask_on_page(request, campaign, state, verb, _("Say why: the reason is kept with the decision."))
    user: Any = request.user
    by, mine = Actor(user.get_username(), user.pk), {job.pk for job in state.jobs}
    for job_id, seen in _shown_jobs(request):
        for answer in (
            verbs.decide_if_shown(verb, job_id, by, reason, seen, expired="expired" in request.POST)
            if job_id in mine
            else ()
        ):
            messages.add_message(
                request, LEVELS.get(answer.verdict, messages.ERROR), _sentence_of(tell_owner(answer.message))
            )
    return redirect("campaign", campaign_id=campaign.pk)


def _ask_on_page(
    request: HttpRequest, campaign: Campaign, state: CampaignState, verb: str, wrong: str = ""
) -> HttpResponse:
    meant = [job for job in state.jobs if verbs.is_legal(verb, job, job.sums)]
    never = _count_never_again(campaign, state) if verb == "retry" else 0
    context = {
        "campaign": campaign,
        "state": state,
        "verb": verb,
        "heading": TITLES[verb],
        "sums": state.sums,
        "shown": [f"{pk}:{seen}" for pk, seen in verbs.shown_versions(verb, meant).items()],
        "never": never,
        "again": max(0, state.sums.refused - never),
        "wrong": wrong,
        "longest": LONGEST,
    }
    return render(request, "owners/campaign/decide.html", context)


def _count_never_again(campaign: Campaign, state: CampaignState) -> int:
    if not state.sums.refused:
        return 0
    return campaign_page.count_left_out_of_retry(
        reasons.reasons_of_campaign(campaign, campaign_page.channel_of(campaign), state.sums)
    )


def _sentence_of(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _shown_jobs(request: HttpRequest) -> Iterator[tuple[int, int]]:
    """Yield job ids and versions as the page showed them."""
    for shown in request.POST.getlist("shown"):
        job_id, _colon, seen = shown.partition(":")
        if job_id.isdecimal() and seen.isdecimal() and len(job_id) < 19 and len(seen) < 10:
            yield int(job_id), int(seen)
