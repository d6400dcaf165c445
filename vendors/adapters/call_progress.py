"""An adapter's notes during a call: letters that the vendor may have by now, and its answer to each.

The caller keeps them in case its process is killed. Other adapters tell nothing: all letters of their call may have
arrived.
"""

from contextvars import ContextVar
from typing import Protocol

from vendors.adapters.base import Letter
from vendors.outcomes import Outcome


class CallProgress(Protocol):
    """The caller. number: of the letter in the call, from 0."""

    def began(self, number: int) -> None:
        """Note that the vendor may have the letter as soon as this returns."""

    def answered(self, number: int, outcome: Outcome) -> None:
        """Note the outcome of one letter."""

    def next_letter(self) -> Letter | None:
        """Return a letter to send after the last one of the call, as part of it, or None."""

    def may_begin(self, number: int) -> bool:
        """Tell whether the letter may still be sent. If not, the adapter answers NotSent for it."""


progress: ContextVar[CallProgress | None] = ContextVar("call_progress", default=None)


def tells_progress(adapter: object) -> bool:
    """Return whether the adapter's own class says that it tells. Subclasses say so themselves."""
    return bool(vars(type(adapter)).get("tells_progress")) and "send" not in vars(adapter)


class NotedOutcomes(list[Outcome]):
    """The outcomes of a call, in order of its letters, each told to the caller as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self._progress = progress.get()

    def begin(self) -> None:
        """Tell that the vendor may have the next letter from now on."""
        if self._progress is not None:
            self._progress.began(len(self))

    def append(self, outcome: Outcome) -> None:
        number = len(self)
        super().append(outcome)
        if self._progress is not None:
            self._progress.answered(number, outcome)

    def next_letter(self) -> Letter | None:
        return None if self._progress is None else self._progress.next_letter()

    def may_begin(self) -> bool:
        """Tell whether the next letter may still be sent."""
        return self._progress is None or self._progress.may_begin(len(self))
