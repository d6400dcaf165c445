"""`manage.py pause_job`: pauses campaigns, by their jobs."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from campaigns.engine import progress
from campaigns.engine.decisions import JobDecision
from campaigns.models import Job
from campaigns.models.states import DONE, Status
from campaigns.operations import following, job_commands, pausing
from vendors.history import Actor
from vendors.said import count_of

OVER = (*DONE, Status.STOPPED, Status.P_STOPPED, Status.SENT)


class Command(job_commands.Deciding):
    help = (
        "Pauses the campaigns of jobs, children included: no new call starts until resume_job, open calls are "
        "finished and recorded, deadlines pass. With --wait: until open calls are recorded. " + job_commands.CODES
    )
    over = following.RECORDED

    def legal_jobs(self, jobs: "QuerySet[Job]", options: dict[str, Any]) -> "QuerySet[Job]":
        """Return the jobs with calls still to make, without children unless they were named."""
        whole = {} if options["jobs"] else {"parent": None}
        return jobs.filter(paused_at=None, **whole).exclude(status__in=OVER).order_by("pk")

    def effect_numbers(self, jobs: list[Job]) -> tuple[str, dict[str, int]]:
        waiting = sum(sums.waiting for sums in progress.progress_of_jobs(jobs).values())
        return f"this pauses {count_of(len(jobs), 'job')} with {count_of(waiting, 'message')} waiting", {
            "waiting": waiting
        }

    def decide_jobs(self, ids: Iterable[int], by: Actor, options: dict[str, Any]) -> list[JobDecision]:
        return pausing.pause_jobs(ids, by, options["reason"])
