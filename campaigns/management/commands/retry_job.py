from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import F, Q, QuerySet

from campaigns import desk, progress
from campaigns.claims.people import Verdict
from campaigns.management import flags
from campaigns.management.answers import person, report
from campaigns.management.following import ending, follow
from campaigns.models import Job
from campaigns.records import Person
from campaigns.states import DONE, Status

ANSWERED = F("accepted") + F("in_doubt")  # these are never sent again


class Command(BaseCommand):
    help = (
        "Sends again what was refused or never called, in the same job; resumes a stopped one. Never what was "
        "accepted or is in doubt. Exit codes: 0 done (or nothing to send again), 1 unknown job, 2 usage, "
        "3 not yet: the job is under way or still being finalised."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="*", type=int, metavar="ID")
        flags.add(parser)
        parser.add_argument("--expired", action="store_true", help="also what expired at the campaign's deadline")
        parser.add_argument("--yes", action="store_true", help="without ids: do it")
        parser.add_argument("--dry-run", action="store_true", help="without ids: say what would be sent again")
        parser.add_argument("--wait", action="store_true", help="stay until the jobs have ended")
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        parser.add_argument("--json", action="store_true", help="one object a job")

    def handle(self, *args: Any, **options: Any) -> None:
        ids = options["jobs"]
        if bool(ids) == flags.given(options):
            raise CommandError("name the jobs by id, or by --sponsor, --vendor and the like", returncode=2)
        if not ids:
            found = ended(flags.jobs(options), options["expired"], flags.whole(options))
            if options["dry_run"]:
                self.stdout.write(question(found))
                return
            if not options["yes"]:
                raise CommandError(f"{question(found)}; add --yes to do it", returncode=2)
            ids = [job.pk for job in found]
        by = Person(options["by"] or person())
        answers = desk.retry(ids, expired=options["expired"], by=by, reason=options["reason"])
        report(self.stdout, answers, options["json"])
        for answer in answers if options["wait"] else ():
            if answer.verdict == Verdict.DONE:
                job = Job.objects.get(pk=answer.job_id)
                self.stdout.write(f"job {job.pk} {ending(job, follow(job))}")


def ended(jobs: "QuerySet[Job]", expired: bool, whole: Q) -> "QuerySet[Job]":
    """Those that have ended or were stopped with something left to send again."""
    left = Q(size__gt=ANSWERED if expired else ANSWERED + F("expired"))
    return jobs.filter(left, whole, status__in=(*DONE, Status.STOPPED, Status.P_STOPPED)).order_by("pk")


def question(jobs: "QuerySet[Job]") -> str:
    sums = progress.of_jobs(jobs).values()
    refused, waiting = sum(one.refused for one in sums), sum(one.waiting for one in sums)
    return f"this sends {refused:,} refused and {waiting:,} never called messages of {len(jobs):,} jobs"
