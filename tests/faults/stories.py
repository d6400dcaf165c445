"""For each failpoint a story that leads there: rounds, the last of which passes the point."""

from dataclasses import dataclass
from typing import Any

from campaigns.engine import failpoints

VENDORS: dict[str, dict[str, Any]] = {
    "tells nothing": {},
    "looks up": {"lookup": "weak"},
    "looks up for sure": {"lookup": "strong"},
    "deduplicates": {"dedupe": True},
}


@dataclass(frozen=True)
class Story:
    """before: points armed in earlier rounds; nth: the pass at which the point fires; stopping: of its round.

    loses_journals: the home is gone with the container of the first that died.
    """

    vendor: str
    nth: int = 1
    before: tuple[str, ...] = ()
    stopping: bool = False
    loses_journals: bool = False


IN_MID_STREAM = (
    "after_claim",
    "before_mark_waits",
    "after_mark_waits",
    "before_mark_called",
    "after_mark_called",
    "before_call",
    "after_call",
    "before_mark_answered",
    "after_mark_answered",
    "before_record",
    "after_record",
    "before_mark_stored",
    "after_mark_stored",
    "before_merge",
    "mid_merge",
    "before_done",
    "after_done",
)
READING = ("mid_journal", "after_take_job", "before_forget_journal", "after_forget_journal")
SETTLING = ("after_due", "before_repeat", "after_repeat", "before_settle", "after_settle")


def story(point: str) -> Story:
    """The story of a point; kinds of vendors take turns where the point allows it."""
    vendor = list(VENDORS)[failpoints.NAMES.index(point) % len(VENDORS)]
    if point in SETTLING:
        return Story("looks up for sure" if vendor == "looks up for sure" else "deduplicates", before=("",))
    if point == "after_recover":  # by its lease
        return Story(vendor, before=("before_call:2",), loses_journals=True)
    if point in READING or point == "after_doubt":
        return Story(vendor, before=("before_call:2",))
    if point in ("before_put_back", "after_put_back"):
        return Story(vendor, stopping=True)
    return Story(vendor, nth=3 if point in IN_MID_STREAM else 1)


def pairs() -> list[tuple[str, str]]:
    """All pairs: (point of the first death, point of the second)."""
    return [(first, second) for first in failpoints.NAMES for second in failpoints.NAMES]


def sample() -> list[tuple[str, str]]:
    """A sample of the pairs: a third of the points as the first, each with another second."""
    names = failpoints.NAMES
    return [(names[number], names[(7 * number + 3) % len(names)]) for number in range(0, len(names), 3)]
