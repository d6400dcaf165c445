"""The demo's display: on a terminal panels redrawn in place, elsewhere plain lines."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from campaigns.engine.lifecycle import GROUPS
from sandbox.demo.snapshot import Facts, JobView

EVERY = 5.0  # seconds


class PlainOutput:
    """Plain lines, with the progress every few seconds. A context manager like Screen."""

    def __init__(self, write: Callable[[str], object], summary: Callable[[Facts], str]) -> None:
        self._write, self._summary = write, summary
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
            self._write(f"{facts.at - self._began:5.1f} s    ({self._summary(facts)})")


WIDTH, HEIGHT = 100, 36  # the smallest terminal
SENTENCES = 6
FRAME = "grey50"
COLOURS = {"Rendered": "grey42", "Dispatched": "yellow", "Sending": "cyan", "Sent": "green", "Stopped": "red"}
GROUP = {str(status): name for name, statuses in GROUPS.items() for status in statuses}


class Screen:
    """Panels on a terminal, redrawn in place: the story's own, the vendors' accounts, and the latest sentences.

    `counted`: the unit of an entry in the vendors' books, shown after the number. A context manager.
    """

    def __init__(
        self, console: Console, panels: Callable[[Facts], Sequence[RenderableType]], counted: str = "calls"
    ) -> None:
        self._panels, self._counted, self._began = panels, counted, time.monotonic()
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
        vendors = panel("What the vendors say", _vendors(facts, self._counted), 99)
        story = panel(f"Story {_clock(self._began)}", Group(*self._sentences), 99, height=SENTENCES + 2)
        self._live.update(Group(*self._panels(facts), vendors, story), refresh=True)


def _vendors(facts: Facts, counted: str) -> Table:
    drawn = grid(13, 15, 14, 28, 14)
    for slug, vendor in facts.vendors.items():
        limit = vendor.limit
        full = Text(f"fullest {limit.seconds:g} s: {vendor.worst:,} of {limit.units:,}")
        full.stylize("green" if vendor.worst <= limit.units else "bold red")
        drawn.add_row(
            slug, f"{vendor.calls:,} {counted}", f"{vendor.speed:,.0f} a second", full, f"{vendor.violations} too fast"
        )
    return drawn


def grid(*widths: int) -> Table:
    drawn = Table.grid(padding=(0, 1))
    for width in widths:
        drawn.add_column(width=width, no_wrap=True)
    return drawn


def status(job: JobView) -> Text:
    """Return the status as the documents name it."""
    return Text(job.status, COLOURS[GROUP[job.status]])


def word(job: JobView) -> Text:
    """Return the name of the status's group."""
    return Text(GROUP[job.status], COLOURS[GROUP[job.status]])


def bar(job: JobView, width: int) -> ProgressBar:
    return ProgressBar(total=job.size, completed=job.answered, width=width, complete_style="green")


def panel(title: str, body: RenderableType, width: int, height: int | None = None) -> Panel:
    return Panel(body, title=title, title_align="left", border_style=FRAME, width=width, height=height, padding=(0, 1))


def _clock(began: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    return f"{minutes}:{seconds:02}"
