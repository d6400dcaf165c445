"""The page "Needs attention": messages in doubt, grouped by cause, and the user's decisions about them."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from campaigns.doors import filters, labels
from campaigns.engine.doubts import causes
from campaigns.engine.doubts import resolve as doubts_resolve
from campaigns.engine.doubts.causes import Cause, DoubtLook
from campaigns.engine.doubts.resolve import CannotResolve
from campaigns.engine.routes import whose
from campaigns.models import Job, Message, Resolution, Sponsor
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from campaigns.operations import actions
from campaigns.senders import entitlements
from vendors.condition.reading import conditions_of_vendors
from vendors.history import Actor
from vendors.listing import condition_badge
from vendors.models import Vendor
from vendors.ownership import is_disclosed
from vendors.said import show

SHOWN = 50  # messages of a cause on a page
MOST_CHOICES = 500
MOST_CHOSEN = 1000  # causes or messages in one form
TITLES = {
    "ask": gettext_lazy("Ask the vendor again"),
    Resolution.Decision.SAME: gettext_lazy("It is the same account"),
    Resolution.Decision.SENT: gettext_lazy("It was sent"),
    Resolution.Decision.RESEND: gettext_lazy("Send again"),
    Resolution.Decision.FAILED: gettext_lazy("Give up"),
}
WARNINGS = {
    Resolution.Decision.SAME: gettext_lazy(
        "The vendor is asked about them where it is called now, and called again if it has not got them. If they were "
        "called in another account, their recipients get them twice."
    ),
    Resolution.Decision.SENT: gettext_lazy("They count as sent from now on and are never sent again."),
    Resolution.Decision.RESEND: gettext_lazy("If the vendor has them after all, their recipients get them twice."),
    Resolution.Decision.FAILED: gettext_lazy(
        "They count as failed from now on; a retry of their job sends them again."
    ),
}


@dataclass(frozen=True, slots=True)
class CauseGroup:
    """Causes of one job and vendor whose texts are the same, minute by minute: one row of the page, oldest first."""

    causes: tuple[Cause, ...]

    @property
    def messages(self) -> int:
        return sum(one.messages for one in self.causes)

    @property
    def elsewhere(self) -> int:
        return sum(one.elsewhere for one in self.causes)

    @property
    def asked_again(self) -> datetime | None:
        return min((one.asked_again for one in self.causes if one.asked_again), default=None)

    @property
    def first(self) -> Cause:
        return self.causes[0]

    @property
    def last(self) -> Cause:
        return self.causes[-1]

    @property
    def keys(self) -> str:
        """The value of the row's check box."""
        return json.dumps([one.key for one in self.causes])


def group_causes(found: Iterable[Cause]) -> list[CauseGroup]:
    """Return the causes in groups, those with the most messages first."""
    alike: dict[tuple[Any, ...], list[Cause]] = defaultdict(list)
    for one in found:
        alike[one.job_id, one.vendor, one.seen].append(one)
    groups = [CauseGroup(tuple(sorted(some, key=lambda one: one.minute))) for some in alike.values()]
    return sorted(groups, key=lambda group: -group.messages)


def doubts_page(request: HttpRequest, site: admin.AdminSite) -> HttpResponse:
    """List the causes, or the messages of ?cause= (GET); decide about those chosen, all but `ask` confirmed (POST)."""
    user: Any = request.user
    if not user.has_perm("campaigns.view_message"):
        raise PermissionDenied
    if request.method != "POST":
        return _list_messages_page(request, site) if "cause" in request.GET else _list_causes_page(request, site)
    if not user.has_perm("campaigns.add_resolution"):
        raise PermissionDenied
    decision, chosen = request.POST.get("decision", ""), _chosen_causes(request)
    rows = _messages_chosen(request)
    if decision not in TITLES or not (chosen or rows):
        messages.warning(request, _("Choose what needs attention, and what is to be done."))
    elif decision == "ask":
        asked = actions.ask_again_about(chosen) + actions.ask_again(row.pk for row in rows)
        messages.success(
            request, _("The vendors are asked about %s; look again in a moment.") % labels.format_number(asked)
        )
        if elsewhere := _count_elsewhere(chosen, rows):
            said = _(
                "%s were called before the vendor's settings or its key changed: only you can settle them, unless "
                "you say that it is the same account."
            )
            messages.warning(request, said % labels.format_number(elsewhere))
    elif "confirmed" not in request.POST:
        return _ask_for_decision(request, site, decision, chosen, rows)
    else:
        _settle_chosen(request, decision, chosen, [row.pk for row in rows])
    return redirect(request.get_full_path())


def _count_elsewhere(chosen: list[Cause], rows: list[Any]) -> int:
    ids = {row.pk for row in rows}
    ids.update(pk for cause in chosen for pk in causes.messages_of(cause).values_list("pk", flat=True))
    return len(whose.called_elsewhere(ids))


def _sees_vendor_texts(request: HttpRequest) -> bool:
    """Return whether the user may see vendors' texts, which may contain addresses."""
    return labels.sees_recipients(request.user)


def _look_of_request(request: HttpRequest) -> DoubtLook:
    """Return the look-up that the query string describes. Raises ValueError for an invalid date."""
    numbers = {name: request.GET.get(name, "") for name in ("sponsor", "vendor")}
    chosen = {name: int(typed[:18]) for name, typed in numbers.items() if typed.isdecimal()}
    since, until = filters.parse_days(request.GET.get("from", ""), request.GET.get("to", ""))
    if since and until and since >= until:
        raise ValueError(_("the first day is after the last"))
    return DoubtLook(sponsor_ids_of(request.user), **chosen, job=_job_of_request(request), since=since, until=until)


def _job_of_request(request: HttpRequest) -> Job | None:
    typed = request.GET.get("job", "")
    mine = Job.objects.of_sponsors(sponsors_of(request.user))
    return get_object_or_404(mine, pk=int(typed[:18])) if typed.isdecimal() else None


def _list_causes_page(request: HttpRequest, site: admin.AdminSite) -> HttpResponse:
    fault = ""
    try:
        look = _look_of_request(request)
    except ValueError as why:
        look, fault = DoubtLook(sponsor_ids_of(request.user)), str(why)
    found = causes.list_causes(look, _sees_vendor_texts(request))
    number = sum(cause.messages for cause in found)
    sponsors = Sponsor.objects.of_sponsors(sponsors_of(request.user)).values_list("pk", "name")[:MOST_CHOICES]
    context = {
        "groups": group_causes(found[: causes.SHOWN]),
        "more": len(found) > causes.SHOWN,
        "number": number,
        "look": look,
        "fault": fault,
        "typed": {name: request.GET.get(name, "") for name in ("sponsor", "vendor", "from", "to", "job")},
        "sponsors": [(str(pk), name) for pk, name in sponsors],
        "vendors": [(str(pk), slug) for pk, slug in entitlements.vendors_seen(request.user).values_list("pk", "slug")],
        "titles": TITLES,
        "may": request.user.has_perm("campaigns.add_resolution"),
    }
    return _render_answer(request, site, "admin/campaigns/attention.html", _("Needs attention"), context)


def _cause_of_key(request: HttpRequest, key: str) -> Cause | None:
    """Return the cause with this key, or None if it is invalid, another sponsor's, or has text the user may not see."""
    try:
        cause = causes.parse_cause(key)
    except ValueError:
        return None
    mine = Job.objects.of_sponsors(sponsors_of(request.user))
    if (cause.seen is not None and not _sees_vendor_texts(request)) or not mine.filter(pk=cause.job_id).exists():
        return None
    return cause


def _chosen_causes(request: HttpRequest) -> list[Cause]:
    grouped = [key for typed in request.POST.getlist("causes")[:MOST_CHOSEN] for key in _parse_keys(typed)]
    keys = list(dict.fromkeys([*request.POST.getlist("cause"), *grouped]))[:MOST_CHOSEN]
    return [cause for key in keys if (cause := _cause_of_key(request, key))]


def _parse_keys(typed: str) -> list[str]:
    """Return the keys in the value of a group's check box; [] for any other text."""
    try:
        keys = json.loads(typed)
    except ValueError:
        return []
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def _messages_chosen(request: HttpRequest) -> list[Any]:
    """Return the messages chosen one by one; none if all of their cause are chosen."""
    ids = [int(one) for one in request.POST.getlist("message")[:MOST_CHOSEN] if one.isdecimal() and len(one) < 19]
    if not ids or request.POST.getlist("cause"):
        return []
    rows: Any = doubts_resolve.list_doubts(_job_of_request(request))
    return list(rows.of_sponsors(sponsors_of(request.user)).filter(pk__in=ids))


def _list_messages_page(request: HttpRequest, site: admin.AdminSite) -> HttpResponse:
    cause = _cause_of_key(request, request.GET["cause"])
    if cause is None:
        raise Http404
    all_of_it = causes.messages_of(cause)
    rows = doubts_resolve.list_doubts().filter(pk__in=all_of_it.values("pk"))
    after = request.GET.get("after", "")
    if after.isdecimal():
        rows = rows.filter(pk__gt=int(after[:18]))
    shown = list(rows[: SHOWN + 1])
    number = all_of_it.count()
    context = {
        "cause": replace(cause, messages=number),
        "rows": _doubt_rows(request, shown[:SHOWN]),
        "number": number,
        "first": not after,
        "next": f"?{urlencode({'cause': cause.key, 'after': shown[SHOWN - 1].pk})}" if len(shown) > SHOWN else "",
        "start": f"?{urlencode({'cause': cause.key})}",
        "titles": TITLES,
        "may": request.user.has_perm("campaigns.add_resolution"),
    }
    return _render_answer(request, site, "admin/campaigns/attention_messages.html", _("Needs attention"), context)


def _ask_for_decision(
    request: HttpRequest, site: admin.AdminSite, decision: str, chosen: list[Cause], rows: list[Any]
) -> HttpResponse:
    versions = [(cause, *causes.version_of_messages(causes.messages_of(cause))) for cause in chosen]
    shown = [(replace(cause, messages=len(ids)), version) for cause, ids, version in versions]
    context = {
        "causes": shown,
        "rows": _doubt_rows(request, rows),
        "number": sum(cause.messages for cause, _version in shown) + len(rows),
        "decision": decision,
        "warning": WARNINGS[Resolution.Decision(decision)],
        "back": request.get_full_path(),
        "vendors": _vendor_conditions(_vendors_of_causes(shown, rows)),
    }
    return _render_answer(request, site, "admin/campaigns/attention_confirm.html", str(TITLES[decision]), context)


def _vendors_of_causes(shown: list[tuple[Cause, str]], rows: list[Any]) -> "QuerySet[Vendor]":
    """Return the vendors that may have the messages."""
    named = [cause.vendor for cause, _version in shown]
    of_rows = Message.objects.filter(pk__in=[row.pk for row in rows]).values("campaign__credential__vendor")
    return Vendor.objects.filter(Q(slug__in=named) | Q(pk__in=of_rows)).order_by("slug")


def _vendor_conditions(vendors: "QuerySet[Vendor]") -> list[tuple[str, SafeString]]:
    """Return the slug and the condition of each vendor."""
    slugs = dict(vendors.values_list("pk", "slug"))
    found = conditions_of_vendors(slugs)
    return [(slug, condition_badge(found[pk], disclosed=is_disclosed(pk))) for pk, slug in slugs.items()]


def _settle_chosen(request: HttpRequest, decision: str, chosen: list[Cause], ids: list[int]) -> None:
    by, reason = Actor(request.user.get_username(), request.user.pk), request.POST.get("reason", "")
    shown = dict(zip(request.POST.getlist("cause"), request.POST.getlist("shown"), strict=False))
    try:
        if chosen:
            asked = [(cause, shown.get(cause.key, "")) for cause in chosen]
            done = actions.settle_causes(asked, decision, reason, by)
        else:
            done = actions.settle_doubts(ids, decision, reason, by.name, by.id)
    except CannotResolve as error:
        messages.error(request, show(str(error)))
        return
    facts = {"number": labels.format_number(done.messages), "title": TITLES[decision]}
    messages.success(request, _("%(number)s settled: %(title)s.") % facts)
    if done.held:
        messages.info(
            request, _("Stopped half-way, so they wait for a retry: jobs %s.") % ", ".join(map(str, done.held))
        )


def _doubt_rows(request: HttpRequest, rows: list[Message]) -> list[dict[str, Any]]:
    seen = labels.sees_recipients(request.user)
    return [_mask_facts(doubts_resolve.doubt_facts(row), seen) for row in rows]


def _mask_facts(facts: dict[str, Any], seen: bool) -> dict[str, Any]:
    """Mask the address, also where the vendor's text repeats it."""
    whole, text = facts["recipient"], facts["seen"] or ""
    shown = labels.format_recipient(whole, seen)
    masked = re.sub(re.escape(whole), lambda _: shown, text, flags=re.IGNORECASE)
    return {**facts, "recipient": shown, "seen": masked}


def _render_answer(
    request: HttpRequest, site: admin.AdminSite, template: str, title: str, context: dict[str, Any]
) -> HttpResponse:
    home = reverse("admin:attention")
    return TemplateResponse(request, template, {**site.each_context(request), "title": title, "home": home, **context})
