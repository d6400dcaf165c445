"""What the commands that decide about jobs share: which jobs, are you sure, who and why, wait for the end."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import QuerySet

from campaigns.decisions import JobDecision, Verdict
from campaigns.lifecycle import Status
from campaigns.management import flags, following
from campaigns.management.answers import report
from campaigns.models import Job
from vendors.history import Person
from vendors.management.history import person
from vendors.management.output import tell

CODES = (
    "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage, or --yes is missing, 3 not yet; "
    "with --wait also 4 some failed or were not sent, 5 some need attention, 130 Ctrl-C (the work goes on)."
)


class Deciding(BaseCommand):
    """Jobs by id, or by the look-ups of the admin's list; the latter are counted and confirmed first."""

    over: tuple[Status, ...] = following.OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="*", type=int, metavar="ID")
        flags.add(parser)
        deciding(parser)
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")

    def handle(self, *args: Any, **options: Any) -> None:
        ids = options["jobs"]
        if bool(ids) == flags.given(options):
            raise CommandError("name the jobs by id, or by --sponsor, --vendor and the like", returncode=2)
        if not ids or options["dry_run"]:
            named = Job.objects.filter(pk__in=ids) if ids else flags.looked_up_jobs(options)
            found = list(self.legal(named, options))
            words, counts = self.numbers(found)
            if options["dry_run"] or not found:
                facts = {"dry_run": options["dry_run"], "jobs": len(found), **counts}
                tell(self.stdout, words, facts, options["json"])
                return
            confirm(words, options)
            ids = [job.pk for job in found]
        answers = self.act(ids, Person(options["by"] or person()), options)
        report(self.stdout, answers, options["json"])
        if options["wait"]:
            wait(self, [one.job_id for one in answers if one.verdict == Verdict.DONE], options, self.over)

    def legal(self, jobs: "QuerySet[Job]", options: dict[str, Any]) -> "QuerySet[Job]":
        """Those of the jobs that the decision can do something to."""
        raise NotImplementedError

    def numbers(self, jobs: list[Job]) -> tuple[str, dict[str, int]]:
        """What it would do, for people and for programs."""
        raise NotImplementedError

    def act(self, ids: Iterable[int], by: Person, options: dict[str, Any]) -> list[JobDecision]:
        raise NotImplementedError


def deciding(parser: ArgumentParser) -> None:
    """The flags of every command that changes jobs."""
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")
    parser.add_argument("--wait", action="store_true", help="stay until the jobs have ended; Ctrl-C stops nothing")
    parser.add_argument("--json", action="store_true", help="one object a job, with --wait another one for the end")


def somebody_there() -> bool:
    """Is there a person at a terminal who can be asked?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(words: str, options: dict[str, Any]) -> None:
    """Asks on a terminal. Raises CommandError where nobody says yes."""
    if options["yes"]:
        return
    if not somebody_there():
        raise CommandError(f"{words}; add --yes to do it", returncode=2)
    sys.stderr.write(f"{words}. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", returncode=2)


def wait(command: BaseCommand, ids: list[int], options: dict[str, Any], over: Iterable[Status]) -> None:
    """Follows the jobs, tells how they ended; not all well: ends with the exit code for it."""
    if not ids:
        return
    sums = following.follow(ids, over)
    words = f"{'1 job' if len(ids) == 1 else f'{len(ids):,} jobs'}: {following.ending(sums)}"
    tell(command.stdout, words, {"jobs": len(ids), **following.facts(sums)}, options["json"])
    if over is not following.RECORDED and (code := following.code(sums)):
        raise SystemExit(code)
