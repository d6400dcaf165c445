"""The page beside `manage.py recover_store`: what the rows may lack, in numbers; then a person's word."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from campaigns.failover import recovery
from campaigns.models import Store, scope
from vendors.history import Person

MAY = ("campaigns.add_resolution", scope.ALL)  # messages of all sponsors go into doubt
DECIDED = 5  # recoveries that are shown


def page(request: HttpRequest) -> HttpResponse:
    """GET: the numbers, of a recovery that is undone. POST: the deed, on the numbers that were shown."""
    if request.method != "POST":
        return _ask(request)
    user: Any = request.user
    reason = request.POST.get("reason", "").strip()[:500]
    if not reason:
        messages.error(request, "Nothing was done: say why, it is kept with the decision.")
        return _ask(request)
    by = Person(user.get_username(), user.pk)
    try:
        losses = recovery.recover(by, reason, shown=request.POST.get("shown", ""))
    except recovery.Changed as error:
        messages.error(request, str(error))
        return _ask(request, reason)
    messages.success(request, f"Done. {recovery.describe(losses)}. Calls start again.")
    return redirect("operations-recover")


def _ask(request: HttpRequest, reason: str = "") -> HttpResponse:
    halt = recovery.halt()
    losses = recovery.preview() if halt and halt.taken_over else []
    context = {
        **admin.site.each_context(request),
        "title": "Recover the store",
        "halt": halt,
        "losses": losses,
        "doubts": sum(loss.messages for loss in losses),
        "shown": recovery.version(losses),
        "reason": reason,
        "decided": _decided(),
    }
    return TemplateResponse(request, "admin/operations/recover.html", context)


def _decided() -> list[LogEntry]:
    model = Store._meta
    of_store = LogEntry.objects.filter(content_type__app_label=model.app_label, content_type__model=model.model_name)
    return list(of_store.select_related("user")[:DECIDED])
