"""`manage.py recover_store`: lets calls resume after a failover or restore of PostgreSQL."""

from argparse import ArgumentParser
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware

from campaigns.engine.failover import holding, recovery
from campaigns.operations import answering
from campaigns.operations.job_commands import confirm_at_terminal
from vendors.history import Actor
from vendors.instants import check_instant, check_offset
from vendors.management.arguments import shell_user
from vendors.management.output import write_result

ANSWERS = (
    "Say what this is: --go-on, the only installation with these rows, so all is sent; --copy, another one goes on, so "
    "all jobs here are stopped; --since TIME, a backup that was begun then, so what may have been called is in doubt"
)


class Command(BaseCommand):
    help = (
        "After a failover or restore of PostgreSQL nothing is called until somebody runs this: it counts calls that "
        "may be unknown to the rows, puts them in doubt by the record in Redis (without a complete record: all "
        "waiting messages that may have been called), and lets calls start again. Also if calls are held because this "
        "installation may be a copy, was moved, or was away for long: then give one of --go-on, --copy and --since. "
        "Exit codes: 0 done, or nothing to do, 1 bad value, or none of these was given, 2 usage, or --yes is missing."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--since",
            metavar="TIME",
            help="ISO time with its zone, the start of the backup that holds these rows; also for a copy of the disk, "
            "which shows no sign of it",
        )
        parser.add_argument(
            "--without", nargs="+", type=int, default=[], metavar="JOB", help="jobs that surely had not begun"
        )
        parser.add_argument(
            "--go-on",
            action="store_true",
            help="calls are held: this is the only installation with these rows (the original, or moved), send all",
        )
        parser.add_argument(
            "--copy",
            action="store_true",
            help="calls are held: another installation with these rows continues; stop all jobs waiting here",
        )
        parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")
        parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
        parser.add_argument("--json", action="store_true", help="one object")
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")

    def handle(self, *args: Any, **options: Any) -> None:
        since, without = _parse_time(options["since"]), options["without"]
        if options["go_on"] or options["copy"]:
            self._answer_hold(options)
            return
        held = holding.hold_reason()
        if held is not None and since is None:
            if options["dry_run"]:
                write_result(self.stdout, f"{held}. {ANSWERS}", _held_facts(held), options["json"])
                return
            raise CommandError(f"{held}. {ANSWERS}")
        if recovery.person_needed_reason() is None and since is None:
            write_result(
                self.stdout, "the store is the one that it was: nothing to do", {"taken_over": False}, options["json"]
            )
            return
        losses = recovery.preview_recovery(since, without)
        if not options["dry_run"]:
            confirm_at_terminal(f"{recovery.describe_losses(losses)}. Calls start again after this", options)
            by, shown = (
                Actor(options["by"] or shell_user()),
                None if options["yes"] else recovery.version_of_takeover(losses),
            )
            try:
                losses = recovery.recover_store(by, options["reason"], since, without, shown)
            except recovery.Changed as error:
                raise CommandError(str(error)) from error
        after = "" if options["dry_run"] else ". Calls start again; `resolve --list` shows what is in doubt"
        facts = {
            "taken_over": True,
            "dry_run": options["dry_run"],
            "vendors": [recovery.loss_facts(one) for one in losses],
        }
        write_result(self.stdout, recovery.describe_losses(losses) + after, facts, options["json"])

    def _answer_hold(self, options: dict[str, Any]) -> None:
        held, copy = holding.hold_reason(), options["copy"]
        if copy and options["go_on"]:
            raise CommandError("--go-on and --copy exclude each other")
        if held is None:
            write_result(self.stdout, "calls are not held: nothing to do", {"held": None}, options["json"])
            return
        waiting = holding.find_waiting()
        does = f"{waiting}: all jobs are stopped" if copy else f"{waiting}: all that is due is sent"
        if not options["dry_run"]:
            confirm_at_terminal(does, options)
            by = Actor(options["by"] or shell_user())
            try:
                (answering.stop_copy if copy else answering.go_on)(by, options["reason"])
            except holding.NotHeld as error:
                raise CommandError(str(error)) from error
        facts = {**_held_facts(held, waiting), "answer": "copy" if copy else "go on", "dry_run": options["dry_run"]}
        write_result(self.stdout, does + ("" if options["dry_run"] else ". Calls start again"), facts, options["json"])


def _held_facts(held: str, waiting: holding.WaitingMail | None = None) -> dict[str, Any]:
    return {"held": held, **asdict(waiting or holding.find_waiting())}


def _parse_time(word: str | None) -> datetime | None:
    if word is None:
        return None
    try:
        if found := parse_datetime(check_offset(word)):
            return check_instant(make_aware(found) if is_naive(found) else found)
    except ValueError:
        pass
    raise CommandError(f"--since {word!r} is no time: write it like 2026-03-01T02:00Z")
