"""`manage.py resume_job`: resumes paused campaigns, by their jobs."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from campaigns.engine import progress
from campaigns.engine.decisions import JobDecision
from campaigns.models import Job
from campaigns.operations import job_commands, pausing
from vendors.history import Actor
from vendors.said import count_of


class Command(job_commands.Deciding):
    as_seen = True
    help = (
        "Resumes paused campaigns, also those waiting after their first recipients: messages never called go out, "
        "nothing else. For a stopped job use retry_job. " + job_commands.CODES
    )

    def legal_jobs(self, jobs: "QuerySet[Job]", options: dict[str, Any]) -> "QuerySet[Job]":
        """Return paused jobs; for look-ups without children."""
        whole = {} if options["jobs"] else {"parent": None}
        return jobs.filter(paused_at__isnull=False, **whole).order_by("pk")

    def effect_numbers(self, jobs: list[Job]) -> tuple[str, dict[str, int]]:
        waiting = sum(sums.waiting for sums in progress.progress_of_jobs(jobs).values())
        return f"this lets {count_of(waiting, 'waiting message')} of {count_of(len(jobs), 'job')} go on", {
            "waiting": waiting
        }

    def decide_jobs(self, ids: Iterable[int], by: Actor, options: dict[str, Any]) -> list[JobDecision]:
        return pausing.resume_jobs(ids, by, options["reason"], options["revision"])
