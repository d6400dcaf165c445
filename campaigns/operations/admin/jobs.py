"""The pages about jobs: the look-ups of document 000, each job's progress, and decisions."""

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import path
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy, gettext_noop

from campaigns.doors import labels
from campaigns.doors.admin_base import Scoped
from campaigns.doors.filters import DATES
from campaigns.engine import progress
from campaigns.models import DispatchRun, Job, Sponsor
from campaigns.models.campaigns import sponsor_ids_of, sponsors_of
from campaigns.operations import verbs
from campaigns.operations.admin import job_groups, job_page
from campaigns.operations.admin.actions import NAMES as NAMES_OF_VERBS
from campaigns.operations.admin.actions import Decisions
from campaigns.operations.admin.job_filter import BY, NAMES, SPANS, JobFilter, Pages, status_choices
from campaigns.operations.admin.job_groups import JobGroup
from campaigns.reporting import campaign_names
from campaigns.reporting.campaign_names import CampaignsNamed
from campaigns.reporting.forecast import eta
from campaigns.senders import entitlements
from vendors.admin import OfOwners
from vendors.listing import OfOwnVendors, ReadOnly, flag_column
from vendors.models import Vendor

MOST_CHOICES = 500  # sponsors in their select
MOST_CAMPAIGNS = 100  # newest campaigns whose names begin with the search text
MOST_PARTS = 500  # children under one parent
OF = ["campaign", "vendor", "credential"]  # rows shown with a job


class JobList(ChangeList):
    """A page of jobs with their progress and forecasts, in a fixed number of statements."""

    look: JobFilter
    choices: Any  # a Choices, evaluated for whole pages only
    common: bool  # whether older campaigns of that name may be missing
    pickable: bool  # whether the viewer can act on selected rows
    groups: list[JobGroup]  # the rows by what holds them
    states, spans = status_choices(), [*SPANS.items(), ("any", gettext_noop("Any"))]
    channels, dates = Vendor.Channel.choices, list(BY.items())

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Leave out our own filter bar's parameters, which are not lookups of Django's."""
        return {name: value for name, value in super().get_filters_params(params).items() if name not in NAMES}

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> "QuerySet[Job]":
        self.look, self.choices = look_of(request), SimpleLazyObject(lambda: choices_of_user(request))
        found = super().get_queryset(request, exclude_parameters)
        return eta.select_related_rows(found if self.look.q.isdecimal() else self.look.jobs(found), "vendor__name")

    def get_ordering(self, request: HttpRequest, queryset: "QuerySet[Job]") -> list[Any]:
        return [f"-{DATES[self.look.by]}", "-id"]

    def get_results(self, request: Any) -> None:
        super().get_results(request)
        named = getattr(request, "named", None)
        self.common = bool(named and (named.common or len(named.ids) >= MOST_CAMPAIGNS))
        self.pickable = self.show_admin_actions and bool(self.model_admin.get_actions(request))
        self.result_list = add_progress(list(self.result_list[: self.list_max_show_all]), recent=True)
        counted = [job.forecast.counted_at for job in self.result_list if job.forecast.counted_at]
        self.counted_at = min(counted, default=None)
        self.groups = job_groups.group_jobs(self.result_list, request.user)


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of the filter bar, each (id, name). channels: ids of each channel's vendors."""

    sponsor: list[tuple[str, str]]
    vendor: list[tuple[str, str]]
    channels: dict[str, list[int]]


def choices_of_user(request: Any) -> Choices:
    """Return this user's choices, read with one statement and cached in the request."""
    if not hasattr(request, "choices"):
        sponsors = Sponsor.objects.of_sponsors(sponsors_of(request.user)).values_list(Value(""), "pk", "name")
        vendors = Vendor.objects.values_list("channel", "pk", "slug")
        known = entitlements.vendors_seen(request.user).order_by().values_list("pk", flat=True)
        seen = None if sponsors_of(request.user) is None else set(known)
        request.choices = found = Choices([], [], {})
        some = sponsors.order_by("name")[:MOST_CHOICES]  # but every vendor, because the channels are made of them
        for channel, pk, name in some.union(vendors.order_by(), all=True).order_by("name"):
            if not channel or seen is None or pk in seen:
                (found.vendor if channel else found.sponsor).append((str(pk), name))
            if channel:  # also vendors hidden from the user, who may have old jobs of theirs
                found.channels.setdefault(channel, []).append(pk)
    kept: Choices = request.choices
    return kept


def look_of(request: HttpRequest) -> JobFilter:
    typed = {name: value for name, value in request.GET.items() if isinstance(value, str)}
    if typed.get("q") and not typed.get("date"):
        typed["date"] = "any"
    return JobFilter.of(typed, choices_of_user(request).channels if typed.get("channel") else {})


def add_progress(rows: list[Any], *, recent: bool = False) -> list[Any]:
    """Add to each job its sums, its label, the next step and the forecast of its end.

    recent: the places that forecasts come from may be some seconds old.
    """
    now = timezone.now()
    sums = progress.progress_of_jobs(rows)
    forecasts = eta.forecast_jobs(rows, sums, now, recent=recent)
    for job in rows:
        job.sums, job.forecast = sums[job.pk], forecasts[job.pk]
        job.word = labels.label_of_sum(job.sums, stands=job.forecast.stands)
        job.next, job.ends, job.remedy = job.forecast.next, job.forecast.ends, job.forecast.remedy
        job.later = "; ".join(filter(None, (job.ends, job.forecast.stays)))
        job.verbs = [NAMES_OF_VERBS[verb] for verb in verbs.offered_verbs(job, job.sums)]
    return rows


def _campaigns_named(request: Any, term: str) -> CampaignsNamed:
    """Return the campaigns that the search names, read once for each request."""
    if not hasattr(request, "named"):
        mine, sponsor = sponsor_ids_of(request.user), look_of(request).sponsor
        if sponsor.isdecimal():
            chosen = int(sponsor[:18])
            mine = [chosen] if mine is None or chosen in mine else []
        request.named = campaign_names.newest_campaigns(term, mine, MOST_CAMPAIGNS)
    kept: CampaignsNamed = request.named
    return kept


@admin.register(Job)
class JobAdmin(Decisions, Scoped):
    list_select_related = OF
    list_per_page = 50
    search_fields = ["id"]
    search_help_text = gettext_lazy("A job's number, or the beginning of a campaign's name")
    sortable_by = ()
    actions_selection_counter = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Return the page; for a poll, only the parts that can change. A row's own button acts on that row alone."""
        if request.method == "POST" and request.POST.get("stop_one", "").isdecimal():
            one: Any = request.POST.copy()
            one["action"], one["_selected_action"] = "stop", one["stop_one"]
            request.POST = one
        if request.method != "GET" or "HX-Request" not in request.headers:
            return super().changelist_view(request, extra_context)
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        try:
            listed = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return super().changelist_view(request, extra_context)
        return render(request, "admin/campaigns/job/poll.html", {"cl": listed})

    def get_paginator(self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **options: Any) -> Any:
        if queryset.model is not Job:  # the entries of a history
            return super().get_paginator(request, queryset, per_page, *args, **options)
        look = look_of(request)
        campaigns = _campaigns_named(request, look.q).ids if look.q and not look.q.isdecimal() else None
        return Pages(queryset, per_page, look=look, user=request.user, campaigns=campaigns)

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Job]", search_term: str
    ) -> tuple["QuerySet[Job]", bool]:
        """Search only by what an index covers: a job's number, or the beginning of a campaign's name."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isdecimal():
            return queryset.filter(pk=int(term[:18])), False
        return queryset.filter(campaign_id__in=_campaigns_named(request, term).ids), False

    def get_urls(self) -> list[Any]:
        parts = path("<int:job_id>/parts/", self.admin_site.admin_view(self.parts), name="campaigns_job_parts")
        live = path("<int:job_id>/live/", self.admin_site.admin_view(self.render_live), name="campaigns_job_live")
        return [parts, live, *super().get_urls()]

    def parts(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """Render a parent's children for the fold under its row; status 286 ends htmx's polling once all are done."""
        parent = get_object_or_404(self.get_queryset(request), pk=job_id)
        if not self.has_view_permission(request):
            raise PermissionDenied
        children = eta.select_related_rows(parent.children.select_related("mailcaster"), "vendor__name").order_by("id")
        shown = add_progress(list(children[:MOST_PARTS]))
        for child in shown:  # its slice, counted from the parent's first message
            child.from_message = child.first_message - parent.first_message + 1
            child.to_message = child.end - parent.first_message
        groups = [one for one in job_groups.group_jobs(shown, request.user) if one.title]
        for group in groups:
            for child in group.jobs:
                child.is_held = True
        context = {"parent": parent, "children": shown, "most": MOST_PARTS, "groups": groups}
        return render(request, "admin/campaigns/job/parts.html", context, status=286 if parent.is_done else 200)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        job: Any = kwargs.get("obj")
        row = seen_job(job)
        context |= job_page.job_context(request, row)
        if context["failures"] <= job_page.COUNTED_AT_ONCE or "reasons" in request.GET:
            context["reasons"] = job_page.failure_reasons(row)
        return super().render_change_form(request, context, *args, **kwargs)

    def render_live(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """Render the parts of a job's page that change."""
        job = get_object_or_404(self.get_queryset(request), pk=job_id)
        if not self.has_view_permission(request):
            raise PermissionDenied
        return render(request, "admin/campaigns/job/live.html", job_page.job_context(request, seen_job(job)))


@admin.register(DispatchRun)
class DispatchRunAdmin(OfOwners, ReadOnly):
    list_display = [
        "vendor",
        "local_date",
        "due_at",
        "started_at",
        "finished_at",
        "dispatched",
        flag_column("missed", "missed", "warn"),
    ]
    list_filter = [("vendor", OfOwnVendors), "missed"]
    list_select_related = ["vendor"]


def seen_job(job: Job) -> Any:
    """Return the job with its progress and forecast."""
    rows: Any = eta.select_related_rows(Job.objects.filter(pk=job.pk)).select_related("mailcaster", "campaign__route")
    (row,) = add_progress(list(rows), recent=True)
    return row
