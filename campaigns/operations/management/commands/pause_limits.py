"""`manage.py pause_limits`: sets the bounce and complaint rates at which campaigns pause themselves."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from campaigns.lists.intake import BadInput
from campaigns.operations import job_commands, pausing
from vendors.history import Actor
from vendors.management.arguments import shell_user


class Command(BaseCommand):
    help = (
        "Changes the rates at which the campaigns of jobs pause themselves, also during sending. Paused ones continue "
        "only by resume_job. Exit codes: 0 done (or it was so already), 1 unknown job or bad value, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="+", type=int, metavar="ID")
        for name, what in (("bounce", "refused or bounced"), ("complaint", "about which somebody complained")):
            parser.add_argument(
                f"--{name}-limit",
                type=_limit,
                metavar="PERCENT",
                help=f"of those {what}; 0: never; default: the installation's",
            )
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        parser.add_argument("--json", action="store_true", help="one object a job")

    def handle(self, *args: Any, **options: Any) -> None:
        names = ("bounce_limit", "complaint_limit")
        limits = {
            name: None if options[name] == "default" else options[name] for name in names if options[name] is not None
        }
        if not limits:
            raise CommandError("say what is to be changed: --bounce-limit, --complaint-limit", returncode=2)
        by = Actor(options["by"] or shell_user())
        try:
            answers = pausing.set_limits(options["jobs"], limits, by, options["reason"])
        except BadInput as error:
            raise CommandError(str(error)) from error
        job_commands.report_decisions(self.stdout, answers, options["json"])


def _limit(text: str) -> float | str:
    if text == "default":
        return text
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no percentage, and not 'default'") from None
