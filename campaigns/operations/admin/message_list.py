"""The operators' list of messages: of a campaign or a job, by state and reason."""

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from campaigns.doors import labels
from campaigns.models import Campaign, Job, Message
from campaigns.models.campaigns import sponsors_of
from campaigns.reporting import message_rows, reasons
from vendors.causes.wording import list_causes


class CampaignFilter(admin.ListFilter):
    """?campaign=7: one campaign's block of ids. Offers no choices, because the campaigns' page links here."""

    title = "campaign"
    template = "admin/campaigns/one_campaign.html"
    names = ("campaign",)

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        value = params.pop(self.title, [""])
        self.typed = str(value[-1] if isinstance(value, list) else value)
        self.used_parameters[self.title] = self.typed
        self.block: Any = self.find_block(request.user)

    def find_block(self, viewer: Any) -> Any:
        """Return an object with first_message and size, or None if the user may not see one."""
        return chosen_campaign(self.typed, viewer)

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        yield {"of": self.block, "all": changelist.get_query_string({}, [self.title])}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        if block := self.block:
            return queryset.filter(id__gte=block.first_message, id__lt=block.first_message + block.size)
        if self.typed:
            raise IncorrectLookupParameters(f"there is no {self.title} {self.typed}")
        return queryset


def chosen_campaign(typed: str, viewer: Any) -> Campaign | None:
    mine = Campaign.objects.of_sponsors(sponsors_of(viewer))
    return mine.filter(pk=typed).first() if typed.isdecimal() and len(typed) < 19 else None


class OfJobFilter(CampaignFilter):
    """?job=31: the messages of one job; its page links here."""

    title = "job"
    names = ("job",)

    def find_block(self, viewer: Any) -> Any:
        if not self.typed.isdecimal() or len(self.typed) > 18:
            return None
        return Job.objects.of_sponsors(sponsors_of(viewer)).filter(pk=self.typed).first()


class ReasonFilter(admin.ListFilter):
    """?reason=unknown: a job's or a campaign's messages that failed for one reason; their pages link here."""

    title = "reason"
    template = "admin/campaigns/one_campaign.html"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        value = params.pop(self.title, [""])
        self.key = str(value[-1] if isinstance(value, list) else value)
        self.used_parameters[self.title] = self.key
        self.within = request.GET.get("job") or request.GET.get("campaign")

    names = ("reason",)

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:
        yield {"of": self.key, "all": changelist.get_query_string({}, [self.title])}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        if not self.key:
            return queryset
        if not self.within:
            raise IncorrectLookupParameters("a reason is looked for within a job or a campaign")
        return reasons.failed_for_reason(queryset, self.key)


class ShapeFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(word, word) for word in labels.SHAPES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        shape = labels.SHAPES.get(self.value() or "")
        return queryset.filter(shape) if shape else queryset


class CauseFilter(admin.SimpleListFilter):
    """The messages of a job or a campaign that failed by one cause. Beyond one, all messages would be read."""

    title = "cause"
    parameter_name = "cause"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        self.within = request.GET.get("job") or request.GET.get("campaign")
        return list_causes() if self.within else ()

    def has_output(self) -> bool:
        """Return True also for a cause that cannot be looked for, so that the page does not show everything."""
        return super().has_output() or bool(self.value())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        cause = self.value()
        if not cause:
            return queryset
        if not self.within:
            raise IncorrectLookupParameters("a cause is looked for within a job or a campaign")
        return queryset.filter(cause=cause)


class MessageList(ChangeList):
    """A page of messages with their labels.

    known: the number of a job's or campaign's messages in a state, if its jobs count that state. Then only the parts
    with messages of this page are read. None: not known.
    """

    known: int | None = None

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Message]:
        rows = super().get_queryset(request, exclude_parameters)
        blocks = [one.block for one in self.filter_specs if isinstance(one, CampaignFilter) and one.block]
        if not blocks or self.query or request.GET.get("reason") or request.GET.get("cause"):
            return rows
        campaign = blocks[0].pk if isinstance(blocks[0], Campaign) else blocks[0].campaign_id
        first = max(one.first_message for one in blocks)
        end = min(one.first_message + one.size for one in blocks)
        found = message_rows.find_stretches(campaign, first, end, request.GET.get("state", ""))
        if found is None:
            return rows
        self.known = sum(one.messages for one in found)
        last, within = self.known if self.show_all else self.page_num * self.list_per_page, Q(pk__in=[])
        for one in reversed(found):  # newest first, like the list
            if last <= 0:
                break
            within |= Q(id__gte=one.first, id__lt=one.end)
            last -= one.messages
        return rows.filter(within)

    def get_results(self, request: Any) -> None:
        request.known = self.known
        super().get_results(request)
        rows = list(self.result_list)
        message_rows.add_labels(rows)
        of = Campaign.objects.filter(pk__in={row.campaign_id for row in rows})
        channels = dict(of.values_list("pk", "credential__vendor__channel"))
        for row in rows:
            row.channel = channels[row.campaign_id]
        self.result_list = rows
