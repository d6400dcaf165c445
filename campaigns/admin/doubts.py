"""The page "Needs attention": messages in doubt, and what a user decides about them."""

import re
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse

from campaigns import labels
from campaigns.doubts import resolve as doubts_resolve
from campaigns.doubts.resolve import CannotResolve
from campaigns.models import Job, Message, Resolution
from campaigns.models.campaigns import sponsors_of
from campaigns.operators import actions

SHOWN = 50
TITLES = {
    "ask": "Ask the vendor again",
    Resolution.Decision.SENT: "It was sent",
    Resolution.Decision.RESEND: "Send again",
    Resolution.Decision.FAILED: "Give up",
}
WARNINGS = {
    Resolution.Decision.SENT: "They count as sent from now on and are never sent again.",
    Resolution.Decision.RESEND: "If the vendor has them after all, their recipients get them twice.",
    Resolution.Decision.FAILED: "They count as failed from now on; a retry of their job sends them again.",
}


def page(request: HttpRequest, site: admin.AdminSite) -> HttpResponse:
    """GET lists the oldest doubts, or those of ?job=7. POST decides about the chosen; all but `ask` is confirmed."""
    user: Any = request.user
    if not user.has_perm("campaigns.view_message"):
        raise PermissionDenied
    if request.method != "POST":
        return _list(request, site)
    if not user.has_perm("campaigns.add_resolution"):
        raise PermissionDenied
    decision = request.POST.get("decision", "")
    chosen = _doubts(request).filter(pk__in=[int(one) for one in request.POST.getlist("message") if one.isdecimal()])
    if decision not in TITLES or not chosen:
        messages.warning(request, "Choose messages that need attention, and what is to be done.")
    elif decision == "ask":
        asked = actions.ask_again(row.pk for row in chosen)
        messages.success(request, f"The vendors are asked about {asked:,}; look again in a moment.")
    elif "confirmed" not in request.POST:
        return _ask(request, site, decision, list(chosen))
    else:
        _settle(request, decision, [row.pk for row in chosen])
    return redirect("admin:attention")


def _doubts(request: HttpRequest) -> Any:
    rows: Any = doubts_resolve.list_doubts(_job(request))
    return rows.of_sponsors(sponsors_of(request.user))


def _job(request: HttpRequest) -> Job | None:
    typed = request.GET.get("job", "")
    mine = Job.objects.of_sponsors(sponsors_of(request.user))
    return get_object_or_404(mine, pk=int(typed[:18])) if typed.isdecimal() else None


def _list(request: HttpRequest, site: admin.AdminSite) -> HttpResponse:
    after = request.GET.get("after", "")
    rows = _doubts(request)
    if after.isdecimal():
        rows = rows.filter(pk__gt=int(after[:18]))
    shown = list(rows[: SHOWN + 1])
    context = {
        "rows": _facts(request, shown[:SHOWN]),
        "job": _job(request),
        "more": shown[SHOWN - 1].pk if len(shown) > SHOWN else None,
        "titles": TITLES,
        "may": request.user.has_perm("campaigns.add_resolution"),
    }
    return _answer(request, site, "admin/campaigns/attention.html", "Needs attention", context)


def _ask(request: HttpRequest, site: admin.AdminSite, decision: str, rows: list[Any]) -> HttpResponse:
    context = {"rows": _facts(request, rows), "decision": decision, "warning": WARNINGS[Resolution.Decision(decision)]}
    return _answer(request, site, "admin/campaigns/attention_confirm.html", TITLES[decision], context)


def _settle(request: HttpRequest, decision: str, ids: list[int]) -> None:
    name, reason = request.user.get_username(), request.POST.get("reason", "")
    try:
        done = actions.settle(ids, decision, reason, name, request.user.pk)
    except CannotResolve as error:
        messages.error(request, str(error))
        return
    messages.success(request, f"{done.messages:,} settled: {TITLES[decision]}.")
    if done.held:
        messages.info(request, f"Stopped half-way, so they wait for a retry: jobs {', '.join(map(str, done.held))}.")


def _facts(request: HttpRequest, rows: list[Message]) -> list[dict[str, Any]]:
    seen = labels.sees_recipients(request.user)
    return [_masked(doubts_resolve.doubt_facts(row), seen) for row in rows]


def _masked(facts: dict[str, Any], seen: bool) -> dict[str, Any]:
    """Masks the address also where the vendor's text repeats it."""
    whole, text = facts["recipient"], facts["seen"] or ""
    shown = labels.recipient(whole, seen)
    masked = re.sub(re.escape(whole), lambda _: shown, text, flags=re.IGNORECASE)
    return {**facts, "recipient": shown, "seen": masked}


def _answer(
    request: HttpRequest, site: admin.AdminSite, template: str, title: str, context: dict[str, Any]
) -> HttpResponse:
    return TemplateResponse(request, template, {**site.each_context(request), "title": title, **context})
