"""The pages about sponsors, campaigns and their approvals."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from campaigns.doors import labels
from campaigns.doors.admin_base import CreatedFilter, OfSeenVendors, Scoped
from campaigns.engine import progress
from campaigns.lists import estimates
from campaigns.models import Approval, Campaign, Job, Sponsor
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from campaigns.operations import pausing
from campaigns.reporting import campaign_names
from campaigns.reporting.forecast import campaign_states
from vendors.history import Actor
from vendors.listing import OwnLookups, badge, choice_column, clamp_name
from vendors.ownership import ALL_SPONSORS

MOST_CHOICES = 500
MOST_FOUND = 1_000  # campaigns found by name
LIMITS = ("bounce_limit", "complaint_limit")
OF_INSTALLATION = ("may_be_transactional", "approval_above", "complaint_warning", "complaint_limit")


@admin.register(Sponsor)
class SponsorAdmin(OwnLookups):
    search_fields = ["name"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Keep sponsors' own users from removing unsubscribe links and from changing its rules."""
        user: Any = request.user
        return [] if user.has_perm(ALL_SPONSORS) else list(OF_INSTALLATION)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Sponsor]:
        return Sponsor.objects.of_sponsors(sponsors_of(request.user))


class SponsorFilter(admin.SimpleListFilter):
    """Filters by sponsor, among those the user may see."""

    title = "sponsor"
    parameter_name = "sponsor"
    names_rows = True

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        sponsors = Sponsor.objects.of_sponsors(sponsors_of(request.user))[:MOST_CHOICES]
        return [(str(sponsor.pk), sponsor.name) for sponsor in sponsors]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Campaign]) -> QuerySet[Campaign]:
        chosen = self.value() or ""
        return queryset.filter(sponsor_id=int(chosen[:18])) if chosen.isdecimal() else queryset


class CampaignList(ChangeList):
    """A page of campaigns with the sums of their jobs."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        states = campaign_states.states_of_campaigns([campaign.pk for campaign in rows])
        for campaign in rows:
            campaign.state = states[campaign.pk]
        self.result_list = rows


@admin.register(Campaign)
class CampaignAdmin(Scoped):
    list_display = ["id", "named", "whose", "badge", "recipients", "by", "created_at", "look"]
    list_filter = [SponsorFilter, ("credential__vendor", OfSeenVendors), CreatedFilter]
    list_select_related = ["sponsor", "credential__vendor", "identity__sponsor", "topic__sponsor"]
    list_per_page = 50
    search_fields = ["name"]
    search_help_text = gettext_lazy("A campaign's number, or the beginning of its name")
    sortable_by = ()
    ordering = ["-id"]
    readonly_fields = ["badge", "look", "cost", "files_carried"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow changes of a campaign's LIMITS, even while it is being sent."""
        return admin.ModelAdmin.has_change_permission(self, request, obj)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        stored = [field.name for field in Campaign._meta.fields if field.editable and field.name not in LIMITS]
        return [*(name for name in stored if name != "id"), *self.readonly_fields]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the progress first, then the non-empty columns, and next to the button those that may be changed."""
        stored = [name for name in self.get_readonly_fields(request, obj) if name not in self.readonly_fields]
        said = [name for name in stored if obj is None or obj.serializable_value(name) not in (None, "", {}, [])]
        return [*self.readonly_fields, *said, *LIMITS]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        campaign = kwargs.get("obj")
        named = {"title": str(campaign), "subtitle": None} if campaign else {}
        return OwnLookups.render_change_form(self, request, context | named, *args, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        field: Any = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name in LIMITS:
            field.validators = [*field.validators, MinValueValidator(0), MaxValueValidator(100)]
        return field

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        by = Actor(request.user.get_username(), request.user.pk)
        jobs = Job.objects.filter(campaign=obj, parent=None).values_list("pk", flat=True)
        pausing.set_limits(jobs[:1], {name: form.cleaned_data[name] for name in form.changed_data}, by)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Do nothing: `set_limits` has recorded the change."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Campaign]:
        rows: QuerySet[Campaign] = super().get_queryset(request)
        return rows.defer("credential__secret", "identity__secret")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CampaignList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Campaign], search_term: str
    ) -> tuple[QuerySet[Campaign], bool]:
        """Search only by what an index covers: number, or beginning of the name."""
        term = search_term.strip()
        if term.isdecimal():
            return queryset.filter(pk=int(term[:18])), False
        if not term:
            return queryset, False
        named = campaign_names.newest_campaigns(term, sponsor_ids_of(request.user), MOST_FOUND)
        if named.common or len(named.ids) >= MOST_FOUND:
            self.message_user(request, _(campaign_names.COMMON), messages.WARNING)
        return queryset.filter(pk__in=named.ids), False

    @admin.display(description=gettext_lazy("name"))
    def named(self, campaign: Campaign) -> SafeString:
        return clamp_name(campaign.name)

    @admin.display(description=gettext_lazy("sponsor"))
    def whose(self, campaign: Campaign) -> SafeString:
        return clamp_name(campaign.sponsor)

    @admin.display(description=gettext_lazy("by"))
    def by(self, campaign: Campaign) -> str:
        return str(campaign.credential)

    @admin.display(description=gettext_lazy("recipients"))
    def recipients(self, campaign: Campaign) -> str:
        return labels.format_number(campaign.size)

    @admin.display(description=gettext_lazy("state"))
    def badge(self, campaign: Any) -> SafeString:
        if not hasattr(campaign, "state"):  # on the campaign's own page
            campaign.state = campaign_states.states_of_campaigns([campaign.pk])[campaign.pk]
        word = campaign.state.label
        shown = badge(word, labels.LOOKS.get(word, "idle"))
        reported = labels.format_reported(campaign.state.sums).removeprefix(", ")
        return format_html('{} <small class="muted">{}</small>', shown, reported) if reported else shown

    @admin.display(description=gettext_lazy("cost"))
    def cost(self, campaign: Campaign) -> str:
        """Return the cost so far; before the first call, the estimate."""
        sums = progress.progress_of_campaigns([campaign.pk])[campaign.pk]
        if sums.units or not sums.open_messages:
            shown = labels.format_units(sums.charged)
            return _("%(units)s so far") % {"units": shown} if sums.open_messages else shown
        return estimates.describe_stored_campaign(campaign)

    @admin.display(description=gettext_lazy("files"))
    def files_carried(self, campaign: Campaign) -> str:
        """Return the files of each letter with their sizes, and the number of files for single recipients."""
        if not campaign.has_files:
            return _("none")
        to_all = campaign.files.filter(to_all=True).order_by("id").values_list("name", "file__size")
        carried = [f"{name} ({filesizeformat(size)})" for name, size in to_all]
        own = campaign.files.filter(to_all=False).count()
        if own:
            facts = {"number": labels.format_number(own), "fields": ", ".join(campaign.file_fields or [])}
            carried.append(_("%(number)s of single recipients, by %(fields)s") % facts)
        return ", ".join(carried)

    @admin.display(description=gettext_lazy("look at"))
    def look(self, campaign: Campaign) -> SafeString:
        jobs = reverse("admin:campaigns_job_changelist")
        messages = reverse("admin:campaigns_message_changelist")
        return format_html(
            '<span><a href="{}?campaign={}">{}</a> · <a href="{}?campaign={}">{}</a></span>',
            *(jobs, campaign.pk, _("jobs"), messages, campaign.pk, _("messages")),
        )


@admin.register(Approval)
class ApprovalAdmin(Scoped):
    """Shows who asked, who decided, and what exactly was approved. Decisions are made elsewhere."""

    list_display = [
        "campaign", "recipients", "asked_by", "asked_at", choice_column("verdict"), "decided_by", "decided_at",
        "remark",
    ]  # fmt: skip
    list_filter = ["verdict"]
    list_select_related = ["campaign"]
    sortable_by = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.defer("campaign__body", "campaign__text")
