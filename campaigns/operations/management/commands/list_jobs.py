"""`manage.py list_jobs`: jobs with their progress, by the look-ups of document 000."""

from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import islice
from typing import Any

from django.core.management.base import BaseCommand
from django.db.models import Q, QuerySet
from django.utils import timezone

from campaigns.doors import labels
from campaigns.engine import progress
from campaigns.models import Job
from campaigns.operations import job_commands
from campaigns.reporting.forecast import eta
from vendors.mail_classes import MailClass
from vendors.management.output import write_rows

CHUNK = 500  # jobs whose messages are summed in one statement
NUMBERS = ("waiting", "in_flight", "accepted", "refused", "expired", "suppressed", "in_doubt")
REPORTED = ("delivered", "bounced")  # subsets of the accepted
COLUMNS = (
    "id",
    "parent",
    "sponsor",
    "campaign",
    "vendor",
    "class",
    "status",
    "in_words",
    "size",
    *NUMBERS,
    "created",
    "next",
)
# The look-up columns of document 000 (sponsor, status, date) stay on the narrowest terminal.
ENDS = ("suppressed", "expired", "refused", "in_doubt")
SPARE = ("in_flight", "class", *ENDS, "waiting", "accepted", "in_words", "next", "vendor", "size")
NAMES = ("sponsor", "campaign", "vendor")


class Command(BaseCommand):
    help = (
        "Lists jobs, newest first, with counts of their messages by state. A parent stands for its children and "
        "shows their sums. Exit codes: 0 listed, 1 unknown name or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        job_commands.add_lookups(parser)
        parser.add_argument("--children", action="store_true", help="list the children of parents, too")
        job_commands.add_limit(parser, "newest")
        parser.add_argument("--json", action="store_true", help="one object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        limit = job_commands.rows_to_list(options)
        which = Q() if options["children"] else job_commands.exclude_children(options)
        jobs = self._jobs_to_list(job_commands.looked_up_jobs(options).filter(which))
        columns = [name for name in COLUMNS if name != "parent" or not which]
        write_rows(self.stdout, _facts_of_jobs(jobs[:limit]), options["json"], columns, SPARE, NAMES)
        if not options["json"] and limit and (total := jobs.count()) > limit:
            self.stdout.write(f"the newest {limit:,} of {total:,} jobs; --limit 0 shows all")

    def _jobs_to_list(self, jobs: QuerySet[Job]) -> QuerySet[Job]:
        return eta.select_related_rows(jobs).order_by("-id")


def _facts_of_jobs(jobs: QuerySet[Job]) -> Iterator[dict[str, Any]]:
    rows = jobs.iterator(chunk_size=CHUNK)
    while chunk := list(islice(rows, CHUNK)):
        sums = progress.progress_of_jobs(chunk)
        forecasts = eta.forecast_jobs(chunk, sums, timezone.now())
        for job in chunk:
            yield _facts_of_job(job, sums[job.pk], forecasts[job.pk])


def _facts_of_job(job: Job, sums: progress.Progress, forecast: eta.JobForecast) -> dict[str, Any]:
    return {
        "id": job.pk,
        "parent": job.parent_id,
        "sponsor": job.campaign.sponsor.name,
        "campaign": job.campaign.name,
        "vendor": job.vendor.slug,
        "class": MailClass(job.mail_class).word,
        "status": job.status,
        "in_words": labels.label_of_sum(sums, stands=forecast.stands),
        "size": job.size,
        "revision": job.revision,
        **{name: getattr(sums, name) for name in (*NUMBERS, *REPORTED, "units")},
        "created_at": job.created_at.isoformat(),
        "created": f"{timezone.localtime(job.created_at):%Y-%m-%d %H:%M}",
        "next": ", ".join(filter(None, (forecast.next, forecast.stays, forecast.ends))),
        "ahead": forecast.describe_ahead(timezone.now(), is_operator=True),
        "first_at": forecast.first_at.isoformat() if forecast.first_at else None,
        "ends_at": forecast.ends_at.isoformat() if forecast.ends_at else None,
    }
