"""Plays the tales of the story to their ends, and sees to it that somebody watches."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from sandbox.demo.processes import Broken, Processes
from sandbox.demo.scenario import Story
from sandbox.demo.snapshot import Facts, look

BEAT = 0.2  # seconds between two looks
PATIENCE = 180.0  # seconds without any change


class Watcher(Protocol):
    def tell(self, sentence: str) -> None: ...

    def show(self, facts: Facts) -> None: ...


def play(processes: Processes, story: Story, watcher: Watcher) -> None:
    """Returns when all tales are told. Raises Broken if a process ends or nothing moves for three minutes."""
    tales, moved = story.tales(), time.monotonic()
    while tales:
        processes.check()
        before, story.facts = story.facts, look(processes.vendors, story.facts)
        if story.facts.progress != before.progress:
            moved = story.facts.at
        elif story.facts.at - moved > PATIENCE:
            raise Broken(f"Nothing has moved for {PATIENCE:g} s.")
        watcher.show(story.facts)
        tales = [tale for tale in tales if _goes_on(tale)]
        time.sleep(BEAT)
    watcher.show(look(processes.vendors, story.facts))


def stay(processes: Processes) -> None:
    """Until Ctrl-C. Raises Broken if a process ends."""
    with suppress(KeyboardInterrupt):
        while True:
            processes.check()
            time.sleep(BEAT)


def _goes_on(tale: Iterator[None]) -> bool:
    """One step."""
    try:
        next(tale)
    except StopIteration:
        return False
    return True
