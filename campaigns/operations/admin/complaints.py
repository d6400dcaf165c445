"""The page about pauses after complaints: who is paused at which provider, with the figures, and the resume."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from campaigns.doors import labels
from campaigns.doors.admin_base import Scoped
from campaigns.lists.admin import SponsorFilter
from campaigns.models import ComplaintPause
from campaigns.operations import pausing
from vendors.history import Actor
from vendors.listing import badge
from vendors.said import show


class LastsFilter(admin.SimpleListFilter):
    """Filters by whether the pause lasts."""

    title = "state"
    parameter_name = "lasts"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", gettext("Paused")), ("no", gettext("Resumed"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(resumed_at__isnull=self.value() == "yes") if self.value() in ("yes", "no") else queryset


@admin.register(ComplaintPause)
class ComplaintPauseAdmin(Scoped):
    list_display = ["id", "sponsor", "provider", "state", "why", "paused_at", "resumed_at", "resumed_by"]
    fields = ("sponsor", "provider", "state", "why", "paused_at", "resumed_at", "resumed_by")
    readonly_fields = fields
    list_filter = [LastsFilter, SponsorFilter]
    list_select_related = ["sponsor"]
    list_per_page = 50
    ordering = ["-id"]
    sortable_by = ()
    actions = ["resume"]

    @admin.display(description=gettext_lazy("provider"))
    def provider(self, row: ComplaintPause) -> str:
        return show(row.provider)

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: ComplaintPause) -> SafeString:
        return badge("Resumed", "idle") if row.resumed_at else badge("Paused", "warn")

    @admin.display(description=gettext_lazy("why"))
    def why(self, row: ComplaintPause) -> str:
        return show(row.figures)

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, rows: QuerySet[ComplaintPause]) -> TemplateResponse | None:
        """Ask first, with the figures; once confirmed, resume those shown. A second press changes nothing."""
        meant = list(rows.filter(resumed_at=None).select_related("sponsor"))
        if "confirmed" in request.POST or not meant:
            by = Actor(request.user.get_username(), request.user.pk)
            reason = request.POST.get("reason", "")
            number = sum(pausing.resume_receiver(row.pk, by, reason) is not None for row in meant)
            self.message_user(request, gettext("%(number)s resumed.") % {"number": labels.format_number(number)})
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Resume after complaints"),
            "pauses": meant,
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/campaigns/complaintpause/resume.html", context)
