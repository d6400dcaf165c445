"""`manage.py status`: the operations page on a terminal."""

from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain
from textwrap import fill
from time import sleep
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error
from django.utils import timezone
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from campaigns.engine.failover import recovery
from campaigns.engine.journal import find_trouble, layout
from campaigns.reporting.forecast import streams
from campaigns.reporting.forecast.streams import VendorStreams
from mailhub import running_versions
from mailhub.monitoring import probes
from mailhub.operations import charts, dashboard, findings, outcomes
from vendors import alarms, deferrals, redis_clients
from vendors.deferrals import wait_facts
from vendors.management.facts import condition_facts
from vendors.management.output import PIPE_WIDTH, write_json
from vendors.not_now import find_refusal_text
from vendors.said import count_of

REDRAW_SECONDS = 2.0
MINUTES = 30
NARROW = 110  # columns; a narrower terminal shows only the most important ones
NAMED = 2  # queues without a worker shown by name; beyond that only their number
BLOCKS = "▁▂▃▄▅▆▇█"
SLUG = 16  # columns of a vendor's name
STYLES = {"good": "green", "idle": "default", "warn": "bold yellow", "bad": "bold red"}
FEWEST = 10  # least number of blocks if space is short


class Command(BaseCommand):
    help = (
        "The operations page on a terminal: every vendor's limits, windows, queue and end, and the workers. "
        "Exit codes: 0 shown, 1 the database does not answer or --check found something, 2 usage."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--watch", action="store_true", help="redraw every 2 seconds until Ctrl-C")
        how.add_argument(
            "--check",
            action="store_true",
            help="only what is wrong: jobs that no sender begins, vendors that fail or may not be called while mail "
            "waits, a silent beat, receiving domains that accept nothing for hours, errors of `doctor` that are "
            "quickly found, such as a constraint that refuses messages, processes of another version or adapter, a "
            "wrong clock",
        )
        how.add_argument("--json", action="store_true", help="one object a vendor")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._show_once(options)
        except Error as error:
            if not find_refusal_text(error):
                raise
            raise CommandError("; ".join(probes.refusing_sentences()) or str(error)) from error

    def _show_once(self, options: dict[str, Any]) -> None:
        if options["json"]:
            seen = dashboard.read_dashboard()
            running = {one.vendor_id: one for one in seen.streams}
            write_json(self.stdout, (_vendor_row_facts(row, running[row.vendor.pk]) for row in seen.vendors))
        elif options["check"]:
            self._check_or_fail()
        elif options["watch"]:
            self._watch_live()
        else:
            terminal = self.stdout.isatty()
            console = Console(force_terminal=terminal, width=None if terminal else PIPE_WIDTH, highlight=False)
            with console.capture() as text:
                console.print(_status_page(dashboard.ask_workers(), console.width))
            self.stdout.write(text.get().rstrip())

    def _check_or_fail(self) -> None:
        if halt := recovery.current_halt():
            raise CommandError(alarms.NOTHING_CALLED.text % _describe_halt(halt))
        away = probes.refusing_sentences()
        late = streams.late_alarms(streams.streams_of_vendors())
        rows = [] if away else dashboard.read_dashboard().vendors
        failing = dashboard.failing_vendors(rows)
        # The first that has something names the fault; all are shown.
        found: dict[str, Sequence[object]] = {
            "a server or a process is in trouble": away,
            f"{count_of(len(late), 'vendor has', 'vendors have')} jobs that wait": late,
            f"{count_of(len(failing), 'vendor fails', 'vendors fail')}, and mail waits": failing,
            "nothing may be called, and mail waits": dashboard.uncalled_vendors(rows, timezone.now()),
            "beat sends nothing": [] if away else _list_beat_faults(mail_waits=any(row.waiting for row in rows)),
            "receiving domains have accepted nothing for hours": [] if away else deferrals.lasting_waits(),
            "the installation loses mail or refuses it": findings.wrong_findings(),
            "processes of another version need a restart": [] if away else findings.version_findings(),
            "workers need a restart": dashboard.restart_sentences(),
            "a clock was wrong within the hour": findings.clock_findings(),
        }
        for alarm in chain.from_iterable(found.values()):
            self.stdout.write(str(alarm))
        if fault := next((fault for fault, alarms_of_it in found.items() if alarms_of_it), None):
            raise CommandError(fault)

    def _watch_live(self) -> None:
        try:
            with Live(auto_refresh=False, screen=False) as live:
                while True:
                    live.update(_status_page(dashboard.ask_workers(), live.console.width), refresh=True)
                    sleep(REDRAW_SECONDS)
        except KeyboardInterrupt:
            return


def _list_beat_faults(*, mail_waits: bool) -> list[str]:
    """Say that beat has fallen silent, or that it never ran although there is mail for it."""
    fault = probes.find_beat_fault()
    return [fault] if fault and (mail_waits or probes.beat_sent_at() is not None) else []


def _describe_halt(halt: recovery.Halt) -> str:
    return f"{halt.why} ({halt.held})" if halt.held else halt.why


def _status_page(found: dashboard.Workers, width: int) -> RenderableType:
    now, seen = timezone.now(), dashboard.read_dashboard()
    lines = {one["name"]: one["values"] for one in charts.throughput_series(now, MINUTES)["vendors"]}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("vendor", no_wrap=True)
    table.add_column("limit")
    table.add_column("window")
    table.add_column("waiting", justify="right")
    table.add_column("ends about")
    table.add_column("condition")
    more = width >= NARROW
    for column in ("good answers", "by the minute") if more else ():
        table.add_column(column)
    for row in seen.vendors:
        limits, windows = ("\n".join(parts) for parts in (_limit_lines(row), _window_lines(row)))
        state = Text(row.state, style=STYLES[row.look])
        line = Sparkline(lines.get(row.vendor.slug, []))
        wide = (row.ratio, line) if more else ()
        ends = Text("\n".join(["no end" if row.state in row.ends else row.ends, *row.apart]))  # the reason once
        problems = [*row.notes, *_receiver_lines_of(row), *_doubt_lines(row), row.refused_reports]
        problems += [row.remedy.command if row.remedy else ""]
        state.append("".join(f"\n{problem}" for problem in problems if problem), style="default")
        name = fill(row.vendor.slug, max(SLUG, width // 5))  # broken at a hyphen
        table.add_row(name, limits, windows, f"{row.waiting:,}", ends, state, *wide)
    halt = recovery.current_halt()
    halted = [Text(f"Nothing is called: {_describe_halt(halt)}", style="bold red")] if halt else []
    wrong = (
        *seen.alarms,
        *seen.failing,
        *map(str, findings.wrong_findings()),
        *map(str, findings.version_findings()),
        *found.outdated,
        *map(str, findings.clock_findings()),
        *_journal_lines(),
    )
    late = [Text(alarm, style="bold red") for alarm in wrong]
    away = [Text(sentence, style="bold red") for sentence in probes.refusing_sentences()]
    return Group(*away, *halted, *late, Text(_headline_text(seen, found, width)), *_version_lines(found), table)


def _journal_lines() -> list[str]:
    """Say why senders in this home keep no journal of calls, if the folder is the reason."""
    trouble = find_trouble()
    return [alarms.NO_JOURNAL.text % (layout.journal_folder(), trouble)] if trouble else []


def _version_lines(found: dashboard.Workers) -> list[Text]:
    """Name the running processes by version; workers that say none are of 0.3.0 or before."""
    try:
        running = running_versions.read_processes()
    except redis_clients.WorkerRegistryUnreachable:
        return []
    own, by_version = running_versions.version_of_this_process(), defaultdict[str, Counter[str]](Counter)
    for process in running:
        of_other = "" if process.program.tables == own.tables else " (other tables)"
        by_version[f"{process.program.version}{of_other}"][process.name.partition("@")[0]] += 1
    named = {process.name for process in running}
    by_version["unknown, 0.3.0 or before"] += Counter(
        name.partition("@")[0] for name in found.names if name not in named
    )
    return [Text(f"version {one}: {_roles_text(roles)}") for one, roles in sorted(by_version.items()) if roles]


def _roles_text(roles: Counter[str]) -> str:
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in sorted(roles.items()))


def _headline_text(seen: dashboard.Dashboard, found: dashboard.Workers, width: int) -> str:
    at_work = "the broker does not answer" if found.lost else count_of(len(found.names), "worker")
    if found.unread:
        rest = len(found.unread) - NAMED
        at_work += f" (no worker reads {', '.join(found.unread[:NAMED])}{f' and {rest} more' if rest > 0 else ''})"
    at, today = f"{timezone.localtime(seen.at):%H:%M:%S}", seen.today
    waiting = count_of(seen.waiting, "message waits", "messages wait")
    attention = count_of(seen.attention, "needs attention", "need attention")
    now = f"{_streams_text(seen)}, {waiting}; {attention}; {at_work}"
    done = f"today {today['accepted']:,} sent, {today['refused']:,} failed"
    return f"{at}  {now}; {done}" if width >= NARROW else f"{at}  {now}\n{' ' * len(at)}  {done}"


def _streams_text(seen: dashboard.Dashboard) -> str:
    more, wait = "+" if seen.more_waiting else "", "waits" if seen.jobs_waiting == 1 else "wait"
    waiting = f" ({seen.jobs_waiting:,}{more} {wait} for one)" if seen.jobs_waiting else ""
    return f"{count_of(seen.running_streams, 'stream')}{waiting}"


def _receiver_lines_of(row: dashboard.VendorRow) -> list[str]:
    """Name the receiving domains that wait, and the command that shows their answers."""
    lines = row.receiver_lines
    return [*lines, f"manage.py receiver list {row.vendor.slug}"] if lines else []


def _doubt_lines(row: dashboard.VendorRow) -> list[str]:
    """Name the messages in doubt of a vendor, and the command that decides about them."""
    if not row.doubts:
        return []
    more = "+" if row.doubts >= dashboard.MOST_DOUBTS else ""
    return [f"{row.doubts:,}{more} in doubt: manage.py resolve --list --causes --vendor {row.vendor.slug}"]


def _limit_lines(row: dashboard.VendorRow) -> list[str]:
    return [meter.label for meter in row.meters] or ["none"]


def _window_lines(row: dashboard.VendorRow) -> list[str]:
    return ["?" if meter.used is None else f"{meter.used:,} of {meter.limit.units:,}" for meter in row.meters]


class Sparkline:
    """A block for each value; if space is short, the oldest are dropped."""

    def __init__(self, values: list[int]) -> None:
        most = max(values, default=0)
        self._blocks = "".join(BLOCKS[value * (len(BLOCKS) - 1) // most] for value in values) if most else ""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(FEWEST, len(self._blocks)), len(self._blocks)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._blocks[-options.max_width :])


def _vendor_row_facts(row: dashboard.VendorRow, running: VendorStreams) -> dict[str, Any]:
    meters = [{"units": m.limit.units, "seconds": m.limit.seconds, "used": m.used} for m in row.meters]
    return {
        "vendor": row.vendor.slug,
        "limits": meters,
        "jobs": row.jobs,
        "waiting": row.waiting,
        "streams": running.running,
        "jobs_waiting": running.waiting,
        "jobs_waiting_seconds": round(running.oldest, 1),
        "jobs_late": running.late,
        "ends": row.ends,
        "apart": row.apart,
        "classes": row.classes,
        "sponsors": [one.sharing_facts() for one in row.list_sharing(timezone.now())],
        "accepting": row.open,
        "state": row.state,
        "condition": condition_facts(row.condition),
        "notes": row.notes,
        "receivers": [wait_facts(one) for one in row.receivers.rows],
        "in_doubt": row.doubts,
        "command": row.remedy.command if row.remedy else "",
        "good": row.good,
        "bad": row.bad,
        "reports_today": row.reports,
        **{f"{name}_today": row.today.get(name, 0) for name in outcomes.COUNTS},
    }
