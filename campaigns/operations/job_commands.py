"""Shared parts of the commands about jobs: look-up flags, confirmation, reports of decisions, waiting, exit codes."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from time import monotonic, sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db.models import Q, QuerySet

from campaigns.doors import filters
from campaigns.doors.sponsors import named_sponsor
from campaigns.engine.decisions import JobDecision, Verdict
from campaigns.models import Identity, Job
from campaigns.models.states import FINALISING, Status
from campaigns.operations import following
from vendors.history import Actor
from vendors.management import arguments
from vendors.management.arguments import shell_user
from vendors.management.output import write_json, write_result
from vendors.said import count_of

NOT_YET = 3
FINAL_WITHIN = 60.0  # seconds for which --wait awaits the end of a stopped job's finalising
SHOWN = 50  # rows of a list, unless --limit is given
LIMIT_MOST = 10**9
CODE_OF = {Verdict.UNKNOWN: 1, Verdict.STALE: 1, Verdict.BUSY: NOT_YET}


def report_decisions(out: OutputWrapper, answers: Iterable[JobDecision], as_json: bool) -> None:
    """Report the decisions, one line a job. Raises CommandError with the lowest exit code above 0."""
    decided = list(answers)
    bad = [answer for answer in decided if answer.verdict in CODE_OF]
    if as_json:
        write_json(
            out, ({"job": a.job_id, "verdict": a.verdict, "told": a.message, "messages": a.messages} for a in decided)
        )
    else:
        for answer in decided:
            if answer not in bad:
                out.write(answer.message)
    if bad:
        raise CommandError("\n".join(a.message for a in bad), returncode=min(CODE_OF[a.verdict] for a in bad))


NAMES = ("sponsor", "identity", "campaign", "vendor", "status", "since", "until")


def add_lookups(parser: ArgumentParser) -> None:
    """Add the look-ups of the admin's list as flags."""
    parser.add_argument("--sponsor", metavar="NAME")
    parser.add_argument("--identity", metavar="NAME", help="sent as this sender identity")
    parser.add_argument("--campaign", metavar="NAME", help="a campaign's name, or its number")
    parser.add_argument("--vendor", metavar="SLUG")
    parser.add_argument(
        "--status",
        metavar="STATUS",
        help='a status, a group such as Rendered or Sending, Paused, Failed or "Needs attention"',
    )
    parser.add_argument("--since", default="", metavar="TIME", help="created then or later; ISO date or time")
    parser.add_argument("--until", default="", metavar="TIME", help="created before")


def add_limit(parser: ArgumentParser, which: str) -> None:
    """Add --limit. which: the rows that remain, for the help: "newest"."""
    parser.add_argument(
        "--limit", type=int, metavar="N", help=f"the {which} N; 0: all; by default {SHOWN}, with --json all"
    )


def rows_to_list(options: Mapping[str, Any]) -> int | None:
    """Return the number of rows to list; None: all. Raises CommandError."""
    given: int | None = options["limit"]
    if given is None:
        return None if options["json"] else SHOWN
    if not 0 <= given <= LIMIT_MOST:
        raise CommandError(f"--limit is a number from 0 to {LIMIT_MOST:,}")
    return given or None


def any_lookup(options: Mapping[str, Any]) -> bool:
    return any(options[name] for name in NAMES)


def exclude_children(options: Mapping[str, Any]) -> Q:
    """Leave out children, which their parent represents, except in a look-up by a result of messages."""
    ends = [name.lower() for name in filters.ENDS]
    return Q() if (options["status"] or "").lower() in ends else Q(parent=None)


def looked_up_jobs(options: Mapping[str, Any]) -> "QuerySet[Job]":
    """Return the jobs that the flags name. Raises CommandError for unknown names and bad values."""
    found = Job.objects.all()
    if options["sponsor"]:
        found = found.filter(sponsor=named_sponsor(options["sponsor"]))
    if identity := options["identity"]:
        if not Identity.objects.filter(name=identity).exists():
            raise CommandError(f"there is no sender identity {identity!r}")
        found = found.filter(campaign__identity__name=identity)
    if options["vendor"]:
        found = found.filter(vendor=arguments.find_vendor(options["vendor"]))
    if campaign := options["campaign"]:
        number = Q(campaign_id=int(campaign)) if campaign.isdecimal() and len(campaign) < 19 else Q()
        found = found.filter(Q(campaign__name=campaign) | number if number else Q(campaign__name=campaign))
    try:
        if options["status"]:
            found = found.filter(filters.filter_by_status(options["status"]))
        return filters.created_between(found, options["since"], options["until"])
    except ValueError as error:
        raise CommandError(str(error)) from None


CODES = (
    "Exit codes: 0 done (or it was so already), 1 unknown name or bad value, 2 usage, or --yes is missing, 3 not yet; "
    "with --wait also 4 some failed or were not sent, 5 some need attention, 130 Ctrl-C (sending continues)."
)


class Deciding(BaseCommand):
    """A command that decides about jobs, given by id or by look-up flags; looked-up jobs are counted and confirmed.

    as_seen: the decision applies to the revision that was counted, and for a job named by id to --revision, so a repeat
    changes nothing. Without --revision it applies to the job's current state, even when repeated.
    """

    requires_system_checks = ()
    as_seen = False
    over: tuple[Status, ...] = following.OVER

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("jobs", nargs="*", type=int, metavar="ID")
        add_lookups(parser)
        add_deciding_flags(parser)
        parser.add_argument("--by", default="", metavar="NAME", help="who decides; default: the user of this shell")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is kept with the decision")
        if self.as_seen:
            parser.add_argument(
                "--revision",
                type=int,
                metavar="N",
                help="of the one job named (list_jobs --json has it): if somebody has decided since, change nothing",
            )

    def handle(self, *args: Any, **options: Any) -> None:
        ids = options["jobs"]
        if bool(ids) == any_lookup(options):
            raise CommandError("name the jobs by id, or by --sponsor, --vendor and the like", returncode=2)
        revision = options.get("revision")
        if revision is not None and len(ids) != 1:
            raise CommandError("--revision is that of one job: name it by its id", returncode=2)
        seen = dict.fromkeys(ids, revision)
        if not ids or options["dry_run"]:
            named = Job.objects.filter(pk__in=ids) if ids else looked_up_jobs(options)
            found = list(self.legal_jobs(named, options))
            text, counts = self.effect_numbers(found)
            if options["dry_run"] or not found:
                facts = {"dry_run": options["dry_run"], "jobs": len(found), **counts}
                write_result(self.stdout, text, facts, options["json"])
                return
            confirm_at_terminal(text, options)
            seen = {job.pk: job.revision if self.as_seen else None for job in found}
        by = Actor(options["by"] or shell_user())
        answers = [
            one for pk, of in seen.items() for one in self._decide_when_final(pk, by, {**options, "revision": of})
        ]
        report_decisions(self.stdout, answers, options["json"])
        if options["wait"]:
            wait_for_jobs(self, [one.job_id for one in answers if one.verdict == Verdict.DONE], options, self.over)

    def _decide_when_final(self, job_id: int, by: Actor, options: dict[str, Any]) -> list[JobDecision]:
        """Decide about one job. With --wait, the few seconds are awaited in which its last answers are stored."""
        until = monotonic() + FINAL_WITHIN
        while True:
            answers = self.decide_jobs([job_id], by, options)
            busy = options["wait"] and any(one.verdict == Verdict.BUSY for one in answers)
            family = Job.objects.filter(Q(pk=job_id) | Q(parent=job_id))
            if not busy or monotonic() > until or not family.filter(status__in=FINALISING).exists():
                return answers
            sleep(following.POLL_SECONDS)

    def legal_jobs(self, jobs: "QuerySet[Job]", options: dict[str, Any]) -> "QuerySet[Job]":
        """Return those jobs for which the decision is legal."""
        raise NotImplementedError

    def effect_numbers(self, jobs: list[Job]) -> tuple[str, dict[str, int]]:
        """Return the effect of the decision, as text and as facts for --json."""
        raise NotImplementedError

    def decide_jobs(self, ids: Iterable[int], by: Actor, options: dict[str, Any]) -> list[JobDecision]:
        """Make the decision about these jobs."""
        raise NotImplementedError


def add_deciding_flags(parser: ArgumentParser) -> None:
    """Add the flags of every command that changes jobs."""
    parser.add_argument("--yes", action="store_true", help="do not ask; needed without a terminal")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")
    parser.add_argument("--wait", action="store_true", help="stay until the jobs have ended; Ctrl-C stops nothing")
    parser.add_argument("--json", action="store_true", help="one object a job, with --wait another one for the end")


def somebody_there() -> bool:
    """Return True if a user at a terminal can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm_at_terminal(text: str, options: dict[str, Any]) -> None:
    """Ask at the terminal.

    Raises CommandError unless the answer is yes, or if there is neither a terminal nor --yes.
    """
    if options["yes"]:
        return
    if not somebody_there():
        raise CommandError(f"{text}; add --yes to do it", returncode=2)
    sys.stderr.write(f"{text}. Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", returncode=2)


def wait_for_jobs(command: BaseCommand, ids: list[int], options: dict[str, Any], over: Iterable[Status]) -> None:
    """Wait until the jobs have ended and report the result. Raises SystemExit with code 4 or 5 unless all went well."""
    if not ids:
        return
    sums = following.follow_jobs(ids, over)
    paused = following.jobs_pause_reason(ids)
    text = f"{count_of(len(ids), 'job')}: {following.format_end(sums)}"
    text += f"; {paused}" if paused else ""
    write_result(
        command.stdout,
        text,
        {"jobs": len(ids), **following.counts_as_facts(sums), "paused": paused or None},
        options["json"],
    )
    if over is not following.RECORDED and (code := following.exit_code(sums)):
        raise SystemExit(code)
