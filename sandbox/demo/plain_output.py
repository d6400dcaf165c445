"""The demo without a terminal: sentences, and every few seconds how far it is."""

import time
from collections.abc import Callable
from typing import Self

from sandbox.demo import setup
from sandbox.demo.snapshot import Facts

EVERY = 5.0  # seconds


class PlainOutput:
    """A context manager, as the picture is."""

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
            self._write(f"{facts.at - self._began:5.1f} s    {self._words(facts)}")

    def _words(self, facts: Facts) -> str:
        letters = sum(facts.jobs[id].done for id in self._jobs.letters)
        bulk = (f"{id} {facts.jobs[id].answered:,}/{facts.jobs[id].size:,}" for id in setup.DOCUMENT)
        post = (facts.jobs[id] for id in (self._jobs.spring, self._jobs.members))
        mail = (f"{job.name} {job.answered:,}/{job.size:,}" for job in post)
        return f"({', '.join([f'letters {letters}/{len(self._jobs.letters)}', *bulk, *mail])})"
