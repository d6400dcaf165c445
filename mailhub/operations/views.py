"""Views of the operations page and its live parts, and of the page that recovers the store after a failover."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext, ngettext

from campaigns.engine import audit
from campaigns.engine.failover import holding, recovery
from campaigns.models import Store
from campaigns.models.campaigns import sponsor_ids_of
from campaigns.operations import answering
from campaigns.reporting.forecast import eta, queues
from campaigns.reporting.forecast.queues import VendorQueue
from campaigns.senders import entitlements
from mailhub.operations import charts, dashboard, findings, saved_looks, share_chart
from vendors import ownership
from vendors.history import Actor
from vendors.limits.values import Limit
from vendors.models import Vendor
from vendors.ownership import ALL_SPONSORS
from vendors.said import Said, gettext_noop, show


def clock_with_zone() -> str:
    """Return the time with its zone, as live pages show it: 17:03:02 UTC."""
    return f"{timezone.localtime():%H:%M:%S %Z}"


class ViewerMiddleware:
    """Limits what pages reveal about vendors to what their user may know (`vendors.ownership.shown_to`)."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with ownership.shown_to(request.user):
            return self._get_response(request)


class PollMiddleware:
    """Answers polls: 304 if unchanged, and always with the time, which is excluded from the comparison.

    Without a session it answers 401 with the URL of the login page, because htmx would embed the page itself.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if "HX-Request" not in request.headers:
            return self._get_response(request)
        operators = request.path.startswith(reverse("admin:index"))
        if admin.site.has_permission(request) if operators else request.user.is_authenticated:
            return _unless_known(request, self._get_response(request))
        login = reverse("admin:login" if operators else "login")
        headers = {"WWW-Authenticate": "Session", "X-Login": login, "Cache-Control": "no-store"}
        return HttpResponse("Your session has ended.", "text/plain", 401, headers=headers)


def _unless_known(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    if request.method != "GET" or answer.status_code not in (200, 286) or answer.streaming:
        return answer
    tag = f'"{hashlib.blake2b(answer.content, digest_size=12).hexdigest()}"'
    if request.headers.get("If-None-Match", "").removeprefix("W/") == tag:
        answer = HttpResponse(status=304)
    answer.headers["ETag"], answer.headers["X-As-Of"] = tag, clock_with_zone()
    return answer


MAY_RECOVER = ("campaigns.add_resolution", ALL_SPONSORS)  # it affects messages of all sponsors
DECIDED = 5  # recoveries on the page


def recover_on_page(request: HttpRequest) -> HttpResponse:
    """Show the numbers of a rolled-back recovery (GET); recover if they are still the same (POST)."""
    if request.method != "POST":
        return _ask_about_recovery(request)
    user: Any = request.user
    reason = request.POST.get("reason", "").strip()[:500]
    if not reason:
        messages.error(request, gettext("Nothing was done: say why; the reason is stored with the decision."))
        return _ask_about_recovery(request)
    by = Actor(user.get_username(), user.pk)
    if answer := request.POST.get("answer"):
        return _store_operator_answer(request, by, reason, answer)
    try:
        losses = recovery.recover_store(by, reason, shown=request.POST.get("shown", ""))
    except recovery.Changed as error:
        messages.error(request, show(str(error)))
        return _ask_about_recovery(request, reason)
    messages.success(request, _done_sentence(recovery.describe_losses(losses)))
    return redirect("operations-recover")


def _done_sentence(losses: Said) -> str:
    return show(Said(gettext_noop("Done. %(losses)s. Calls start again."), losses=losses))


def _store_operator_answer(request: HttpRequest, by: Actor, reason: str, answer: str) -> HttpResponse:
    """Store the operator's answer about this installation, while calls are held."""
    try:
        if answer == "copy":
            jobs = answering.stop_copy(by, reason)
            done = ngettext(
                "Done. %(jobs)s job is stopped, and calls start again.",
                "Done. %(jobs)s jobs are stopped, and calls start again.",
                jobs,
            ) % {"jobs": jobs}
        else:
            answering.go_on(by, reason)
            done = gettext("Done. Calls start again.")
    except holding.NotHeld:
        messages.error(request, gettext("Calls are not held any more: nothing was done."))
        return _ask_about_recovery(request, reason)
    messages.success(request, done)
    return redirect("operations-recover")


def _ask_about_recovery(request: HttpRequest, reason: str = "") -> HttpResponse:
    halt = recovery.current_halt()
    losses = recovery.preview_recovery() if halt and halt.taken_over else []
    context = {
        **admin.site.each_context(request),
        "title": gettext("Recover the store"),
        "halt": halt,
        "losses": losses,
        "waiting": holding.find_waiting() if halt and halt.held else None,
        "doubts": sum(loss.messages for loss in losses),
        "shown": recovery.version_of_takeover(losses),
        "reason": reason,
        "decided": _recent_decisions(),
    }
    return TemplateResponse(request, "admin/operations/recover.html", context)


def _recent_decisions() -> list[LogEntry]:
    model = Store._meta
    of_store = LogEntry.objects.filter(content_type__app_label=model.app_label, content_type__model=model.model_name)
    return list(of_store.select_related("user")[:DECIDED])


SPANS = {"60": gettext_noop("last hour"), "1440": gettext_noop("last day")}


def show_first_page(request: HttpRequest) -> HttpResponse:
    """Show the admin's first page; users who may not see jobs get Django's own."""
    user: Any = request.user
    if not user.has_perm("campaigns.view_job"):
        return admin.site.index(request)
    context = {
        **admin.site.each_context(request),
        "title": gettext("Operations"),
        "pulse": _dashboard_of_user(request),
        "audits": user.has_perm(ALL_SPONSORS),
        "app_list": admin.site.get_app_list(request),
        "spans": SPANS,
    }
    return TemplateResponse(request, "admin/operations/page.html", context)


def show_dashboard(request: HttpRequest) -> HttpResponse:
    return render(request, "admin/operations/dashboard.html", {"pulse": _dashboard_of_user(request)})


def _dashboard_of_user(request: HttpRequest) -> dashboard.Dashboard:
    known = entitlements.vendors_seen(request.user)
    return dashboard.read_dashboard(sponsor_ids_of(request.user), recent=True, known=known)


def show_halted(request: HttpRequest) -> HttpResponse:
    """Render the notice that nothing is called, with the reason; empty while calls are made. Pages poll it."""
    return render(request, "admin/operations/halted.html")


def show_throughput(request: HttpRequest) -> JsonResponse:
    minutes = request.GET.get("minutes", "60")
    series = charts.throughput_series(
        timezone.now(), int(minutes) if minutes in SPANS else 60, sponsor_ids_of(request.user)
    )
    return JsonResponse(series)


def show_workers(request: HttpRequest) -> HttpResponse:
    """Show the workers; sponsors' users see only the queues of their vendors, and no adapters."""
    workers, user = dashboard.ask_workers(), request.user
    if sponsor_ids_of(user) is not None:
        known = {vendor.queue for vendor in entitlements.vendors_seen(user).only("slug")}
        unread = tuple(name for name in workers.unread if name in known or not name.startswith("vendor."))
        workers = replace(workers, unread=unread, outdated=())
    return render(request, "admin/operations/workers.html", {"workers": workers})


def show_promises(request: HttpRequest) -> HttpResponse:
    """Show the last audit by beat, and findings about the installation; POST runs an audit now.

    The examples name jobs of any sponsor.
    """
    if request.method == "POST":
        audit.run_and_keep()
    at, checks = audit.read_last_audit() or (None, [])
    broken = [check for check in checks if not check.is_kept]
    context = {"at": at, "checks": checks, "broken": broken, "findings": findings.installation_findings()}
    return render(request, "admin/operations/audit.html", context)


def show_meter(request: HttpRequest, vendor_id: int) -> HttpResponse:
    """Render the live head of a vendor's page."""
    vendor = _governed_vendor(request, vendor_id, "limits", "credentials")
    return render(request, "admin/operations/vendor.html", {"row": dashboard.row_of_vendor(vendor)})


def show_sharing(request: HttpRequest, vendor_id: int) -> HttpResponse:
    """Render which sponsors share a vendor, and who was given what in the last hour."""
    vendor = get_object_or_404(Vendor.objects.prefetch_related("limits"), pk=vendor_id)
    user: Any = request.user
    context = {
        "chart": share_chart.chart_of_vendor(vendor), "vendor": vendor, "seconds": f"{settings.TURN_SECONDS:g}",
        "may_weigh": user.has_perm("campaigns.view_sponsorturn"),
    }  # fmt: skip
    return render(request, "admin/operations/shares.html", context)


def _governed_vendor(request: HttpRequest, vendor_id: int, *more: str) -> Vendor:
    """Return the vendor with these rows, if the user governs it. Raises Http404 for any other."""
    rows = ownership.limit_rows(Vendor.objects.prefetch_related(*more), request.user, "pk")
    return get_object_or_404(rows, pk=vendor_id)


def show_forecast(request: HttpRequest, vendor_id: int) -> HttpResponse:
    """Show the forecast with other limits before they are saved: a parameter limit=5/60 for each."""
    vendor = _governed_vendor(request, vendor_id, "limits")
    now, old = timezone.now(), charts.limits_of(vendor)
    try:
        new = tuple(_parse_limit(typed) for typed in request.GET.getlist("limit"))
    except ValueError:
        return render(request, "admin/operations/forecast.html", {"fault": True})
    queue = queues.queues_of_vendors([vendor.pk], now)[vendor.pk]
    before, after = (_forecast_end(queue, limits, now) for limits in (old, new))
    none = gettext("no limit")
    context = {"waiting": queue.count_in_queue, "before": before or none, "after": after or none}
    return render(request, "admin/operations/forecast.html", context)


def _forecast_end(queue: VendorQueue, limits: tuple[Limit, ...], now: datetime) -> str:
    """Return the forecast of the queue's end with these limits."""
    if queue.shut and not queue.is_paused:  # by a limit of 0, which is among the changed ones
        logins = {pk: replace(login, condition=queues.UNTRIED) for pk, login in queue.logins.items()}
        queue = replace(queue, shut="", logins=logins)
    end = eta.forecast_queue(replace(queue, limits=limits, taken={}), now)
    return dashboard.ends_text(end, queue.count_in_queue, now)


def _parse_limit(typed: str) -> Limit:
    units, _, seconds = typed.partition("/")
    return Limit(int(units), float(seconds))


def urls() -> list[URLPattern]:
    """Return the URLs that precede the admin's own, because the first page is ours."""
    jobs, vendors = "campaigns.view_job", "vendors.view_vendor"
    return [
        path("", admin.site.admin_view(show_first_page), name="operations"),
        path("operations/pulse/", _require_permission(jobs, show_dashboard), name="operations-pulse"),
        path("operations/throughput/", _require_permission(jobs, show_throughput), name="operations-throughput"),
        path("operations/workers/", _require_permission(jobs, show_workers), name="operations-workers"),
        path("operations/audit/", _require_permission(ALL_SPONSORS, show_promises), name="operations-audit"),
        path("looks/", admin.site.admin_view(saved_looks.save), name="look-save"),
        path("looks/<int:pk>/forget/", admin.site.admin_view(saved_looks.forget_look), name="look-forget"),
        path("operations/halt/", _require_permission(jobs, show_halted), name="operations-halt"),
        path("operations/recover/", _require_permission(MAY_RECOVER, recover_on_page), name="operations-recover"),
        path("operations/vendors/<int:vendor_id>/", _require_permission(vendors, show_meter), name="operations-vendor"),
        path(
            "operations/vendors/<int:vendor_id>/shares/",
            _require_permission((vendors, ALL_SPONSORS), show_sharing),
            name="operations-shares",
        ),
        path(
            "operations/vendors/<int:vendor_id>/forecast/",
            _require_permission(vendors, show_forecast),
            name="operations-forecast",
        ),
    ]


def _require_permission(permission: str | tuple[str, ...], view: Callable[..., HttpResponse]) -> Any:
    def view_if_permitted(request: HttpRequest, **arguments: Any) -> HttpResponse:
        user: Any = request.user
        if not user.has_perms([permission] if isinstance(permission, str) else permission):
            raise PermissionDenied
        return view(request, **arguments)

    return admin.site.admin_view(view_if_permitted)
