"""A misbehaviour of a vendor, with the required outcome of the call."""

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
    """One misbehaviour and the required outcome of the call: a complete outcome, or one of several types.

    `limits`: settings that the case needs; they end the call early only if the deadline is what ends it. `fresh`:
    happens only on a new connection. `answered`: the vendor's answer is complete, so its contract may give it another
    meaning (`AdapterContract.differs`).
    """

    name: str
    behaviour: Any
    expected: Expected
    limits: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    answered: bool = False

    def matches(self, outcome: Outcome, exact: bool) -> bool:
        """Return True if the outcome matches. `exact`: compare also texts, which are for readers, and refusal codes."""
        if isinstance(self.expected, tuple):
            return isinstance(outcome, self.expected)
        return outcome == self.expected if exact else _bare(outcome) == _bare(self.expected)

    def complaint(self, outcome: Outcome) -> str:
        """Say what is wrong with an outcome that does not match."""
        if isinstance(self.expected, tuple):
            right = " or ".join(one.__name__ for one in self.expected)
            same = False
        else:
            right, same = repr(self.expected), type(outcome) is type(self.expected)
        why = "" if same else f" As {type(outcome).__name__} {WHY[type(outcome)]}."
        return f"{self.name}: the outcome must be {right}; it is {outcome!r}.{why}"


def _bare(outcome: Outcome) -> tuple[Any, ...]:
    """Return the parts that mailhub's decisions depend on."""
    match outcome:
        case Accepted(vendor_id):
            return Accepted, vendor_id
        case Refused():
            return (Refused,)
        case NotSent(_, retry_after, scope, pause):
            return NotSent, retry_after, scope, pause
        case InDoubt(_, pause):
            return InDoubt, pause
