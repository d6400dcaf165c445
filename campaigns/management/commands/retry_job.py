from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from campaigns import desk
from campaigns.management.answers import person, report
from campaigns.records import Person


class Command(BaseCommand):
    help = (
        "Sends again what was refused or never called, in the same job; resumes a stopped one. Never what was "
        "accepted or is in doubt. Exit codes: 0 done (or nothing to send again), 1 unknown job, 2 usage, "
        "3 not yet: the job is under way or still being finalised."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="+", type=int, metavar="ID")
        parser.add_argument("--expired", action="store_true", help="also what expired at the campaign's deadline")
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        parser.add_argument("--json", action="store_true", help="one object a job")

    def handle(self, *args: Any, **options: Any) -> None:
        by = Person(options["by"] or person())
        answers = desk.retry(options["jobs"], expired=options["expired"], by=by, reason=options["reason"])
        report(self.stdout, answers, options["json"])
