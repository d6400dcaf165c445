"""Jobs: the look-ups of document 000, how far each one is, stop and retry with a confirmation in numbers."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

from campaigns import desk, progress, words
from campaigns.admin.dates import CreatedFilter
from campaigns.claims import people
from campaigns.claims.people import Answer, Verdict
from campaigns.models import DispatchRun, Job
from campaigns.progress import Progress
from campaigns.states import GROUPS
from vendors.listing import ReadOnly

AT_ONCE = 200  # jobs that one confirmation can hold
LEVELS = {Verdict.DONE: messages.SUCCESS, Verdict.ALREADY: messages.INFO}


class StatusFilter(admin.SimpleListFilter):
    """The look-ups of document 000, and what comes after them."""

    title = "status"
    parameter_name = "status_group"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, str]]:
        return [(name, name) for name in GROUPS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Job]) -> QuerySet[Job]:
        group = GROUPS.get(self.value() or "")
        return queryset.filter(status__in=group) if group else queryset


class JobList(ChangeList):
    """A page of jobs with their sums, in a fixed number of statements."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        sums = progress.of_jobs(rows)
        for job in rows:
            job.sums = sums[job.pk]
        self.result_list = rows


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_display = [
        "id",
        "parent_id",
        "sponsor",
        "campaign",
        "vendor",
        "status",
        "in_words",
        "size",
        "so_far",
        "created",
    ]
    list_filter = ["campaign__sponsor", StatusFilter, "vendor", CreatedFilter]
    list_select_related = ["campaign__sponsor", "sponsor", "vendor"]
    list_per_page = 50
    search_fields = ["=id", "campaign__name", "campaign__sponsor__name"]
    search_help_text = "A job's number, or a part of the campaign's or the sponsor's name"
    actions = ["stop", "retry"]
    readonly_fields = ["sponsor", "in_words", "so_far"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return super().get_queryset(request).defer("campaign__subject", "campaign__body")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobList

    @admin.display(ordering="campaign__sponsor__name")
    def sponsor(self, job: Job) -> str:
        return job.campaign.sponsor.name

    @admin.display(ordering="created_at")
    def created(self, job: Job) -> Any:
        return job.created_at

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
