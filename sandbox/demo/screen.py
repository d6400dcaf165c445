"""The demo's display: on a terminal panels that are redrawn in place, elsewhere plain lines.

The panels show which caster sends what, how full the vendors' windows are, and what has happened so far.
"""

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from campaigns.lifecycle import GROUPS
from sandbox.demo import setup
from sandbox.demo.snapshot import Facts, JobView

EVERY = 5.0  # seconds


class PlainOutput:
    """Plain lines, with the progress every few seconds. A context manager, as Screen is."""

    def __init__(self, write: Callable[[str], object], jobs: setup.Jobs) -> None:
        self._write, self._jobs = write, jobs
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def tell(self, sentence: str) -> None:
        self._write(f"{time.monotonic() - self._began:5.1f} s  {sentence}")

    def show(self, facts: Facts) -> None:
        if facts.at - self._shown >= EVERY:
            self._shown = facts.at
            self._write(f"{facts.at - self._began:5.1f} s    {self._summary(facts)}")

    def _summary(self, facts: Facts) -> str:
        letters = sum(facts.jobs[id].done for id in self._jobs.letters)
        bulk = (f"{id} {facts.jobs[id].answered:,}/{facts.jobs[id].size:,}" for id in setup.DOCUMENT)
        post = (facts.jobs[id] for id in (self._jobs.spring, self._jobs.members))
        mail = (f"{job.name} {job.answered:,}/{job.size:,}" for job in post)
        return f"({', '.join([f'letters {letters}/{len(self._jobs.letters)}', *bulk, *mail])})"


WIDTH, HEIGHT = 100, 36  # the smallest terminal
SENTENCES = 6
UPPER = 14  # lines of the two upper panels
FRAME = "grey50"
COLOURS = {"Rendered": "grey42", "Dispatched": "yellow", "Sending": "cyan", "Sent": "green", "Stopped": "red"}
GROUP = {str(status): name for name, statuses in GROUPS.items() for status in statuses}


class Screen:
    """Panels on a terminal, redrawn in place. A context manager."""

    def __init__(self, console: Console, jobs: setup.Jobs) -> None:
        self._jobs, self._began = jobs, time.monotonic()
        self._sentences: deque[Text] = deque(maxlen=SENTENCES)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.stop()

    def tell(self, sentence: str) -> None:
        self._sentences.append(Text.assemble((f"{_clock(self._began)}  ", "grey50"), sentence))

    def show(self, facts: Facts) -> None:
        self._live.update(self._draw(facts), refresh=True)

    def _draw(self, facts: Facts) -> RenderableType:
        bulk = setup.LIMITS[setup.BULK]
        return Group(
            Columns(
                [
                    _panel(f"Seven mailcasters, {bulk.units:,} calls a second", _casters(facts), 50, UPPER),
                    _panel("Jobs of document 003", _document(facts), 48, UPPER),
                ],
                padding=(0, 1),
            ),
            _panel(f"Letters: the night, then {_limit_of(setup.PRINT)}", self._letters(facts), 99),
            _panel("E-mail: bounces, lost answers, stop and resume", self._post(facts), 99),
            _panel("What the vendors say", _vendors(facts), 99),
            _panel(f"Story {_clock(self._began)}", Group(*self._sentences), 99, height=SENTENCES + 2),
        )

    def _letters(self, facts: Facts) -> RenderableType:
        groups = [GROUP[facts.jobs[id].status] for id in self._jobs.letters if id in facts.jobs]
        legend = [(f"{groups.count(name):2} {name.lower()}   ", colour) for name, colour in COLOURS.items()]
        cells = [("■ " if n % 5 == 0 else "■", COLOURS[group]) for n, group in enumerate(groups, start=1)]
        return Group(Text.assemble(*cells), Text.assemble(*legend[:4]))

    def _post(self, facts: Facts) -> RenderableType:
        grid = _grid(14, 10, 22, 12, 12, 12)
        for id in (self._jobs.spring, self._jobs.members):
            if job := facts.jobs.get(id):
                counts = (f"{job.accepted:,} accepted", f"{job.refused} bounced", f"{job.in_doubt} in doubt")
                grid.add_row(job.name, _status(job), _bar(job, 22), *counts)
        return grid


def _casters(facts: Facts) -> Group:
    grid = _grid(3, 14, 11, 4, 10)
    for name, kind, low, high in setup.CASTERS:
        job = facts.caster(setup.BULK, name)
        sizes = f"{low:,}–{high:,}"
        if job:
            grid.add_row(name, kind, Text(sizes, "grey50"), str(job.id), _bar(job, 10))
        else:
            grid.add_row(name, kind, Text(sizes, "grey50"), "", Text("no job", "grey50"))
    rule = f"A child: {setup.PERCENTAGE} % of what remains of its parent,\nwithin the caster's minimum and maximum."
    return Group(grid, Text(f"\n{rule}\nJobs below {setup.THRESHOLD:,} are small: they are not cut.", "grey50"))


def _document(facts: Facts) -> Table:
    grid = _grid(5, 12, 7, 15)
    for id in setup.DOCUMENT:
        if job := facts.jobs.get(id):
            children = facts.children(id)
            grid.add_row(str(id), _status(job), f"{job.size:,}", _bar(job, 15))
            for child in children if id == 101 else []:
                grid.add_row(f" {child.id}", _status(child), f"{child.size:,}", _bar(child, 15))
    if children := facts.children(103):
        sent = sum(child.done for child in children)
        grid.add_row("", Text(f"{len(children)} children", "grey50"), "", Text(f"{sent} of them sent", "grey50"))
    return grid


def _vendors(facts: Facts) -> Table:
    grid = _grid(13, 15, 14, 28, 14)
    for slug, vendor in facts.vendors.items():
        limit = setup.LIMITS[slug]
        full = Text(f"fullest {limit.seconds:g} s: {vendor.worst:,} of {limit.units:,}")
        full.stylize("green" if vendor.worst <= limit.units else "bold red")
        grid.add_row(
            slug, f"{vendor.calls:,} calls", f"{vendor.speed:,.0f} a second", full, f"{vendor.violations} too fast"
        )
    return grid


def _grid(*widths: int) -> Table:
    grid = Table.grid(padding=(0, 1))
    for width in widths:
        grid.add_column(width=width, no_wrap=True)
    return grid


def _status(job: JobView) -> Text:
    return Text(job.status, COLOURS[GROUP[job.status]])


def _bar(job: JobView, width: int) -> ProgressBar:
    return ProgressBar(total=job.size, completed=job.answered, width=width, complete_style="green")


def _panel(title: str, body: RenderableType, width: int, height: int | None = None) -> Panel:
    return Panel(body, title=title, title_align="left", border_style=FRAME, width=width, height=height, padding=(0, 1))


def _limit_of(slug: str) -> str:
    limit = setup.LIMITS[slug]
    return f"{limit.units} in any {limit.seconds:g} s (in document 000: 60 s)"


def _clock(began: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    return f"{minutes}:{seconds:02}"
