"""How long a receiving domain waits after an answer about us or our rate: rules as data (shaping.toml)."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vendors.causes import AnswerCause

RULES = Path(__file__).with_name("shaping.toml")
TEXT_MAX = 500
"""Characters of an answer that are read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Seconds to wait: `first` the first time, doubling up to `most`."""

    first: float
    most: float


@dataclass(frozen=True, slots=True)
class ShapingRule:
    """Conditions, all of which must hold; None: any."""

    shape: Shape
    cause: AnswerCause
    receiver: str | None
    text: re.Pattern[str] | None

    def fits_answer(self, receiver: str, cause: AnswerCause, text: str) -> bool:
        return (
            cause == self.cause
            and self.receiver in (None, receiver)
            and (self.text is None or self.text.search(text) is not None)
        )


OTHERWISE = Shape(300.0, 3600.0)
"""For causes without a rule."""


def shape_wait(receiver: str, cause: AnswerCause, text: str) -> Shape:
    """Return the waits of a receiving domain after this answer."""
    said = text[:TEXT_MAX]
    return next((rule.shape for rule in shaping_rules() if rule.fits_answer(receiver, cause, said)), OTHERWISE)


@cache
def shaping_rules() -> tuple[ShapingRule, ...]:
    """Return the rules in their order."""
    return tuple(
        ShapingRule(
            Shape(float(keys["first"]), float(keys["most"])),
            AnswerCause(keys["cause"]),
            keys.get("receiver"),
            re.compile(keys["text"], re.IGNORECASE) if "text" in keys else None,
        )
        for keys in tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"]
    )
