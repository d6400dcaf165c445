"""A story of the demo: its vendors, the events, the display, and the expected results.

Its scenarios run side by side. Each is a generator that yields while it waits; `play` resumes all of them a few times a
second and shows the state.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from rich.console import RenderableType

from campaigns.tasks import settle_doubts
from sandbox.demo.processes import Broken, DemoLimits, Processes
from sandbox.demo.snapshot import Facts, JobView, look

SETTLE_EVERY = 2.0  # seconds
Scenario = Iterator[None]
Point = tuple[bool, str, str]
"""Whether something came out as promised, the sentence that says so, and the one that says that it did not."""


class Story(ABC):
    """A story. `limits`: its vendors. `facts`: the state, updated before each step. `tell`: shows a sentence."""

    limits: Mapping[str, DemoLimits]
    tries: Sequence[str]
    """Commands to try in another terminal."""
    counted = "calls"
    """What its vendors have in their books."""

    def __init__(self) -> None:
        self.facts = Facts(time.monotonic())
        self.tell: Callable[[str], None] = print

    @abstractmethod
    def options(self, slug: str) -> list[str]:
        """Return the options of the sandbox vendor."""

    @abstractmethod
    def make_vendors(self, processes: Processes) -> None:
        """Create the vendors. All servers answer and the tables exist by now. Raises Broken."""

    @abstractmethod
    def load_lists(self) -> None: ...

    @abstractmethod
    def scenarios(self) -> Sequence[Scenario]: ...

    @abstractmethod
    def summary(self, facts: Facts) -> str:
        """Return the progress in one line."""

    @abstractmethod
    def panels(self, facts: Facts) -> Sequence[RenderableType]:
        """Return the progress as panels for a terminal."""

    @abstractmethod
    def points(self) -> Sequence[Point]:
        """Return what must be true at the end, besides that the books agree."""

    def remark(self) -> str:
        """Return a closing remark, or ""."""
        return ""

    def _job(self, id: int) -> JobView:
        return self.facts.jobs[id]

    def _until_done(self, *ids: int) -> Scenario:
        yield  # at least one new look, since the facts are older than the last action
        while not all(id in self.facts.jobs and self.facts.jobs[id].done for id in ids):
            yield

    def _until_sure(self, *ids: int) -> Scenario:
        """Reconcile until nothing is in doubt, because a machine that stalls may lose any answer."""
        while any(self._job(id).in_doubt for id in ids):
            settle_doubts.apply_async(expires=60)
            yield from self._pause(SETTLE_EVERY)

    def _pause(self, seconds: float) -> Scenario:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            yield


BEAT = 0.2  # seconds between two looks
PATIENCE = 180.0  # seconds without any change


class Watcher(Protocol):
    def tell(self, sentence: str) -> None: ...

    def show(self, facts: Facts) -> None: ...


def play(processes: Processes, story: Story, watcher: Watcher) -> None:
    """Run all scenarios to their ends. Raises Broken if a process ends or nothing changes for PATIENCE seconds."""
    scenarios, moved = story.scenarios(), time.monotonic()
    while scenarios:
        processes.check()
        before, story.facts = story.facts, look(processes.vendors, story.facts)
        if story.facts.progress != before.progress:
            moved = story.facts.at
        elif story.facts.at - moved > PATIENCE:
            raise Broken(f"Nothing has moved for {PATIENCE:g} s.")
        watcher.show(story.facts)
        scenarios = [scenario for scenario in scenarios if _goes_on(scenario)]
        time.sleep(BEAT)
    watcher.show(look(processes.vendors, story.facts))


def stay(processes: Processes) -> None:
    """Wait for Ctrl-C. Raises Broken if a process ends."""
    with suppress(KeyboardInterrupt):
        while True:
            processes.check()
            time.sleep(BEAT)


def _goes_on(scenario: Iterator[None]) -> bool:
    """Resume the scenario once. Returns False if it is over."""
    try:
        next(scenario)
    except StopIteration:
        return False
    return True
