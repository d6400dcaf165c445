"""Waits for jobs to end and says how they did: for the commands with --wait. Bars that show how far a command is."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep

from django.core.management.base import CommandError
from django.db.models import Q

from campaigns.lifecycle import DONE, RUNNING, Status
from campaigns.models import Job
from campaigns.progress import Progress, of_jobs

POLL_SECONDS = 0.5
REST = 4  # pauses last so many times as long as the last look, so that many jobs are not counted all the time
OVER = (*DONE, Status.STOPPED, Status.P_STOPPED)
RECORDED = (*DONE, Status.P_STOPPED)  # and what was in flight at a stop is recorded
FAILED, IN_DOUBT, INTERRUPTED = 4, 5, 130  # exit codes

Bar = Callable[[int], None]
AddBar = Callable[[str, int], Bar]


@contextmanager
def bars() -> Iterator[AddBar]:
    """Yields what adds a bar, by its label and total; call the bar with how much is done.

    On standard error, and only if that is a terminal; they are gone in the end.
    """
    if not sys.stderr.isatty():
        yield lambda label, total: lambda done: None
        return
    # Here, because loading it takes longer than storing a short list does.
    from rich import progress
    from rich.console import Console

    with progress.Progress(console=Console(stderr=True), transient=True) as shown:

        def add(label: str, total: int) -> Bar:
            bar = shown.add_task(label, total=total)
            return lambda done: shown.update(bar, completed=done)

        yield add


def follow(job_ids: Iterable[int], over: Iterable[Status] = OVER) -> Progress:
    """Waits until all the jobs and their children are over, or wait for somebody; returns the progress of all together.

    Shows a progress bar on standard error, if that is a terminal. Raises CommandError at Ctrl-C.
    """
    ids, states = list(job_ids), tuple(over)
    try:
        with bars() as add:
            bar = add("Sending", _sums(ids).size)
            while True:
                began = monotonic()
                sums = _sums(ids)
                bar(sums.size - sums.open)
                if not _open(ids, states):
                    return _sums(ids)
                sleep(max(POLL_SECONDS, REST * (monotonic() - began)))
    except KeyboardInterrupt:
        raise CommandError("sending goes on without you", returncode=INTERRUPTED) from None


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
