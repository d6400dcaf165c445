"""One way in which a vendor can misbehave, and what the call must come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

Expected = Outcome | tuple[type, ...]

WHY = {
    Accepted: "it would count as sent, and nothing proves that the vendor has it",
    Refused: "the recipient would count as refused for good, and the vendor has not refused it",
    NotSent: "it would be sent again, and the vendor may have it",
    InDoubt: "a person would have to look at it, and what became of it is known",
}
"""What an outcome would do where another one is right."""


@dataclass(frozen=True)
class Trial:
    """One misbehaviour and what the call must come to: an outcome in full, or one of some types.

    `limits`: settings that the case needs; they end the call soon only where the deadline is what ends it. `fresh`:
    happens on a new connection only. `answered`: the vendor has answered as a whole, so that its contract may give the
    answer another meaning (`AdapterContract.differs`).
    """

    name: str
    behaviour: Any
    expected: Expected
    limits: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    answered: bool = False

    def matches(self, outcome: Outcome, exact: bool) -> bool:
        """exact: also the texts, which are for readers, and the vendor's code of a refusal."""
        if isinstance(self.expected, tuple):
            return isinstance(outcome, self.expected)
        return outcome == self.expected if exact else _bare(outcome) == _bare(self.expected)

    def complaint(self, outcome: Outcome) -> str:
        """What is wrong with an outcome that does not match."""
        if isinstance(self.expected, tuple):
            right = " or ".join(one.__name__ for one in self.expected)
            same = False
        else:
            right, same = repr(self.expected), type(outcome) is type(self.expected)
        why = "" if same else f" As {type(outcome).__name__} {WHY[type(outcome)]}."
        return f"{self.name}: the outcome must be {right}; it is {outcome!r}.{why}"


def _bare(outcome: Outcome) -> tuple[Any, ...]:
    """What mailhub decides by."""
    match outcome:
        case Accepted(vendor_id):
            return Accepted, vendor_id
        case Refused():
            return (Refused,)
        case NotSent(_, retry_after, scope, pause):
            return NotSent, retry_after, scope, pause
        case InDoubt(_, pause):
            return InDoubt, pause
