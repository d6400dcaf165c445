"""A story that the demo tells: its vendors, what happens with them, what is shown, and what must have come out.

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
    """limits: its vendors; facts: the state, set anew before each step; tell: shows a sentence."""

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
        """Of the sandbox vendor."""

    @abstractmethod
    def make_vendors(self, processes: Processes) -> None:
        """All servers answer, and the tables are there. Raises Broken."""

    @abstractmethod
    def load_lists(self) -> None: ...

    @abstractmethod
    def scenarios(self) -> Sequence[Scenario]: ...

    @abstractmethod
    def summary(self, facts: Facts) -> str:
        """How far everything is, in a line."""

    @abstractmethod
    def panels(self, facts: Facts) -> Sequence[RenderableType]:
        """The same on a terminal."""

    @abstractmethod
    def points(self) -> Sequence[Point]:
        """What has to be true at the end, beside that the books agree."""

    def remark(self) -> str:
        """What is to be said of it at the end, or empty."""
        return ""

    def _job(self, id: int) -> JobView:
        return self.facts.jobs[id]

    def _until_done(self, *ids: int) -> Scenario:
        yield  # at least one new look: the facts are older than what was just done
        while not all(id in self.facts.jobs and self.facts.jobs[id].done for id in ids):
            yield

    def _until_sure(self, *ids: int) -> Scenario:
        """Reconcile until nothing is in doubt: on a machine that stalls any answer may be lost."""
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
    """Resume it once; False if it is over."""
    try:
        next(scenario)
    except StopIteration:
        return False
    return True
