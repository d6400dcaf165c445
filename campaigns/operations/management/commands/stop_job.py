"""`manage.py stop_job`: stops jobs."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from campaigns.engine import progress
from campaigns.engine.decisions import JobDecision
from campaigns.models import Job
from campaigns.operations import actions, following, job_commands
from vendors.history import Actor
from vendors.said import count_of


class Command(job_commands.Deciding):
    help = (
        "Stops jobs, a parent with its children: no new call starts, open calls are finished and recorded; retry_job "
        "resumes. With --wait: until open calls are recorded. " + job_commands.CODES
    )
    over = following.RECORDED

    def legal_jobs(self, jobs: "QuerySet[Job]", options: dict[str, Any]) -> "QuerySet[Job]":
        """Return jobs that can be stopped; for look-ups without children."""
        return jobs.filter(actions.stoppable_condition(), **({} if options["jobs"] else {"parent": None})).order_by(
            "pk"
        )

    def effect_numbers(self, jobs: list[Job]) -> tuple[str, dict[str, int]]:
        waiting = sum(sums.waiting for sums in progress.progress_of_jobs(jobs).values())
        return f"this stops {count_of(len(jobs), 'job')} with {count_of(waiting, 'message')} waiting", {
            "waiting": waiting
        }

    def decide_jobs(self, ids: Iterable[int], by: Actor, options: dict[str, Any]) -> list[JobDecision]:
        return actions.stop_jobs(ids, by, options["reason"])
