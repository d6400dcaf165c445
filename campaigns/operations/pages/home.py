"""An owner's first page: campaigns with their state, those that wait for a decision, and the last days."""

from typing import Any
from urllib.parse import urlencode

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext_lazy

from campaigns.audience.answers import inbox
from campaigns.doors.access import owners_page
from campaigns.doors.polling import LivePart
from campaigns.lists.drafts import keeping
from campaigns.lists.pages.uploads import MAKE
from campaigns.models import Sponsor
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from campaigns.operations import approving
from campaigns.reporting import campaign_rows
from campaigns.reporting.campaign_rows import STATES, CampaignQuery, Needs
from campaigns.reporting.forecast import campaign_states
from campaigns.reporting.pages import day_chart
from campaigns.reporting.pages.ways_on import CHANGE, SETTLE
from campaigns.senders.quotas import admission
from campaigns.senders.quotas.book import QuotaUse
from campaigns.texts.given_texts import given_value
from vendors import remedies
from vendors.condition.values import describe_condition
from vendors.instants import write_time
from vendors.said import show

MOST_SPONSORS = 500  # in their select
MOST_NEEDS = 5  # of each kind
MOST_QUOTAS = 50
LONGEST = 200  # characters of a search
KINDS_OF_NEEDS = ("approves", "resumes", "settles")
NAMES = {
    "going": gettext_lazy("Under way"),
    "night": gettext_lazy("Waits for the night"),
    "paused": gettext_lazy("Paused"),
    "attention": gettext_lazy("Needs attention"),
    "stopped": gettext_lazy("Stopped"),
}


@owners_page()
def show_home(request: HttpRequest) -> HttpResponse:
    """Show the campaigns of the user's sponsors, newest first."""
    sponsors = Sponsor.objects.of_sponsors(sponsors_of(request.user)).order_by("name")
    asked = _campaign_query(request)
    part = _live_part(request, asked)
    context = {
        "live": part.html(over=False),
        "asked": asked,
        "sponsors": sponsors.values_list("pk", "name")[:MOST_SPONSORS],
        "states": NAMES,
        "unread_answers": inbox.count_unread(sponsor_ids_of(request.user)) if _reads_answers(request.user) else 0,
        "quotas": [] if asked.narrowed else _quotas_of_user(request.user),
        "chart": None if asked.narrowed else day_chart.draw_last_days(sponsor_ids_of(request.user)),
    }
    return render(request, "owners/home.html", context)


def _quotas_of_user(user: Any) -> list[QuotaUse]:
    """Return the quotas of the user's own sponsors. Who sees all sponsors has the admin's list."""
    mine = sponsor_ids_of(user)
    return list(admission.find_uses(mine).values())[:MOST_QUOTAS] if mine else []


def _reads_answers(user: Any) -> bool:
    return bool(user.has_perm("campaigns.change_recipientanswer"))


@owners_page()
def show_live_home(request: HttpRequest) -> HttpResponse:
    """Render the current state of the same campaigns, without the rest of the page."""
    return _live_part(request, _campaign_query(request)).answer(over=False)


@owners_page()
def show_day_chart(request: HttpRequest) -> HttpResponse:
    """Render the chart of the last days, which the page polls each minute."""
    return render(request, "owners/day_chart.html", {"chart": day_chart.draw_last_days(sponsor_ids_of(request.user))})


def _campaign_query(request: HttpRequest) -> CampaignQuery:
    typed = {name: request.GET.get(name, "") for name in ("q", "sponsor", "state", "before")}
    numbers = {name: typed[name] for name in ("sponsor", "before")}
    if any(one and not (one.isdecimal() and len(one) < 19) for one in numbers.values()):
        raise BadRequest("sponsor and before are numbers")
    sponsor, before = (int(one) if one else None for one in numbers.values())
    state = typed["state"] if typed["state"] in STATES else ""
    return CampaignQuery(given_value(typed["q"].replace("\0", ""))[:LONGEST], sponsor, state, before)


def _needs_of(user: Any) -> Needs:
    """Return the decisions that wait for this user."""
    settles = user.is_staff and user.has_perms(SETTLE)
    resumes = user.has_perm(CHANGE)
    return Needs(MOST_NEEDS + 1, user.pk, user.get_username(), approving.may_decide(user), resumes, settles)


def _live_part(request: HttpRequest, asked: CampaignQuery) -> LivePart:
    context: dict[str, Any] = {"asked": asked}
    here = {"q": asked.q, "sponsor": asked.sponsor, "state": asked.state, "before": asked.before}
    query = urlencode({name: value for name, value in here.items() if value})
    part = LivePart(
        request, f"{reverse('home-live')}?{query}", "owners/home_live.html", context, "owners/nav_approvals.html"
    )
    mine = sponsor_ids_of(request.user)
    found = campaign_rows.page_of_campaigns(mine, asked, None if asked.narrowed else _needs_of(request.user))
    rows, needs = list[Any](found.rows), list[Any](found.waiting)
    states = campaign_states.states_of_campaigns({row.pk for row in (*rows, *needs)})
    for row in (*rows, *needs):
        row.state = states[row.pk]
    for row in needs:
        row.asked_by = next((job.campaign.approval.asked_by for job in row.state.jobs if row.need == "approves"), "")
    of = {kind: [one for one in needs if one.need == kind] for kind in KINDS_OF_NEEDS}
    older = {name: value for name, value in {**here, "before": found.before}.items() if value}
    shut = [] if asked.narrowed else _shut_remedies(request.user)
    context |= {
        "rows": rows,
        "common": found.common,
        "needs": [one for kind in KINDS_OF_NEEDS for one in of[kind][:MOST_NEEDS]],
        "more": {kind: len(some) > MOST_NEEDS for kind, some in of.items()},
        "unsent": []
        if asked.narrowed or not request.user.has_perms(MAKE)
        else keeping.unsent_drafts(mine)[:MOST_NEEDS],
        "shut": shut[:MOST_NEEDS],
        "more_shut": len(shut) > MOST_NEEDS,
        "older": urlencode(older) if found.before else "",
        "makes": request.user.has_perms(MAKE) and mine != [],
    }
    return part


def _shut_remedies(user: Any) -> list[tuple[remedies.Remedy, str]]:
    """Return the shut items that the user can open again, each with its condition as a sentence."""
    now = write_time
    found = remedies.remedies_of(user)[: MOST_NEEDS + 1]
    return [(one.remedy, show(describe_condition(one.condition, now))) for one in found]
