"""The pages about messages, campaign by campaign; with millions of rows, nothing counts or searches all of them."""

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import path

from campaigns import labels
from campaigns.admin import doubts, printed
from campaigns.admin.base import Scoped
from campaigns.models import Campaign, Claim, Message, MessageEvent, Resolution
from campaigns.models.campaigns import sponsors_of
from campaigns.reports import message_rows
from vendors.listing import CappedPaginator


class CampaignFilter(admin.ListFilter):
    """?campaign=7: one campaign's block of ids. It offers no choices: the campaigns' page links here."""

    title = "campaign"
    template = "admin/campaigns/one_campaign.html"
    names = ("campaign",)

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        value = params.pop("campaign", [""])
        self.typed = str(value[-1] if isinstance(value, list) else value)
        self.used_parameters["campaign"] = self.typed
        self.campaign = chosen(self.typed, request.user)

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        yield {
            "campaign": self.campaign,
            "all": changelist.get_query_string({}, ["campaign"]),
        }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        if campaign := self.campaign:
            return queryset.filter(id__gte=campaign.first_message, id__lt=campaign.first_message + campaign.size)
        if self.typed:
            raise IncorrectLookupParameters(f"there is no campaign {self.typed}")
        return queryset


def chosen(typed: str, viewer: Any) -> Campaign | None:
    mine = Campaign.objects.of_sponsors(sponsors_of(viewer))
    return mine.filter(pk=typed).first() if typed.isdecimal() and len(typed) < 19 else None


class ShapeFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(word, word) for word in labels.SHAPES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        shape = labels.SHAPES.get(self.value() or "")
        return queryset.filter(shape) if shape else queryset


class MessageList(ChangeList):
    """A page of messages with their labels."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        message_rows.with_labels(rows)
        self.result_list = rows


@admin.register(Message)
class MessageAdmin(Scoped):
    telling = ("recipient", "params", "error_sub_type", "report_note")
    list_display = ["id", "campaign", "recipient", "state", "sent_at", "delivered_at", "message_id", "error_code"]
    list_filter = [CampaignFilter, ShapeFilter]
    list_select_related = ["campaign"]
    list_per_page = 100
    paginator = CappedPaginator
    ordering = ["-id"]
    sortable_by = ()
    search_fields = ["recipient"]
    search_help_text = "A message's number; within one campaign also a part of the recipient's address"
    readonly_fields = ["state", "reference", "as_printed"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        return super().get_queryset(request).defer("campaign__subject", "campaign__body")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return MessageList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Message], search_term: str
    ) -> tuple[QuerySet[Message], bool]:
        if not search_term:
            return queryset, False
        if search_term.isdecimal() and len(search_term) < 19:
            return queryset.filter(pk=int(search_term)), False
        if request.GET.get("campaign") and labels.sees_recipients(request.user):
            return queryset.filter(recipient__icontains=search_term), False
        self.message_user(request, "Choose a campaign first: recipients are found within one.", messages.WARNING)
        return queryset.none(), False

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(lambda request: doubts.page(request, self.admin_site))
        paper = self.admin_site.admin_view(lambda request, pk: printed.page(request, self.get_object(request, str(pk))))
        own = [path("attention/", view, name="attention"), path("<int:pk>/printed/", paper, name=printed.LINK)]
        return [*own, *super().get_urls()]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """Recipients are masked or whole, by what this user may see."""
        seen = labels.sees_recipients(request.user)

        @admin.display(description="recipient")
        def to(row: Message) -> str:
            return labels.recipient(row.recipient, seen)

        return [to if name == "recipient" else name for name in self.list_display]

    @admin.display(description="as printed")
    def as_printed(self, row: Message) -> str:
        return printed.link(row)

    def state(self, row: Any) -> str:
        if not hasattr(row, "word"):
            message_rows.with_labels([row])
        return row.word


@admin.register(Claim)
class ClaimAdmin(Scoped):
    """Messages whose calls may have started and are not all answered; the list is empty when nothing is being sent."""

    list_display = ["id", "job_id", "fence", "at", "messages_in_it"]
    paginator = CappedPaginator
    ordering = ["id"]
    sortable_by = ()

    @admin.display(description="messages")
    def messages_in_it(self, row: Claim) -> int:
        return len(row.messages)


@admin.register(MessageEvent)
class MessageEventAdmin(Scoped):
    """Bounces and complaints, the newest first."""

    telling = ("note",)
    list_display = ["id", "message_id", "campaign_id", "kind", "code", "source", "at"]
    list_filter = ["kind"]
    paginator = CappedPaginator
    ordering = ["-id"]
    sortable_by = ()


@admin.register(Resolution)
class ResolutionAdmin(Scoped):
    telling = ("evidence",)
    list_display = ["message_id", "decision", "decided_by", "reason", "evidence", "created_at"]
    list_filter = ["decision"]
    paginator = CappedPaginator
