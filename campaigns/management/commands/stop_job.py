from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet

from campaigns import desk, progress
from campaigns.management.answers import person, report
from campaigns.models import Job, Sponsor
from campaigns.records import Person
from campaigns.states import MOVES
from vendors.models import Vendor


class Command(BaseCommand):
    help = (
        "Stops jobs: no new call starts, what is in flight is finished and recorded; retry_job resumes. "
        "A parent is stopped with its children. Exit codes: 0 stopped (or it was already), 1 unknown job, 2 usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="*", type=int, metavar="ID")
        parser.add_argument("--sponsor", help="all running jobs of this sponsor")
        parser.add_argument("--vendor", help="all running jobs over this vendor (its slug)")
        parser.add_argument("--yes", action="store_true", help="with --sponsor or --vendor: do it")
        parser.add_argument("--by", default="", metavar="NAME", help="who stops; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        parser.add_argument("--json", action="store_true", help="one object a job")

    def handle(self, *args: Any, **options: Any) -> None:
        ids = options["jobs"]
        if bool(ids) == bool(options["sponsor"] or options["vendor"]):
            raise CommandError("name the jobs by id, or by --sponsor and --vendor", returncode=2)
        if not ids:
            found = running(options["sponsor"], options["vendor"])
            if not options["yes"]:
                raise CommandError(question(found), returncode=2)
            ids = [job.pk for job in found]
        by = Person(options["by"] or person())
        report(self.stdout, desk.stop(ids, by, options["reason"]), options["json"])


def running(sponsor: str | None, vendor: str | None) -> QuerySet[Job]:
    """The jobs that could be stopped, without the children of parents. Raises CommandError on unknown names."""
    jobs = Job.objects.filter(parent=None, status__in=MOVES["stop"].sources + MOVES["stop_parent"].sources)
    if sponsor:
        if not Sponsor.objects.filter(name=sponsor).exists():
            raise CommandError(f"there is no sponsor {sponsor!r}")
        jobs = jobs.filter(campaign__sponsor__name=sponsor)
    if vendor:
        if not Vendor.objects.filter(slug=vendor).exists():
            raise CommandError(f"there is no vendor {vendor!r}")
        jobs = jobs.filter(vendor__slug=vendor)
    return jobs.order_by("pk")


def question(jobs: QuerySet[Job]) -> str:
    waiting = sum(sums.waiting for sums in progress.of_jobs(jobs).values())
    return f"this stops {len(jobs):,} jobs with {waiting:,} messages waiting; add --yes to do it"
