"""The pages about messages, campaign by campaign. Nothing counts or searches all of the millions of rows."""

from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import path
from django.utils import formats, timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext as _

from campaigns.doors import labels
from campaigns.doors.admin_base import Scoped
from campaigns.engine.routes import whose
from campaigns.models import Claim, Message, MessageEvent, ReportKind, Resolution
from campaigns.operations.admin import doubts, printed
from campaigns.operations.admin.message_list import (
    CampaignFilter,
    CauseFilter,
    MessageList,
    OfJobFilter,
    ReasonFilter,
    ShapeFilter,
)
from campaigns.reporting import message_rows, reasons
from vendors.causes.wording import word_cause
from vendors.listing import CappedPaginator, badge, choice_column, clamp_name
from vendors.own_reasons import read_reason
from vendors.said import show

FIELDS = (
    *(
        "state",
        "why",
        "whose_fault",
        "campaign",
        "recipient",
        "of_list",
        "called",
        "answered",
        "delivered",
        "bounced",
        "note",
    ),
    *("lost", "next_look_up", "put_off", "code", "seen", "vendors_id", "reference", "again", "cost", "as_printed"),
)
# the message's columns behind these fields
SHOWS = {"of_list": "params", "seen": "error_sub_type", "note": "report_note"}


def _short_time(moment: datetime | None) -> str:
    if moment is None:
        return "-"
    local, today = timezone.localtime(moment), timezone.localdate()
    return formats.date_format(local, "j M H:i:s" if local.year == today.year else "j M Y H:i")


def _label_word(row: Any) -> str:
    """Return the message's label, in English."""
    if not hasattr(row, "word"):
        message_rows.add_labels([row])
    word: str = row.word
    return word


@admin.register(Message)
class MessageAdmin(Scoped):
    telling = ("recipient", "params", "error_sub_type", "report_note")
    list_display = [
        *("id", "of", "recipient", "badge", "called", "answered", "delivered", "vendors_id", "why"),
    ]
    list_filter = [CampaignFilter, OfJobFilter, ReasonFilter, ShapeFilter, CauseFilter]
    list_select_related = ["campaign"]
    list_per_page = 100
    ordering = ["-id"]
    sortable_by = ()
    search_fields = ["recipient"]
    search_help_text = gettext_lazy("A message's number; within one campaign also a part of the recipient's address")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields that have a value."""
        hidden = self.get_exclude(request, obj)
        allowed = [name for name in FIELDS if SHOWS.get(name, name) not in hidden]
        return allowed if obj is None else [name for name in allowed if self._has_value(obj, name)]

    def _has_value(self, row: Message, name: str) -> bool:
        shown = getattr(self, name, None)
        return (shown(row) if shown else getattr(row, name)) not in (None, "", "-")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return list(self.get_fields(request, obj))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        rows: QuerySet[Message] = super().get_queryset(request)
        return rows.defer("campaign__subject", "campaign__body")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return MessageList

    def get_paginator(self, request: Any, *args: Any, **options: Any) -> CappedPaginator:
        return CappedPaginator(*args, **options, known=getattr(request, "known", None))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        if not search_term:
            return queryset, False
        if search_term.isdecimal() and len(search_term) < 19:
            return queryset.filter(pk=int(search_term)), False
        within = request.GET.get("campaign") or request.GET.get("job")
        if within and labels.sees_recipients(request.user):
            return queryset.filter(recipient__icontains=search_term), False
        self.message_user(request, _("Choose a campaign first: recipients are found within one."), messages.WARNING)
        return queryset.none(), False

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(lambda request: doubts.doubts_page(request, self.admin_site))
        paper = self.admin_site.admin_view(
            lambda request, pk: printed.pdf_page(request, self.get_object(request, str(pk)))
        )
        own = [path("attention/", view, name="attention"), path("<int:pk>/printed/", paper, name=printed.LINK)]
        return [*own, *super().get_urls()]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Show recipients masked or whole, as permitted to this user."""
        seen = labels.sees_recipients(request.user)

        @admin.display(description=gettext_lazy("recipient"))
        def to(row: Message) -> str:
            return labels.format_recipient(row.recipient, seen)

        return [to if name == "recipient" else name for name in self.list_display]

    @admin.display(description=gettext_lazy("as printed"))
    def as_printed(self, row: Message) -> str:
        return printed.pdf_link(row)

    @admin.display(description=gettext_lazy("state"))
    def state(self, row: Any) -> str:
        return _(_label_word(row))

    @admin.display(description=gettext_lazy("why"))
    def why(self, row: Message) -> str:
        channel = getattr(row, "channel", "") or row.campaign.credential.vendor.channel
        return reasons.reason_of_message(row, channel) or "-"

    @admin.display(description=gettext_lazy("cause"))
    def whose_fault(self, row: Message) -> str:
        return word_cause(row.cause) or "-"

    @admin.display(description=gettext_lazy("state"))
    def badge(self, row: Any) -> SafeString:
        return badge(_label_word(row), labels.LOOKS.get(row.word, "idle"))

    @admin.display(description=gettext_lazy("campaign"))
    def of(self, row: Message) -> SafeString:
        return clamp_name(row.campaign)

    @admin.display(description=gettext_lazy("called"))
    def called(self, row: Message) -> str:
        return _short_time(row.sent_at)

    @admin.display(description=gettext_lazy("answered"))
    def answered(self, row: Message) -> str:
        """Return when the vendor answered the call, accepting or refusing the message."""
        return _short_time(row.delivered_at)

    @admin.display(description=gettext_lazy("delivered"))
    def delivered(self, row: Message) -> str:
        """Return when the recipient got the message, by the delivery report."""
        return _short_time(row.report_at if row.report == ReportKind.DELIVERED else None)

    @admin.display(description=gettext_lazy("bounced"))
    def bounced(self, row: Message) -> str:
        return _short_time(row.report_at if row.report == ReportKind.BOUNCED else None)

    @admin.display(description=gettext_lazy("answer lost"))
    def lost(self, row: Message) -> str:
        return _short_time(row.in_doubt_at)

    @admin.display(description=gettext_lazy("next look-up"))
    def next_look_up(self, row: Message) -> str:
        if row.in_doubt_at and whose.called_elsewhere([row.pk]):
            return _("It was called before the vendor's settings or its key changed.")
        return _short_time(row.settle_at if row.in_doubt_at else None)

    @admin.display(description=gettext_lazy("put off until"))
    def put_off(self, row: Message) -> str:
        return _short_time(row.call_after)

    @admin.display(description=gettext_lazy("fields of the list"))
    def of_list(self, row: Message) -> str:
        return "\n".join(f"{name}: {value}" for name, value in row.params.items()) or "-"

    @admin.display(description=gettext_lazy("vendor's code"))
    def code(self, row: Message) -> str:
        return row.error_code or "-"

    @admin.display(description=gettext_lazy("reference"))
    def reference(self, row: Message) -> str:
        return row.reference

    @admin.display(description=gettext_lazy("seen of the call"))
    def seen(self, row: Message) -> str:
        return show(read_reason(row.error_sub_type or "-"))

    @admin.display(description=gettext_lazy("note of the report"))
    def note(self, row: Message) -> str:
        return row.report_note or "-"

    @admin.display(description=gettext_lazy("sent again"))
    def again(self, row: Message) -> str:
        if row.resend_no < 2:
            return _("once") if row.resend_no else "-"
        return _("%(number)s times") % {"number": row.resend_no}

    @admin.display(description=gettext_lazy("vendor's id"))
    def vendors_id(self, row: Message) -> str:
        return row.message_id or "-"

    @admin.display(description=gettext_lazy("cost"))
    def cost(self, row: Message) -> str:
        return labels.format_units(row.units or 1)


@admin.register(Claim)
class ClaimAdmin(Scoped):
    """Claims whose calls may have started and are not all answered. The list is empty when nothing is being sent."""

    list_display = ["id", "job_id", "fence", "at", "messages_in_it"]
    ordering = ["id"]
    sortable_by = ()

    @admin.display(description=gettext_lazy("messages"))
    def messages_in_it(self, row: Claim) -> int:
        return len(row.messages)


@admin.register(MessageEvent)
class MessageEventAdmin(Scoped):
    """Bounces and complaints, newest first."""

    telling = ("note",)
    list_display = ["id", "message_id", "campaign_id", choice_column("kind"), "code", "origin", "at"]
    list_filter = ["kind"]
    ordering = ["-id"]
    sortable_by = ()
    readonly_fields = ["origin"]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["origin" if name == "source" else name for name in super().get_fields(request, obj) if name != "origin"]

    @admin.display(description=gettext_lazy("source"))
    def origin(self, row: MessageEvent) -> str:
        return gettext(row.source)


@admin.register(Resolution)
class ResolutionAdmin(Scoped):
    telling = ("evidence",)
    list_display = ["message_id", choice_column("decision"), "decided_by", "reason", "evidence", "created_at"]
    list_filter = ["decision"]
