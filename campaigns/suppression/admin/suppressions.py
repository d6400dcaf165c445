"""The page about suppressions: look up an address, add one, lift, erase."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext

from campaigns.doors import labels
from campaigns.doors.admin_base import Scoped
from campaigns.lists.admin import SponsorFilter
from campaigns.lists.intake import AddressReader
from campaigns.models import Sponsor, Suppression, Topic
from campaigns.models.campaigns import sponsors_of
from campaigns.suppression import lists, suppressing
from campaigns.suppression.admin.suppression_import import import_page
from campaigns.suppression.lists import NewSuppression
from vendors.history import Actor
from vendors.listing import badge, choice_column
from vendors.ownership import ALL_SPONSORS
from vendors.said import Said, show

FOR_ALL = "campaigns.suppress_for_all"


if TYPE_CHECKING:  # where alone Django's forms have a parameter
    _SuppressionForm = forms.ModelForm[Suppression]
else:
    _SuppressionForm = forms.ModelForm


class SuppressionForm(_SuppressionForm):
    address = forms.CharField(max_length=2000, label=gettext_lazy("Address"))

    class Meta:
        model = Suppression
        fields = ["sponsor", "channel", "address", "reason", "topic", "source", "until"]

    def clean(self) -> dict[str, Any]:
        """Normalise the address for its channel."""
        cleaned = super().clean() or {}
        if cleaned.get("channel") and cleaned.get("address"):
            try:
                region = cleaned["sponsor"].phone_region if cleaned.get("sponsor") else ""
                cleaned["address"] = AddressReader(cleaned["channel"], region)(cleaned["address"])
            except ValueError as error:
                self.add_error("address", str(error))
        if cleaned.get("until") and cleaned["until"] <= timezone.now():
            self.add_error("until", Said("This time is past."))
        if (topic := cleaned.get("topic")) and cleaned.get("reason") != Suppression.Reason.UNSUBSCRIBED:
            self.add_error("topic", Said("A topic goes with the reason Unsubscribed only."))
        elif topic and topic.sponsor != cleaned.get("sponsor"):
            self.add_error("topic", Said("It is another sponsor's topic."))
        return cleaned


@admin.register(Suppression)
class SuppressionAdmin(Scoped):
    form = SuppressionForm
    telling = ("address",)
    list_display = [
        "id", "recipient", choice_column("channel"), "whose", "topic", choice_column("reason"), "origin",
        "since", "until", "holds",
    ]  # fmt: skip
    list_filter = ["reason", "channel", SponsorFilter]
    list_select_related = ["sponsor", "topic__sponsor"]
    list_per_page = 50
    ordering = ["-id"]
    sortable_by = ()
    search_fields = ["address"]
    search_help_text = gettext_lazy("A whole address; also one that was erased")
    actions = ["lift", "erase"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.import_file)
        return [path("import/", view, name="campaigns_suppression_import"), *super().get_urls()]

    def import_file(self, request: HttpRequest) -> HttpResponse:
        """Suppress the addresses of a file."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        mine = Sponsor.objects.of_sponsors(sponsors_of(request.user))
        context = self.admin_site.each_context(request)
        return import_page(request, context, mine, _may_for_all(request), _actor_of(request))

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Show all fields of a new suppression: the user has typed the address."""
        return super().get_exclude(request, obj) if obj else []

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Suppression], search_term: str
    ) -> tuple[QuerySet[Suppression], bool]:
        """Search by digest of the whole address, so that nobody can guess one letter by letter."""
        term = search_term.strip()
        if not term:
            return queryset, False
        regions = Sponsor.objects.of_sponsors(sponsors_of(request.user)).values_list("phone_region", flat=True)
        return suppressing.suppressions_of_text(queryset, term, regions.distinct()), False

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        mine = sponsors_of(request.user)
        if db_field.name == "topic":
            kwargs["queryset"] = Topic.objects.of_sponsors(mine).select_related("sponsor")
            return super().formfield_for_foreignkey(db_field, request, **kwargs)
        kwargs["queryset"] = Sponsor.objects.of_sponsors(mine)
        field: Any = super().formfield_for_foreignkey(db_field, request, **kwargs)
        field.required = not _may_for_all(request)
        return field

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if obj.sponsor_id is None and not _may_for_all(request):
            raise PermissionDenied
        new = NewSuppression(obj.address, obj.reason, obj.source, None, obj.until, obj.topic_id)
        suppressing.add_and_record(obj.sponsor_id, obj.channel, [new], _actor_of(request))
        found = lists.ids_of_addresses(obj.channel, [obj.address], obj.sponsor_id)
        obj.pk = Suppression.objects.get(pk__in=found, reason=obj.reason, topic=obj.topic_id).pk

    @admin.action(description=gettext_lazy("Lift: they may be written to again"), permissions=["change"])
    def lift(self, request: HttpRequest, rows: QuerySet[Suppression]) -> None:
        number = suppressing.lift_and_record(_changeable_ids(request, rows), _actor_of(request))
        text = gettext("%(number)s lifted. What they have kept back is sent if you retry its job.")
        text %= {"number": labels.format_number(number)}
        self.message_user(request, text, messages.SUCCESS)

    @admin.action(description=gettext_lazy("Erase the addresses: they stay suppressed"), permissions=["change"])
    def erase(self, request: HttpRequest, rows: QuerySet[Suppression]) -> None:
        number = suppressing.erase_and_record(_changeable_ids(request, rows), _actor_of(request))
        text = ngettext("%(number)s address erased.", "%(number)s addresses erased.", number)
        self.message_user(request, text % {"number": labels.format_number(number)}, messages.SUCCESS)

    @admin.display(description=gettext_lazy("address"))
    def recipient(self, row: Suppression) -> str:
        return row.address or gettext("erased")

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        seen = labels.sees_recipients(request.user)

        @admin.display(description=gettext_lazy("address"))
        def recipient(row: Suppression) -> str:
            return labels.format_recipient(row.address, seen) if row.address else gettext("erased")

        return [recipient if name == "recipient" else name for name in self.list_display]

    @admin.display(description=gettext_lazy("sponsor"))
    def whose(self, row: Suppression) -> str:
        return str(row.sponsor) if row.sponsor else gettext("all sponsors")

    @admin.display(description=gettext_lazy("source"))
    def origin(self, row: Suppression) -> str:
        return show(row.origin)

    @admin.display(description=gettext_lazy("state"))
    def holds(self, row: Suppression) -> SafeString:
        return badge("holds", "warn") if row.until is None or row.until > timezone.now() else badge("past")


def _may_for_all(request: HttpRequest) -> bool:
    user: Any = request.user
    return bool(user.has_perms([ALL_SPONSORS, FOR_ALL]))


def _changeable_ids(request: HttpRequest, rows: QuerySet[Suppression]) -> list[int]:
    """Return the chosen ones' ids; those for all sponsors only with the permission."""
    mine = rows if _may_for_all(request) else rows.filter(~Q(sponsor=None))
    return list(mine.values_list("pk", flat=True))


def _actor_of(request: HttpRequest) -> Actor:
    user: Any = request.user
    return Actor(user.get_username(), user.pk)
