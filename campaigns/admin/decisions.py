"""Dispatch now, stop, send the rest again: first what it would do, in numbers; then the deed, on what was shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

from campaigns import desk, progress, words
from campaigns.claims.people import Answer, Verdict
from campaigns.models import Job
from campaigns.progress import Progress
from campaigns.records import Person
from campaigns.states import DONE, MOVES, S, Status

AT_ONCE = 200  # jobs that one confirmation can hold
LEVELS = {Verdict.DONE: messages.SUCCESS, Verdict.ALREADY: messages.INFO}
TITLES = {"dispatch": "Dispatch now", "stop": "Stop", "retry": "Send the rest again"}
NAMES = {"dispatch": "dispatch_now", "stop": "stop", "retry": "retry"}  # the actions' own
LEGAL: dict[str, tuple[Status, ...]] = {
    "dispatch": MOVES["dispatch"].sources,
    "stop": MOVES["stop"].sources + MOVES["stop_parent"].sources,
    "retry": (*DONE, S.STOPPED, S.P_STOPPED),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A job as the confirmation shows it. legal: the decision can do something to it."""

    job: Job
    word: str
    sums: Progress
    legal: bool


class Decisions(admin.ModelAdmin):
    """The actions of the jobs' list and of a job's page. By POST only, confirmed, with a reason that is kept."""

    actions = ["dispatch_now", "stop", "retry"]

    @admin.action(description=TITLES["dispatch"], permissions=["change"])
    def dispatch_now(self, request: HttpRequest, jobs: "QuerySet[Job]") -> TemplateResponse | None:
        return self._decide(request, jobs, "dispatch")

    @admin.action(description=TITLES["stop"], permissions=["change"])
    def stop(self, request: HttpRequest, jobs: "QuerySet[Job]") -> TemplateResponse | None:
        return self._decide(request, jobs, "stop")

    @admin.action(description=TITLES["retry"], permissions=["change"])
    def retry(self, request: HttpRequest, jobs: "QuerySet[Job]") -> TemplateResponse | None:
        return self._decide(request, jobs, "retry")

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """A job's page offers what is legal now, to those who may."""
        job: Any = kwargs.get("obj")
        legal = [one for one in LEGAL if job is not None and job.status in LEGAL[one]]
        context["offered"] = [(NAMES[one], TITLES[one]) for one in legal if self.has_change_permission(request)]
        return super().render_change_form(request, context, *args, **kwargs)

    def _decide(self, request: HttpRequest, jobs: "QuerySet[Job]", action: str) -> TemplateResponse | None:
        if "confirmed" not in request.POST:
            return self._ask(request, jobs, action)
        allowed = set(jobs.values_list("pk", flat=True))
        for job_id, seen in _shown(request):
            for answer in _act(request, action, job_id, seen) if job_id in allowed else ():
                self.message_user(request, answer.told, LEVELS.get(answer.verdict, messages.ERROR))
        return None

    def _ask(self, request: HttpRequest, jobs: "QuerySet[Job]", action: str) -> TemplateResponse | None:
        rows = list(jobs.select_related("campaign", "sponsor", "vendor")[: AT_ONCE + 1])
        if len(rows) > AT_ONCE:
            self.message_user(request, f"Choose at most {AT_ONCE} jobs at once.", messages.ERROR)
            return None
        sums = progress.of_jobs(rows)
        told = [Row(job, words.of_sum(sums[job.pk]), sums[job.pk], job.status in LEGAL[action]) for job in rows]
        meant = [row for row in told if row.legal]
        context = {
            **self.admin_site.each_context(request),
            "title": TITLES[action],
            "opts": self.opts,
            "action": request.POST["action"],
            "decision": action,
            "meant": meant,
            "left": [row for row in told if not row.legal],
            "total": sum((row.sums for row in meant), start=Progress()),
        }
        return TemplateResponse(request, "admin/campaigns/job/decide.html", context)


def _act(request: HttpRequest, action: str, job_id: int, seen: int) -> list[Answer]:
    by, reason = Person(request.user.get_username(), request.user.pk), request.POST.get("reason", "")
    if action == "retry":
        return desk.retry([job_id], seen, "expired" in request.POST, by, reason)
    return (desk.stop if action == "stop" else desk.dispatch)([job_id], by, reason, seen)


def _shown(request: HttpRequest) -> Iterator[tuple[int, int]]:
    """(job, revision) as the confirmation page showed them."""
    for shown in request.POST.getlist("shown"):
        job_id, _, revision = shown.partition(":")
        if job_id.isdecimal() and revision.isdecimal():
            yield int(job_id), int(revision)
