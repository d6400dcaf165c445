"""`manage.py resolve`: lists messages in doubt and settles them."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Q, QuerySet

from campaigns.engine.decisions import Verdict
from campaigns.engine.doubts import causes
from campaigns.engine.doubts import resolve as doubts_resolve
from campaigns.engine.doubts.causes import Cause, DoubtLook
from campaigns.engine.doubts.resolve import CannotResolve, Resolved, count_decisions
from campaigns.models import Job, Resolution
from campaigns.models.states import Status
from campaigns.operations import actions, following, job_commands
from campaigns.operations.job_commands import NOT_YET, report_decisions
from vendors.history import Actor
from vendors.management.arguments import shell_user
from vendors.management.output import write_result, write_rows
from vendors.said import count_of

CAUSES = ("messages", "elsewhere", "vendor", "sponsor", "campaign", "key")
COLUMNS = ("message", "job", "campaign", "vendor", "recipient", "called", "seen", "waits_for")


class Command(BaseCommand):
    help = (
        "Lists messages in doubt (the vendor may have them, its answer was lost), or settles them as you found out: "
        "those that you name, all or none, those of one cause, or those of jobs that have ended, by --job, --vendor "
        "and the like. " + job_commands.CODES
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("messages", nargs="*", type=int, metavar="MESSAGE")
        parser.add_argument(
            "--as",
            dest="decision",
            choices=Resolution.Decision.values,
            help="sent: the vendor has it; failed: it has not, given up; resend: call again; same: the account "
            "is unchanged since the call, so the vendor may be asked",
        )
        parser.add_argument("--list", action="store_true", help="show messages in doubt, with what was seen of each")
        parser.add_argument("--causes", action="store_true", help="with --list: how many have which cause")
        parser.add_argument("--cause", metavar="KEY", help="all of this cause, as --list --causes names it")
        parser.add_argument("--job", type=int, metavar="ID", help="of this job")
        job_commands.add_lookups(parser)
        job_commands.add_limit(parser, "first")
        job_commands.add_deciding_flags(parser)
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")

    def handle(self, *args: Any, **options: Any) -> None:
        jobs = _jobs_looked_up(options)
        if options["list"] and options["causes"]:
            write_rows(self.stdout, map(_cause_facts, causes.list_causes(DoubtLook())), options["json"], CAUSES)
            return
        if options["list"]:
            self._list_doubts(doubts_resolve.list_doubts(jobs=jobs), options)
            return
        decided, named = options["decision"] and options["reason"].strip(), bool(options["messages"])
        if not decided or [named, jobs is not None, bool(options["cause"])].count(True) != 1:
            usage = (
                "say --list, or --as sent|failed|resend|same --reason TEXT and which: MESSAGE ..., --cause KEY, or "
                "--job, --vendor ..."
            )
            raise CommandError(usage, returncode=2)
        if options["cause"]:
            self._settle_cause(options)
        elif jobs is None:
            self._settle_named(options)
        else:
            self._settle_jobs(jobs, options)

    def _list_doubts(self, rows: QuerySet[Any], options: dict[str, Any]) -> None:
        limit = job_commands.rows_to_list(options)
        shown = map(doubts_resolve.doubt_facts, rows[:limit].iterator())
        write_rows(self.stdout, shown, options["json"], COLUMNS)
        if not options["json"] and limit and (total := rows.count()) > limit:
            self.stdout.write(f"the first {limit:,} of {count_of(total, 'message')}; --limit 0 shows all")

    def _settle_named(self, options: dict[str, Any]) -> None:
        ids, decision, by = options["messages"], options["decision"], options["by"] or shell_user()
        if options["dry_run"]:
            named = list(map(doubts_resolve.doubt_facts, doubts_resolve.list_doubts().filter(pk__in=ids)))
            self._say_what_would_be(len(named), len({row["job"] for row in named}), options)
            return
        self._settle_and_say(lambda: actions.settle_doubts(ids, decision, options["reason"], by), options)

    def _settle_cause(self, options: dict[str, Any]) -> None:
        try:
            cause = causes.parse_cause(options["cause"])
        except ValueError as why:
            raise CommandError(str(why), returncode=2) from None
        ids, version = causes.version_of_messages(causes.messages_of(cause))
        if options["dry_run"]:
            self._say_what_would_be(len(ids), 1, options)
            return
        job_commands.confirm_at_terminal(_settle_question(len(ids), 1, options), options)
        by = Actor(options["by"] or shell_user())
        self._settle_and_say(
            lambda: actions.settle_causes([(cause, version)], options["decision"], options["reason"], by), options
        )

    def _settle_and_say(self, settle: Callable[[], Resolved], options: dict[str, Any]) -> None:
        """Settle doubts and print the result."""
        decision = options["decision"]
        try:
            done = settle()
        except CannotResolve as error:
            raise CommandError(str(error), returncode=NOT_YET if error.later else 1) from None
        facts = {"messages": done.messages, "as": decision, "sent_again": done.ready, "held": done.held}
        write_result(self.stdout, settled_sentence(done, decision), facts, options["json"])
        if options["wait"]:
            job_commands.wait_for_jobs(self, list(done.ready), options, following.OVER)

    def _settle_jobs(self, jobs: "QuerySet[Job]", options: dict[str, Any]) -> None:
        """Settle one leaf after the other; the look-ups find a parent's children."""
        ended = jobs.filter(status=Status.LOGGED, in_doubt__gt=0).order_by("pk")
        ids = list(ended.values_list("pk", flat=True))
        seen, number = count_decisions(ids), doubts_resolve.list_doubts(jobs=ended).count()
        if options["dry_run"]:
            self._say_what_would_be(number, len(ids), options)
            return
        job_commands.confirm_at_terminal(_settle_question(number, len(ids), options), options)
        how = options["decision"], Actor(options["by"] or shell_user()), options["reason"]
        answers = [answer for one in ids for answer in actions.settle_jobs([one], *how, seen[one])]
        report_decisions(self.stdout, answers, options["json"])
        if options["wait"]:
            sending = [job_id for one in answers if one.verdict == Verdict.DONE for job_id in one.ready]
            job_commands.wait_for_jobs(self, sending, options, following.OVER)

    def _say_what_would_be(self, number: int, jobs: int, options: dict[str, Any]) -> None:
        facts = {"dry_run": True, "messages": number, "jobs": jobs, "as": options["decision"]}
        write_result(self.stdout, _settle_question(number, jobs, options), facts, options["json"])


def _cause_facts(cause: Cause) -> dict[str, Any]:
    names = ("messages", "elsewhere", "vendor", "sponsor", "campaign", "asked_again", "key")
    return {name: getattr(cause, name) for name in names}


def _jobs_looked_up(options: dict[str, Any]) -> "QuerySet[Job] | None":
    """Return the looked-up jobs, with a parent's children; None: no look-up was given."""
    if options["job"] is None:
        return job_commands.looked_up_jobs(options) if job_commands.any_lookup(options) else None
    if not Job.objects.filter(pk=options["job"]).exists():
        raise CommandError(f"there is no job {options['job']}")
    return job_commands.looked_up_jobs(options).filter(Q(pk=options["job"]) | Q(parent=options["job"]))


def _settle_question(number: int, jobs: int, options: dict[str, Any]) -> str:
    decision = Resolution.Decision(options["decision"]).label
    return f"this settles {count_of(number, 'message')} of {count_of(jobs, 'job')} as {decision}"


def settled_sentence(done: Resolved, decision: str) -> str:
    """Format the result as text."""
    parts = [f"{count_of(done.messages, 'message')}: {Resolution.Decision(decision).label}"]
    parts += [f"job {', '.join(map(str, done.ready))} sends again"] if done.ready else []
    parts += [f"job {', '.join(map(str, done.held))} was stopped: retry_job sends them"] if done.held else []
    return "; ".join(parts)
