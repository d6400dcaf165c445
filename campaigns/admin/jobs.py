"""Jobs: the look-ups of document 000, how far each one is, stop and retry with a confirmation in numbers."""

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet, Value
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone

from campaigns import desk, progress, prospects, scope, words
from campaigns.admin.look import BY, NAMES, SPANS, Look, Pages, states
from campaigns.claims import people
from campaigns.claims.people import Answer, Verdict
from campaigns.filters import DATES
from campaigns.models import DispatchRun, Job, Sponsor
from campaigns.progress import Progress
from vendors.listing import ReadOnly
from vendors.models import Vendor

MOST_CHOICES = 500  # sponsors and vendors in the selects
MOST_PARTS = 500  # children under one parent
AT_ONCE = 200  # jobs that one confirmation can hold
LEVELS = {Verdict.DONE: messages.SUCCESS, Verdict.ALREADY: messages.INFO}


class JobList(ChangeList):
    """A page of jobs with all that is told of them, in a fixed number of statements."""

    look: Look
    states, spans = states(), [*SPANS.items(), ("any", "Any")]
    channels, dates = Vendor.Channel.choices, list(BY.items())

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        """The bar's own names are no lookups of Django's."""
        return {name: value for name, value in super().get_filters_params(params).items() if name not in NAMES}

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> "QuerySet[Job]":
        self.look, self.sponsors = look_of(request), scope.of(request.user)
        found = super().get_queryset(request, exclude_parameters)
        return prospects.with_holder(found if self.query.isdecimal() else self.look.jobs(found))

    def get_ordering(self, request: HttpRequest, queryset: "QuerySet[Job]") -> list[Any]:
        return [f"-{DATES[self.look.by]}", "-id"]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = told(list(self.result_list))

    @property
    def choices(self) -> dict[str, list[tuple[str, str]]]:
        """Of the selects of sponsors and vendors, in one statement."""
        sponsors = Sponsor.objects.of_sponsors(self.sponsors).values_list(Value("sponsor"), "pk", "name")
        vendors = Vendor.objects.values_list(Value("vendor"), "pk", "slug")
        found: dict[str, list[tuple[str, str]]] = {"sponsor": [], "vendor": []}
        for kind, pk, name in sponsors.order_by().union(vendors.order_by(), all=True).order_by("name")[:MOST_CHOICES]:
            found[kind].append((str(pk), name))
        return found


def look_of(request: HttpRequest) -> Look:
    typed = {name: value for name, value in request.GET.items() if isinstance(value, str)}
    if typed.get("q") and not typed.get("date"):
        typed["date"] = "any"
    return Look.of(typed)


def told(rows: list[Any]) -> list[Any]:
    """Jobs with their sums, word, what comes next and about when they end."""
    now = timezone.now()
    sums, places = progress.of_jobs(rows), prospects.places(rows)
    for job in rows:
        job.sums = sums[job.pk]
        job.word = words.of_sum(job.sums)
        job.next = prospects.next_of(job, job.sums, now)
        job.ends = prospects.about(prospects.ends_at(places.get(job.pk), now), now)
    return rows


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_select_related = ["campaign", "sponsor", "vendor", "credential"]
    list_per_page = 50
    search_fields = ["id"]
    search_help_text = "A job's number, or the beginning of a campaign's name"
    sortable_by = ()
    actions = ["stop", "retry"]
    actions_selection_counter = False
    readonly_fields = ["in_words", "so_far"]

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Job]":
        jobs = Job.objects.of_sponsors(scope.of(request.user))
        return jobs.defer("campaign__subject", "campaign__body", "credential__secret")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobList

    def get_paginator(self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **options: Any) -> Pages:
        return Pages(queryset, per_page, look=look_of(request), everything=self.get_queryset(request))

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Job]", search_term: str
    ) -> tuple["QuerySet[Job]", bool]:
        """Only what an index finds."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isdecimal():
            return queryset.filter(pk=int(term[:18])), False
        return queryset.filter(campaign__name__startswith=term), False

    def get_urls(self) -> list[Any]:
        parts = path("<int:job_id>/parts/", self.admin_site.admin_view(self.parts), name="campaigns_job_parts")
        return [parts, *super().get_urls()]

    def parts(self, request: HttpRequest, job_id: int) -> HttpResponse:
        """The children of a parent, for the fold under its row; tells htmx to ask no more once all is over."""
        parent = get_object_or_404(self.get_queryset(request), pk=job_id)
        if not self.has_view_permission(request):
            raise PermissionDenied
        children = prospects.with_holder(parent.children.select_related("mailcaster", "vendor", "credential"))
        shown = told(list(children.defer("credential__secret").order_by("id")[:MOST_PARTS]))
        for child in shown:  # its slice, counted from the parent's first message
            child.from_message = child.first_message - parent.first_message + 1
            child.to_message = child.end - parent.first_message
        context = {"parent": parent, "children": shown, "most": MOST_PARTS}
        return render(request, "admin/campaigns/job/parts.html", context, status=286 if parent.is_done else 200)

    @admin.display(description="in words")
    def in_words(self, job: Job) -> str:
        return words.of_sum(_sums(job))

    @admin.display(description="accepted / refused / in doubt")
    def so_far(self, job: Job) -> str:
        sums = _sums(job)
        return f"{sums.accepted:,} / {sums.refused:,} / {sums.in_doubt:,} of {sums.size:,}"

    @admin.action(description="Stop", permissions=["change"])
    def stop(self, request: HttpRequest, jobs: QuerySet[Job]) -> TemplateResponse | None:
        by = request.user.get_username()
        return self._decide(request, jobs, "stop", lambda job_id, seen: people.stop([job_id], seen, by))

    @admin.action(description="Send the rest again", permissions=["change"])
    def retry(self, request: HttpRequest, jobs: QuerySet[Job]) -> TemplateResponse | None:
        expired = "expired" in request.POST
        return self._decide(request, jobs, "retry", lambda job_id, seen: desk.retry([job_id], seen, expired))

    def _decide(
        self,
        request: HttpRequest,
        jobs: QuerySet[Job],
        action: str,
        act: Callable[[int, int | None], list[Answer]],
    ) -> TemplateResponse | None:
        """First the numbers, then, once confirmed, the deed: on the very picture of each job that was shown."""
        if "confirmed" not in request.POST:
            return self._ask(request, jobs, action)
        for job_id, seen in _confirmed(request):
            for answer in act(job_id, seen):
                self.message_user(request, answer.told, LEVELS.get(answer.verdict, messages.ERROR))
        return None

    def _ask(self, request: HttpRequest, jobs: QuerySet[Job], action: str) -> TemplateResponse | None:
        rows = list(jobs.select_related("campaign__sponsor", "vendor")[: AT_ONCE + 1])
        if len(rows) > AT_ONCE:
            self.message_user(request, f"Choose at most {AT_ONCE} jobs at once.", messages.ERROR)
            return None
        sums = progress.of_jobs(rows)
        context = {
            **self.admin_site.each_context(request),
            "title": "Stop jobs" if action == "stop" else "Send the rest again",
            "opts": self.opts,
            "action": action,
            "rows": [(job, words.of_sum(sums[job.pk]), sums[job.pk]) for job in rows],
            "total": sum(sums.values(), start=Progress()),
        }
        return TemplateResponse(request, "admin/campaigns/job/decide.html", context)


@admin.register(DispatchRun)
class DispatchRunAdmin(ReadOnly):
    list_display = ["vendor", "local_date", "due_at", "started_at", "finished_at", "dispatched", "missed"]
    list_filter = ["vendor", "missed"]
    list_select_related = ["vendor"]


def _sums(job: Any) -> Progress:
    """The list has counted them for the whole page."""
    return job.sums if hasattr(job, "sums") else progress.of_jobs([job])[job.pk]


def _confirmed(request: HttpRequest) -> Iterator[tuple[int, int]]:
    """(job, revision) as the confirmation page showed them."""
    for shown in request.POST.getlist("shown"):
        job_id, _, revision = shown.partition(":")
        if job_id.isdecimal() and revision.isdecimal():
            yield int(job_id), int(revision)
