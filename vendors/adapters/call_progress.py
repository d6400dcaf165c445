"""An adapter's notes during a call: letters that the vendor may have by now, and its answer to each.

The caller keeps them in case its process is killed. Other adapters tell nothing: all letters of their call may have
arrived.
"""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

from vendors.outcomes import Outcome


class CallProgress(Protocol):
    """The caller. number: of the letter in the call, from 0."""

    def began(self, number: int) -> None:
        """Note that the vendor may have the letter as soon as this returns."""

    def answered(self, number: int, outcome: Outcome) -> None:
        """Note the outcome of one letter."""


progress: ContextVar[CallProgress | None] = ContextVar("call_progress", default=None)


def tells_progress(adapter: object) -> bool:
    """Whether the adapter's own class says that it tells. A subclass says it anew: it may call in another way."""
    return bool(vars(type(adapter)).get("tells_progress")) and "send" not in vars(adapter)


class NotedOutcomes(list[Outcome]):
    """The outcomes of a call, in order, each told to the caller as it comes. numbers: of the letters sent."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__()
        self._progress, self._numbers = progress.get(), numbers

    def begin(self) -> None:
        """Tell that the vendor may have the next letter from now on."""
        if self._progress is not None:
            self._progress.began(self._numbers[len(self)])

    def append(self, outcome: Outcome) -> None:
        if self._progress is not None:
            self._progress.answered(self._numbers[len(self)], outcome)
        super().append(outcome)
