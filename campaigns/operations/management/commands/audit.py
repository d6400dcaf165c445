"""`manage.py audit`: checks the promises on the rows."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.engine import audit
from vendors.management.output import write_json


class Command(BaseCommand):
    help = (
        "Checks the promises P1 to P7 on the rows of unfinished jobs and those finished within the last day, also "
        "while mail goes out. Exit codes: 0 all kept, 1 a breach, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one object a question")

    def handle(self, *args: Any, **options: Any) -> None:
        checks = audit.ask_all_questions()
        if options["json"]:
            write_json(self.stdout, map(_check_facts, checks))
        else:
            for check in checks:
                self.stdout.write(check_sentence(check))
        broken = sum(not check.is_kept for check in checks)
        if broken:
            raise CommandError(f"{broken} of {len(checks)} checks found a breach")


def check_sentence(check: audit.Check) -> str:
    """Format a check as one line: ok, or the number of breaches with examples."""
    if check.is_kept:
        return f"{check.promise:5} ok      {check.question}"
    more = ", ..." if check.breaches > len(check.examples) else ""
    return f"{check.promise:5} BREACH  {check.question}: {check.breaches:,} ({', '.join(check.examples)}{more})"


def _check_facts(check: audit.Check) -> dict[str, Any]:
    return {
        "promise": check.promise,
        "question": check.question,
        "ok": check.is_kept,
        "breaches": check.breaches,
        "examples": check.examples,
    }
