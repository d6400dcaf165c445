"""Waits for jobs to end and reports their outcome, for commands with --wait; also progress bars."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Protocol

from django.core.management.base import CommandError
from django.db.models import Q
from django.utils import timezone

from campaigns.engine.progress import Progress, progress_of_jobs
from campaigns.models import Job
from campaigns.models.states import DONE, RUNNING, Status
from campaigns.reporting.forecast import eta

POLL_SECONDS = 0.5
REST = 4  # a pause is that many times the last query's duration, so that counting stays a small load
OVER = (*DONE, Status.STOPPED, Status.P_STOPPED)
RECORDED = (*DONE, Status.P_STOPPED)  # and messages in flight at a stop are recorded
FAILED, IN_DOUBT, INTERRUPTED = 4, 5, 130  # exit codes


class Bar(Protocol):
    def __call__(self, done: int, said: str = "") -> None: ...


AddBar = Callable[[str, int], Bar]


@contextmanager
def show_bars(foretold: bool = False) -> Iterator[AddBar]:
    """Yield a function that adds a bar, by label and total; call the bar with the amount done.

    foretold: the caller supplies the text next to it, because a current rate says nothing about a vendor's window. Bars
    appear on standard error, only on a terminal, and vanish at the end.
    """
    if not sys.stderr.isatty():
        yield lambda label, total: lambda done, said="": None
        return
    # Imported here, because it takes longer than storing a short list.
    from rich import progress
    from rich.console import Console
    from rich.table import Column

    name = progress.TextColumn("{task.description}")
    text = progress.TextColumn("{task.fields[said]}", table_column=Column())  # wraps between words
    columns = (name, progress.BarColumn(20), text) if foretold else progress.Progress.get_default_columns()
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:

        def add_bar(label: str, total: int) -> Bar:
            bar = shown.add_task(label, total=total, said="")
            return lambda done, said="": shown.update(bar, completed=done, said=said, refresh=foretold)

        yield add_bar


def follow_jobs(job_ids: Iterable[int], over: Iterable[Status] = OVER) -> Progress:
    """Wait until all jobs and their children are over or paused; return their total progress.

    Paused are also those whose vendor or credential is called only after somebody has acted.

    Shows a progress bar on standard error, on a terminal. Raises CommandError at Ctrl-C.
    """
    ids, states = list(job_ids), tuple(over)
    try:
        with show_bars(foretold=True) as add:
            bar = add("Sending", _sum_jobs(ids).size)
            while True:
                began = monotonic()
                sums = _sum_jobs(ids)
                bar(sums.size - sums.open_messages, _progress_line(ids, sums))
                if not _are_jobs_open(ids, states) or (sums.paused and not sums.in_flight):
                    return _sum_jobs(ids)
                sleep(max(POLL_SECONDS, REST * (monotonic() - began)))
    except KeyboardInterrupt:
        raise CommandError("sending goes on without you", returncode=INTERRUPTED) from None


def _progress_line(ids: list[int], sums: Progress) -> str:
    """Return the number done and, for a single job, the next step and forecast as in list_jobs."""
    counts = f"{sums.size - sums.open_messages:,} of {sums.size:,}"
    if len(ids) != 1 or not sys.stderr.isatty():
        return counts
    rows = list(eta.select_related_rows(Job.objects.filter(pk__in=ids)))
    now = timezone.now()
    forecasts = eta.forecast_jobs(rows, progress_of_jobs(rows), now).values()
    texts = (
        text for one in forecasts for text in (one.next, one.stays, one.ends, one.describe_ahead(now, is_operator=True))
    )
    return ", ".join(filter(None, (counts, *texts)))


def jobs_pause_reason(job_ids: Iterable[int]) -> str:
    """Return why nothing more is called until somebody acts, and what to do; "" if that does not hold."""
    jobs = list(eta.select_related_rows(Job.objects.filter(pk__in=list(job_ids))))
    sums = progress_of_jobs(jobs)
    if not sum(sums.values(), start=Progress()).paused:
        return ""
    found = eta.forecast_jobs(jobs, sums, timezone.now()).values()
    reasons = (f"{one.next} ({one.remedy.command})" if one.remedy and one.remedy.command else one.next for one in found)
    return "; ".join(dict.fromkeys(filter(None, reasons)))


def format_end(sums: Progress) -> str:
    """Format the counts as one line."""
    counts = {
        "accepted": sums.accepted,
        "refused": sums.refused,
        "expired": sums.expired,
        "suppressed": sums.suppressed,
        "in doubt": sums.in_doubt,
        "not sent": sums.open_messages,
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing"


def counts_as_facts(sums: Progress) -> dict[str, int]:
    """Return the counts for --json."""
    names = ("size", "accepted", "refused", "expired", "suppressed", "in_doubt", "waiting", "units")
    return {name: getattr(sums, name) for name in names}


def exit_code(sums: Progress) -> int:
    """Return the exit code.

    0: all were accepted or suppressed. IN_DOUBT: some need attention. FAILED: some failed, expired or were not sent.
    """
    if sums.in_doubt:
        return IN_DOUBT
    return FAILED if sums.accepted < sums.size - sums.suppressed else 0


def _sum_jobs(ids: list[int]) -> Progress:
    return sum(progress_of_jobs(Job.objects.filter(pk__in=ids)).values(), start=Progress())


def _are_jobs_open(ids: list[int], over: tuple[Status, ...]) -> bool:
    mine = Job.objects.filter(Q(pk__in=ids) | Q(parent__in=ids))
    # including the pause after the first N, until a person resumes
    waits = Q(paused_at__isnull=False) & ~Q(status__in=RUNNING)
    return mine.exclude(status__in=over).exclude(waits).exists()
