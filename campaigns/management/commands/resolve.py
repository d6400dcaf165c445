from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns import desk, doubts
from campaigns.claims.resolve import As, CannotResolve, Resolved
from campaigns.management.answers import NOT_YET, person
from campaigns.models import Job
from vendors.management import arguments
from vendors.management.output import tell, write_rows

SHOWN = 50  # rows of the table
COLUMNS = ("message", "job", "campaign", "vendor", "recipient", "called", "seen")


class Command(BaseCommand):
    help = (
        "Messages in doubt: the vendor may have them, its answer is lost. Lists them, or settles them as a person "
        "found out; all that are named or none. Exit codes: 0 done, 1 unknown or not in doubt (nothing changed), "
        "2 usage, 3 not yet: a job is still being sent or finalised."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("messages", nargs="*", type=int, metavar="MESSAGE")
        parser.add_argument(
            "--as",
            dest="decision",
            choices=As.values,
            help="sent: the vendor has it; failed: it has not, given up; resend: call again",
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")
        parser.add_argument("--list", action="store_true", help="show what is in doubt, and what was seen of it")
        parser.add_argument("--job", type=int, metavar="ID", help="with --list: of this job")
        parser.add_argument("--vendor", metavar="SLUG", help="with --list: of this vendor")
        parser.add_argument("--json", action="store_true", help="one object a message, or one for the decision")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            self._list(options)
        elif options["messages"] and options["decision"] and options["reason"].strip():
            self._settle(options)
        else:
            raise CommandError("say --list, or MESSAGE ... --as sent|failed|resend --reason TEXT", returncode=2)

    def _list(self, options: dict[str, Any]) -> None:
        job = Job.objects.filter(pk=options["job"]).first()
        if options["job"] and job is None:
            raise CommandError(f"there is no job {options['job']}")
        if options["vendor"]:
            arguments.vendor(options["vendor"])
        rows = doubts.doubts(job, options["vendor"])
        shown = map(doubts.facts, rows.iterator() if options["json"] else rows[:SHOWN])
        write_rows(self.stdout, shown, options["json"], COLUMNS)
        if not options["json"] and (total := rows.count()) > SHOWN:
            self.stdout.write(f"the first {SHOWN} of {total:,}; --json lists all")

    def _settle(self, options: dict[str, Any]) -> None:
        decision, by = options["decision"], options["by"] or person()
        try:
            done = desk.settle(options["messages"], decision, options["reason"], by)
        except CannotResolve as error:
            raise CommandError(str(error), returncode=NOT_YET if error.later else 1) from None
        facts = {"messages": done.messages, "as": decision, "sent_again": done.ready, "held": done.held}
        tell(self.stdout, sentence(done, decision), facts, options["json"])


def sentence(done: Resolved, decision: str) -> str:
    """What came of it, for people."""
    words = [f"{done.messages:,} message{'' if done.messages == 1 else 's'}: {As(decision).label}"]
    words += [f"job {', '.join(map(str, done.ready))} sends again"] if done.ready else []
    words += [f"job {', '.join(map(str, done.held))} was stopped: retry_job sends them"] if done.held else []
    return "; ".join(words)
