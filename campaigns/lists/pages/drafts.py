"""The drafts of a user's sponsors, and the shared code of the wizard's steps."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.http import require_POST

from campaigns.doors import labels
from campaigns.doors.access import owners_page
from campaigns.doors.sandboxed import allow_own_frames
from campaigns.lists.drafts import checking, copying, keeping, sending
from campaigns.lists.drafts.columns import HIDDEN_ROWS
from campaigns.lists.intake import BadInput
from campaigns.lists.pages.uploads import MAKE
from campaigns.models import Campaign, Draft
from campaigns.models.campaigns import sponsors_of
from campaigns.reporting.forecast import campaign_states
from campaigns.reporting.pages.campaign import campaign_of_user
from campaigns.tasks import notify_of_draft
from vendors import said

SHOWN = 100
STEPS = (
    ("draft_message", gettext_lazy("Message")),
    ("draft_recipients", gettext_lazy("Recipients")),
    ("draft_check", gettext_lazy("Check and send")),
)
LABELS = {
    "name": gettext_lazy("Name of the campaign"),
    "credential": gettext_lazy("Sent by"),
    "route": gettext_lazy("Route"),
    "identity": gettext_lazy("From"),
    "topic": gettext_lazy("Topic"),
    "transactional": gettext_lazy("Not a newsletter: nobody can unsubscribe from it"),
    "mail_class": gettext_lazy("Class"),
    "template_version": gettext_lazy("Template"),
    "subject": gettext_lazy("Subject"),
    "html": gettext_lazy("HTML"),
    "text": gettext_lazy("Text"),
    "headers": gettext_lazy("Further headers"),
    "columns": gettext_lazy("Columns"),
    "leave_out": gettext_lazy("Leave the bad rows out"),
    "list_name": gettext_lazy("List"),
    "when": gettext_lazy("When"),
    "send_at": gettext_lazy("Time"),
    "hours_from": gettext_lazy("From (hour of the day)"),
    "hours_to": gettext_lazy("To (hour of the day)"),
    "hours_of_each": gettext_lazy("By the clock of each recipient"),
    "time_zone": gettext_lazy("Time zone"),
    "first": gettext_lazy("First recipients"),
}


def draft_step(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Make a page about a draft of the user's sponsors; sent drafts redirect to their campaign."""

    @owners_page(*MAKE)
    @wraps(view)
    def show_step(request: HttpRequest, draft_id: int, *args: Any, **kwargs: Any) -> HttpResponse:
        draft = find_draft(request, draft_id)
        if draft.campaign_id or draft.busy == Draft.SENDING:
            return redirect("draft_sent", draft.pk)
        try:
            return view(request, draft, *args, **kwargs)
        except keeping.Closed:
            return redirect("draft_sent", draft.pk)

    return show_step


def find_draft(request: HttpRequest, draft_id: int) -> Draft:
    """Return the draft. Raises Http404, also for another sponsor's draft."""
    try:
        return keeping.load_draft(draft_id, sponsors_of(request.user))
    except Draft.DoesNotExist:
        raise Http404 from None


def render_step(request: HttpRequest, template: str, draft: Draft | None, context: Mapping[str, Any]) -> HttpResponse:
    """Render a step's page."""
    here = request.resolver_match.url_name if request.resolver_match else ""
    done = {"draft_message": draft is not None, "draft_recipients": bool(draft and draft.found and draft.found["good"])}
    steps = [
        {
            "name": name,
            "label": label,
            "here": name == here or (draft is None and name == "draft_message"),
            "done": done.get(name),
        }
        for name, label in STEPS
    ]
    shown = {"draft": draft, "steps": steps, **context}
    return allow_own_frames(render(request, f"owners/wizard/{template}.html", shown))


def show_conflict(request: HttpRequest, stored: Draft, part: str, values: Mapping[str, Any]) -> HttpResponse:
    """Show both versions of a part that another window has changed; the user's input is kept."""
    differing = [
        {
            "label": LABELS.get(name.removesuffix("_id"), name),
            "mine": _shown_value(name, mine),
            "theirs": _shown_value(name, getattr(stored, name)),
        }
        for name, mine in values.items()
        if getattr(stored, name) != mine
    ]
    typed = [
        (name, value)
        for name, some in request.POST.lists()
        if name not in ("csrfmiddlewaretoken", "seen")
        for value in some
    ]
    context = {"draft": stored, "differing": differing, "typed": typed, "back": _step_of(part), "action": request.path}
    context["files"] = [one.name for one in request.FILES.getlist("files")]
    return render(request, "owners/wizard/conflict.html", context, status=409)


def _step_of(part: str) -> str:
    return {keeping.MESSAGE: "draft_message", keeping.LIST: "draft_recipients"}.get(part, "draft_check")


def _shown_value(name: str, value: Any) -> str:
    if name.endswith("_id") and value is not None:
        model: Any = Draft._meta.get_field(name.removesuffix("_id")).related_model
        return str(model.objects.filter(pk=value).first() or "")
    if name == "columns":
        fields = (f"{header} → {field}" for header, field in value.get("names", {}).items())
        hidden = {"keep": _("Send to hidden rows, too"), "leave_out": _("Leave hidden rows out")}
        decided = [hidden[one] for one in [value.get(HIDDEN_ROWS)] if one]
        return "\n".join([value.get("recipient", ""), *fields, *decided])
    return _("yes") if value is True else _("no") if value is False else "" if value is None else str(value)


def check_soon(draft: Draft) -> None:
    """Have the list checked if necessary: a small one now, others by a worker."""
    draft = checking.ask_for_check(draft)
    if draft.busy == Draft.CHECKING and draft.lease_at is None:
        if checking.is_small(draft):
            checking.check_draft(draft.pk)
        else:
            notify_of_draft("check_draft", draft.pk)


@owners_page(*MAKE)
def list_drafts_page(request: HttpRequest) -> HttpResponse:
    """Show drafts that have not been sent."""
    rows = Draft.objects.of_sponsors(sponsors_of(request.user)).filter(campaign=None)
    rows = rows.select_related("sponsor", "created_by").only(
        "name", "updated_at", "sponsor__name", "list_name", "busy", "created_by__username"
    )
    return render(request, "owners/wizard/drafts.html", {"drafts": rows[:SHOWN]})


@require_POST
@draft_step
def delete_on_page(request: HttpRequest, draft: Draft) -> HttpResponse:
    """Deletes a draft; a repeat changes nothing."""
    if keeping.delete_draft(draft):
        messages.success(request, _("The draft “%(name)s” is deleted.") % {"name": draft.name})
    return redirect("drafts")


@require_POST
@owners_page("campaigns.view_campaign", *MAKE)
def copy_on_page(request: HttpRequest, campaign_id: int) -> HttpResponse:
    """Copy a campaign's message into a draft; a second press on the same page opens the same draft."""
    campaign = campaign_of_user(request, campaign_id)
    name = _("Copy of %(name)s") % {"name": campaign.name}
    try:
        draft = copying.copy_campaign(campaign, request.POST.get("key", "")[:100], request.user, name)
    except BadInput as error:
        messages.error(request, said.show(str(error)))
        return redirect("campaign", campaign.pk)
    messages.success(request, _("This is a copy. It has no recipients and no time yet."))
    return redirect("draft_message", draft.pk)


@owners_page(*MAKE)
def show_sent(request: HttpRequest, draft_id: int) -> HttpResponse:
    """Show the progress of storing a sent draft, then its campaign."""
    draft = find_draft(request, draft_id)
    if "HX-Request" in request.headers and (draft.campaign or draft.busy != Draft.SENDING):
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    if draft.campaign is None:
        if draft.busy != Draft.SENDING:
            return redirect("draft_check", draft.pk)
        return render(request, "owners/wizard/sending.html", {"draft": draft})
    _tell_stored(request, draft, draft.campaign)
    try:
        return redirect(reverse("campaign", args=[draft.campaign.pk]))
    except NoReverseMatch:
        return redirect("home")


def _tell_stored(request: HttpRequest, draft: Draft, campaign: Campaign) -> None:
    """Show that the campaign is stored, and the reason of its next wait, in words that stay true on the page."""
    size = campaign.size
    text = ngettext(
        "“%(name)s” is stored, for %(size)s recipient.", "“%(name)s” is stored, for %(size)s recipients.", size
    )
    parts = [text % {"name": campaign.name, "size": labels.format_number(size)}]
    if draft.first and draft.first < size:
        first = _("Its first %(first)s are sent, then it waits for you.")
        parts.append(first % {"first": labels.format_number(draft.first)})
    messages.success(request, " ".join(parts))
    state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
    waits = said.show(campaign.why_paused) or "; ".join(wait_reasons(state))
    if waits:
        messages.warning(request, _("It waits: %(reason)s") % {"reason": waits})


def wait_reasons(state: campaign_states.CampaignState) -> list[str]:
    """Return what its jobs wait for where a vendor cannot send."""
    return list(dict.fromkeys(job.forecast.owner_sentence for job in state.jobs if job.forecast.remedy))


def send_now(draft: Draft) -> None:
    """Make the campaign of a draft to be sent: a small one now, others by a worker."""
    if sending.is_small(draft):
        sending.finish_sending(draft.pk)
    else:
        notify_of_draft("send_draft", draft.pk)
