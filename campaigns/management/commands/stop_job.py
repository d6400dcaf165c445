from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet

from campaigns import desk, progress
from campaigns.management import flags
from campaigns.management.answers import person, report
from campaigns.models import Job
from campaigns.records import Person
from campaigns.states import MOVES


class Command(BaseCommand):
    help = (
        "Stops jobs: no new call starts, what is in flight is finished and recorded; retry_job resumes. "
        "A parent is stopped with its children. Exit codes: 0 stopped (or it was already), 1 unknown job, 2 usage."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="*", type=int, metavar="ID")
        flags.add(parser)
        parser.add_argument("--yes", action="store_true", help="without ids: do it")
        parser.add_argument("--dry-run", action="store_true", help="without ids: say what would be stopped")
        parser.add_argument("--by", default="", metavar="NAME", help="who stops; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        parser.add_argument("--json", action="store_true", help="one object a job")

    def handle(self, *args: Any, **options: Any) -> None:
        ids = options["jobs"]
        if bool(ids) == flags.given(options):
            raise CommandError("name the jobs by id, or by --sponsor, --vendor and the like", returncode=2)
        if not ids:
            found = running(flags.jobs(options))
            if options["dry_run"]:
                self.stdout.write(question(found))
                return
            if not options["yes"]:
                raise CommandError(f"{question(found)}; add --yes to do it", returncode=2)
            ids = [job.pk for job in found]
        by = Person(options["by"] or person())
        report(self.stdout, desk.stop(ids, by, options["reason"]), options["json"])


def running(jobs: "QuerySet[Job]") -> "QuerySet[Job]":
    """Those that could be stopped, without the children of parents."""
    return jobs.filter(parent=None, status__in=MOVES["stop"].sources + MOVES["stop_parent"].sources).order_by("pk")


def question(jobs: "QuerySet[Job]") -> str:
    waiting = sum(sums.waiting for sums in progress.of_jobs(jobs).values())
    return f"this stops {len(jobs):,} jobs with {waiting:,} messages waiting"
