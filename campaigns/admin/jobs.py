"""The pages about jobs: the look-ups of document 000, how far each job is, and decisions about them."""

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext

from campaigns import labels, progress
from campaigns.admin import job_page
from campaigns.admin.actions import Decisions
from campaigns.admin.base import Scoped
from campaigns.admin.job_filter import BY, NAMES, SPANS, JobFilter, Pages, states
from campaigns.forecast import eta
from campaigns.models import Campaign, DispatchRun, Job, Sponsor
from campaigns.models.campaigns import sponsors_of
from campaigns.operators.filters import DATES, beginning_with
from vendors.listing import ReadOnly
from vendors.models import Vendor

MOST_CHOICES = 500  # sponsors in their select
MOST_CAMPAIGNS = 100  # the youngest of those whose names begin with the search text
MOST_PARTS = 500  # children under one parent
WITH = ["campaign", "sponsor", "vendor", "credential"]


class JobList(ChangeList):
    """A page of jobs with their progress and forecasts, in a fixed number of statements."""

    look: JobFilter
    choices: "Choices"
    states, spans = states(), [*SPANS.items(), ("any", "Any")]
    channels, dates = Vendor.Channel.choices, list(BY.items())

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """Leaves out the names of our own filter bar, which are no lookups of Django's."""
        return {name: value for name, value in super().get_filters_params(params).items() if name not in NAMES}

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> "QuerySet[Job]":
        self.look, self.choices = look_of(request), choices(request)
        found = super().get_queryset(request, exclude_parameters)
        return eta.with_holder(found if self.look.q.isdecimal() else self.look.jobs(found))

    def get_ordering(self, request: HttpRequest, queryset: "QuerySet[Job]") -> list[Any]:
        return [f"-{DATES[self.look.by]}", "-id"]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = with_progress(list(self.result_list))


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of the filter bar, each (id, name). channels: the vendors of each."""

    sponsor: list[tuple[str, str]]
    vendor: list[tuple[str, str]]
    channels: dict[str, list[int]]


def choices(request: Any) -> Choices:
    """The choices that this user has, read by one statement and kept in the request."""
    if not hasattr(request, "choices"):
        sponsors = Sponsor.objects.of_sponsors(sponsors_of(request.user)).values_list(Value(""), "pk", "name")
        vendors = Vendor.objects.values_list("channel", "pk", "slug")
        request.choices = found = Choices([], [], {})
        some = sponsors.order_by("name")[:MOST_CHOICES]  # but every vendor: the channels are made of them
        for channel, pk, name in some.union(vendors.order_by(), all=True).order_by("name"):
            (found.vendor if channel else found.sponsor).append((str(pk), name))
            if channel:
                found.channels.setdefault(channel, []).append(pk)
    return request.choices


def look_of(request: HttpRequest) -> JobFilter:
    typed = {name: value for name, value in request.GET.items() if isinstance(value, str)}
    if typed.get("q") and not typed.get("date"):
        typed["date"] = "any"
    return JobFilter.of(typed, choices(request).channels)


def with_progress(rows: list[Any]) -> list[Any]:
    """Adds to each job its sums, its label, what comes next and about when it ends."""
    now = timezone.now()
    sums = progress.of_jobs(rows)
    forecasts = eta.of_jobs(rows, sums, now)
    for job in rows:
        job.sums, forecast = sums[job.pk], forecasts[job.pk]
        job.word = labels.of_sum(job.sums)
        job.next, job.ends = forecast.next, forecast.ends
    return rows


@admin.register(Job)
class JobAdmin(Decisions, Scoped):
    list_select_related = WITH
    list_per_page = 50
    search_fields = ["id"]
    search_help_text = "A job's number, or the beginning of a campaign's name"
    sortable_by = ()
    actions_selection_counter = False

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Job]":
        return super().get_queryset(request).defer("campaign__subject", "campaign__body", "credential__secret")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobList

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The page; to a poll only what can change."""
        answer = super().changelist_view(request, extra_context)
        if request.method == "GET" and "HX-Request" in request.headers and hasattr(answer, "template_name"):
            answer.template_name = "admin/campaigns/job/poll.html"
        return answer

    def get_paginator(self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **options: Any) -> Pages:
        look, everything = look_of(request), self.get_queryset(request)
        if look.q:
            everything, _ = self.get_search_results(request, everything, look.q)
        listed = everything if look.q.isdecimal() else look.jobs(everything)  # the list without what is only shown
        return Pages(queryset, per_page, look=look, everything=everything, listed=listed)

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Job]", search_term: str
    ) -> tuple["QuerySet[Job]", bool]:
        """Searches only by what an index finds: a job's number, or the beginning of a campaign's name."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isdecimal():
            return queryset.filter(pk=int(term[:18])), False
        mine = Campaign.objects.of_sponsors(sponsors_of(request.user)).filter(beginning_with(term))
        if (sponsor := look_of(request).sponsor).isdecimal():
            mine = mine.filter(sponsor=int(sponsor[:18]))
        campaigns = mine.order_by("-id").values_list("pk", flat=True)
        return queryset.filter(campaign_id__in=list(campaigns[:MOST_CAMPAIGNS])), False

    def get_urls(self) -> list[Any]:
        parts = path("<int:job_id>/parts/", self.admin_site.admin_view(self.parts), name="campaigns_job_parts")
        live = path("<int:job_id>/live/", self.admin_site.admin_view(self.live), name="campaigns_job_live")
        return [parts, live, *super().get_urls()]

    def parts(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """The children of a parent, for the fold under its row; status 286 ends htmx's polling once all are done."""
        parent = get_object_or_404(self.get_queryset(request), pk=job_id)
        if not self.has_view_permission(request):
            raise PermissionDenied
        of = ("campaign", "mailcaster", "vendor", "credential")
        children = eta.with_holder(parent.children.select_related(*of))
        shown = with_progress(
            list(
                children.defer("credential__secret", "campaign__subject", "campaign__body").order_by("id")[:MOST_PARTS]
            )
        )
        for child in shown:  # its slice, counted from the parent's first message
            child.from_message = child.first_message - parent.first_message + 1
            child.to_message = child.end - parent.first_message
        context = {"parent": parent, "children": shown, "most": MOST_PARTS}
        return render(request, "admin/campaigns/job/parts.html", context, status=286 if parent.is_done else 200)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        job: Any = kwargs.get("obj")
        row = seen(job)
        context |= job_page.context(request, row) | {"title": gettext("Job %(job)s") % {"job": job.pk}}
        if context["failures"] <= job_page.COUNTED_AT_ONCE or "reasons" in request.GET:
            context["reasons"] = job_page.why_failed(row)
        return super().render_change_form(request, context, *args, **kwargs)

    def live(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """What changes on a job's page."""
        job = get_object_or_404(self.get_queryset(request), pk=job_id)
        if not self.has_view_permission(request):
            raise PermissionDenied
        return render(request, "admin/campaigns/job/live.html", job_page.context(request, seen(job)))


@admin.register(DispatchRun)
class DispatchRunAdmin(ReadOnly):
    list_display = ["vendor", "local_date", "due_at", "started_at", "finished_at", "dispatched", "missed"]
    list_filter = ["vendor", "missed"]
    list_select_related = ["vendor"]


def seen(job: Job) -> Any:
    """The job with its progress and forecast."""
    rows: Any = eta.with_holder(Job.objects.filter(pk=job.pk)).select_related(*WITH, "mailcaster", "campaign__route")
    (row,) = with_progress(list(rows.defer("credential__secret", "campaign__subject", "campaign__body")))
    return row
