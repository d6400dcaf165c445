"""`manage.py retry_job`: sends the rest of a job again, or resumes a stopped one."""

from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from django.db.models import F, Q, QuerySet

from campaigns.engine import progress
from campaigns.engine.decisions import JobDecision
from campaigns.models import Job
from campaigns.models.states import DONE, Status
from campaigns.operations import actions, job_commands
from vendors.history import Actor
from vendors.said import count_of

ANSWERED = F("accepted") + F("in_doubt")  # these are never sent again


class Command(job_commands.Deciding):
    as_seen = True
    help = (
        "Sends refused and uncalled messages again, in the same job; resumes a stopped one. Leaves out accepted "
        "messages, doubts, and recipients who are unknown, said STOP or are suppressed. 3 means that the job is still "
        "being sent or finalised; --wait awaits the latter. " + job_commands.CODES
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--expired", action="store_true", help="also what expired at the campaign's deadline")

    def legal_jobs(self, jobs: "QuerySet[Job]", options: dict[str, Any]) -> "QuerySet[Job]":
        """Return jobs that have ended or were stopped, with something left to send."""
        left = Q(size__gt=ANSWERED if options["expired"] else ANSWERED + F("expired"))
        whole = Q() if options["jobs"] else job_commands.exclude_children(options)
        return jobs.filter(left, whole, status__in=(*DONE, Status.STOPPED, Status.P_STOPPED)).order_by("pk")

    def effect_numbers(self, jobs: list[Job]) -> tuple[str, dict[str, int]]:
        sums = sum(progress.progress_of_jobs(jobs).values(), start=progress.Progress())
        messages = count_of(sums.waiting, "never called message")
        text = f"this sends {sums.refused:,} refused and {messages} of {count_of(len(jobs), 'job')}"
        return text, {"refused": sums.refused, "waiting": sums.waiting}

    def decide_jobs(self, ids: Iterable[int], by: Actor, options: dict[str, Any]) -> list[JobDecision]:
        return actions.retry_jobs(ids, options["revision"], options["expired"], by, options["reason"])
