"""Operators' decisions about jobs: dispatch now, stop, send the rest again, settle doubts.

A page first shows the effect of a decision in numbers. Once confirmed, the decision applies to exactly the jobs shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from campaigns.doors import labels
from campaigns.engine import progress
from campaigns.engine.decisions import JobDecision, Verdict
from campaigns.engine.doubts.resolve import CannotResolve
from campaigns.engine.progress import Progress
from campaigns.models import Job
from campaigns.operations.verbs import DOUBTS, LEGAL, decide_if_shown, is_legal, shown_versions
from vendors.history import Actor
from vendors.said import show

# columns that the confirmation does not show
HEAVY = ("campaign__subject", "campaign__body", "campaign__text", "credential__secret")
AT_ONCE = 200  # jobs in one confirmation
LEVELS = {Verdict.DONE: messages.SUCCESS, Verdict.ALREADY: messages.INFO}
TITLES = {
    "dispatch": gettext_noop("Dispatch now"),
    "stop": gettext_noop("Stop"),
    "pause": gettext_noop("Pause"),
    "resume": gettext_noop("Resume"),
    "retry": gettext_noop("Send the rest again"),
    "resend": gettext_noop("Send again those in doubt"),
    "sent": gettext_noop("Mark those in doubt as sent"),
}
SHOWN = {name: gettext_lazy(title) for name, title in TITLES.items()}
NAMES = {name: name for name in TITLES} | {"dispatch": "dispatch_now", "sent": "mark_sent"}


@dataclass(frozen=True, slots=True)
class ConfirmationRow:
    """A job on the confirmation page. seen: its version then. legal: the decision can be made about it."""

    job: Job
    word: str
    sums: Progress
    seen: int
    legal: bool


if TYPE_CHECKING:  # where alone Django's class has a parameter
    _JobAdmin = admin.ModelAdmin[Job]
else:
    _JobAdmin = admin.ModelAdmin


class Decisions(_JobAdmin):
    """The actions of the jobs' list and of a job's page: by POST only, confirmed, with a stored reason."""

    actions = list(NAMES.values())

    @admin.action(description=SHOWN["dispatch"], permissions=["change"])
    def dispatch_now(self, request: HttpRequest, jobs: "QuerySet[Job]") -> HttpResponse | None:
        return self._decide_confirmed(request, jobs, "dispatch")

    @admin.action(description=SHOWN["stop"], permissions=["change"])
    def stop(self, request: HttpRequest, jobs: "QuerySet[Job]") -> HttpResponse | None:
        return self._decide_confirmed(request, jobs, "stop")

    @admin.action(description=SHOWN["pause"], permissions=["change"])
    def pause(self, request: HttpRequest, jobs: "QuerySet[Job]") -> HttpResponse | None:
        return self._decide_confirmed(request, jobs, "pause")

    @admin.action(description=SHOWN["resume"], permissions=["change"])
    def resume(self, request: HttpRequest, jobs: "QuerySet[Job]") -> HttpResponse | None:
        return self._decide_confirmed(request, jobs, "resume")

    @admin.action(description=SHOWN["retry"], permissions=["change"])
    def retry(self, request: HttpRequest, jobs: "QuerySet[Job]") -> HttpResponse | None:
        return self._decide_confirmed(request, jobs, "retry")

    @admin.action(description=SHOWN["resend"], permissions=["resolve"])
    def resend(self, request: HttpRequest, jobs: "QuerySet[Job]") -> HttpResponse | None:
        return self._decide_confirmed(request, jobs, "resend")

    @admin.action(description=SHOWN["sent"], permissions=["resolve"])
    def mark_sent(self, request: HttpRequest, jobs: "QuerySet[Job]") -> HttpResponse | None:
        return self._decide_confirmed(request, jobs, "sent")

    def has_resolve_permission(self, request: HttpRequest) -> bool:
        """Allow users who may settle single messages to settle those of a job."""
        return bool(request.user.has_perm("campaigns.add_resolution"))

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Add to a job's page the decisions that are legal now and permitted to the user."""
        job: Any = kwargs.get("obj")
        sums = progress.progress_of_jobs([job])[job.pk] if job else Progress()
        may, may_resolve = self.has_change_permission(request), self.has_resolve_permission(request)
        allowed = [one for one in LEGAL if (may_resolve if one in DOUBTS else may)]
        legal = [one for one in allowed if job and is_legal(one, job, sums)]
        context["offered"] = [(NAMES[one], str(SHOWN[one])) for one in legal]
        return super().render_change_form(request, context, *args, **kwargs)

    def _decide_confirmed(self, request: HttpRequest, jobs: "QuerySet[Job]", action: str) -> HttpResponse | None:
        if "confirmed" not in request.POST:
            return self._ask_confirmation(request, jobs, action)
        allowed = set(jobs.values_list("pk", flat=True))
        try:
            for job_id, seen in _shown_versions(request):
                for answer in _decide_job(request, action, job_id, seen) if job_id in allowed else ():
                    self.message_user(request, show(answer.message), LEVELS.get(answer.verdict, messages.ERROR))
        except CannotResolve as error:  # no reason was given
            self.message_user(request, show(str(error)), messages.ERROR)
        page = _page_of_decision(request, sorted(allowed))
        return redirect(page) if page else None

    def _ask_confirmation(self, request: HttpRequest, jobs: "QuerySet[Job]", action: str) -> HttpResponse | None:
        whole = jobs.defer(None).defer(*HEAVY).select_related("campaign__approval", "sponsor", "vendor")
        rows = list(whole[: AT_ONCE + 1])
        if len(rows) > AT_ONCE:
            self.message_user(
                request, gettext("Choose at most %(count)s jobs at once.") % {"count": AT_ONCE}, messages.ERROR
            )
            return None
        seen = shown_versions(action, rows)  # before the sums, so that a change in between is noticed
        sums = progress.progress_of_jobs(rows)
        found = [_confirmation_row(action, job, sums[job.pk], seen[job.pk]) for job in rows]
        meant = [row for row in found if row.legal]
        page = _page_of_decision(request, [job.pk for job in rows])
        context = {
            **self.admin_site.each_context(request),
            "back": page or request.get_full_path(),
            "of_page": bool(page),
            "title": str(SHOWN[action]),
            "opts": self.opts,
            "action": request.POST["action"],
            "decision": action,
            "meant": meant,
            "left": [row for row in found if not row.legal],
            "about_doubts": action in DOUBTS,
            "total": sum((row.sums for row in meant), start=Progress()),
        }
        return TemplateResponse(request, "admin/campaigns/job/decide.html", context)


def _page_of_decision(request: HttpRequest, ids: list[int]) -> str:
    """Return the page of the job on which the decision was chosen; empty: it was chosen in the list."""
    return reverse("admin:campaigns_job_change", args=ids) if "of_page" in request.POST and len(ids) == 1 else ""


def _decide_job(request: HttpRequest, action: str, job_id: int, seen: int) -> list[JobDecision]:
    by = Actor(request.user.get_username(), request.user.pk)
    return decide_if_shown(action, job_id, by, request.POST.get("reason", ""), seen, expired="expired" in request.POST)


def _confirmation_row(action: str, job: Job, sums: Progress, seen: int) -> ConfirmationRow:
    return ConfirmationRow(job, labels.label_of_sum(sums), sums, seen, is_legal(action, job, sums))


def _shown_versions(request: HttpRequest) -> Iterator[tuple[int, int]]:
    """Yield job ids and versions as the confirmation page showed them."""
    for shown in request.POST.getlist("shown"):
        job_id, _, seen = shown.partition(":")
        if job_id.isdecimal() and seen.isdecimal():
            yield int(job_id), int(seen)
