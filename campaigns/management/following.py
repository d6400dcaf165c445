"""Waits for jobs to end and says how they did: for the commands with --wait. Bars that show how far a command is."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Protocol

from django.core.management.base import CommandError
from django.db.models import Q
from django.utils import timezone

from campaigns.forecast import eta
from campaigns.lifecycle import DONE, RUNNING, Status
from campaigns.models import Job
from campaigns.progress import Progress, of_jobs

POLL_SECONDS = 0.5
REST = 4  # pauses last so many times as long as the last look, so that many jobs are not counted all the time
OVER = (*DONE, Status.STOPPED, Status.P_STOPPED)
RECORDED = (*DONE, Status.P_STOPPED)  # and what was in flight at a stop is recorded
FAILED, IN_DOUBT, INTERRUPTED = 4, 5, 130  # exit codes


class Bar(Protocol):
    def __call__(self, done: int, said: str = "") -> None: ...


AddBar = Callable[[str, int], Bar]


@contextmanager
def bars(foretold: bool = False) -> Iterator[AddBar]:
    """Yields what adds a bar, by its label and total; call the bar with how much is done.

    foretold: the caller says what stands beside it: a rate of the last seconds tells nothing of a vendor's window.
    On standard error, and only if that is a terminal; they are gone in the end.
    """
    if not sys.stderr.isatty():
        yield lambda label, total: lambda done, said="": None
        return
    # Here, because loading it takes longer than storing a short list does.
    from rich import progress
    from rich.console import Console
    from rich.table import Column

    name = progress.TextColumn("{task.description}")
    text = progress.TextColumn("{task.fields[said]}", table_column=Column())  # broken between words
    columns = (name, progress.BarColumn(20), text) if foretold else progress.Progress.get_default_columns()
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:

        def add(label: str, total: int) -> Bar:
            bar = shown.add_task(label, total=total, said="")
            return lambda done, said="": shown.update(bar, completed=done, said=said, refresh=foretold)

        yield add


def follow(job_ids: Iterable[int], over: Iterable[Status] = OVER) -> Progress:
    """Waits until all the jobs and their children are over, or wait for somebody; returns the progress of all together.

    Shows a progress bar on standard error, if that is a terminal. Raises CommandError at Ctrl-C.
    """
    ids, states = list(job_ids), tuple(over)
    try:
        with bars(foretold=True) as add:
            bar = add("Sending", _sums(ids).size)
            while True:
                began = monotonic()
                sums = _sums(ids)
                bar(sums.size - sums.open, _said(ids, sums))
                if not _open(ids, states):
                    return _sums(ids)
                sleep(max(POLL_SECONDS, REST * (monotonic() - began)))
    except KeyboardInterrupt:
        raise CommandError("sending goes on without you", returncode=INTERRUPTED) from None


def _said(ids: list[int], sums: Progress) -> str:
    """How many are done, and of a single job what comes next and about when it ends, as list_jobs says it."""
    counts = f"{sums.size - sums.open:,} of {sums.size:,}"
    if len(ids) != 1 or not sys.stderr.isatty():
        return counts
    rows = list(eta.described(Job.objects.filter(pk__in=ids)))
    forecasts = eta.of_jobs(rows, of_jobs(rows), timezone.now())
    return ", ".join(filter(None, (counts, *(text for one in forecasts.values() for text in (one.next, one.ends)))))


def ending(sums: Progress) -> str:
    """The counts as one line of text."""
    counts = {
        "accepted": sums.accepted,
        "refused": sums.refused,
        "expired": sums.expired,
        "suppressed": sums.suppressed,
        "in doubt": sums.in_doubt,
        "not sent": sums.open,
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing"


def facts(sums: Progress) -> dict[str, int]:
    """The same for --json."""
    names = ("size", "accepted", "refused", "expired", "suppressed", "in_doubt", "waiting", "units")
    return {name: getattr(sums, name) for name in names}


def code(sums: Progress) -> int:
    """The exit code. 0: all are accepted that are not suppressed; IN_DOUBT: some need attention; FAILED: some failed,
    expired or were not sent.
    """
    if sums.in_doubt:
        return IN_DOUBT
    return FAILED if sums.accepted < sums.size - sums.suppressed else 0


def _sums(ids: list[int]) -> Progress:
    return sum(of_jobs(Job.objects.filter(pk__in=ids)).values(), start=Progress())


def _open(ids: list[int], over: tuple[Status, ...]) -> bool:
    mine = Job.objects.filter(Q(pk__in=ids) | Q(parent__in=ids))
    waits = Q(paused_at__isnull=False) & ~Q(status__in=RUNNING)  # also behind the first N: then a person may resume it
    return mine.exclude(status__in=over).exclude(waits).exists()
