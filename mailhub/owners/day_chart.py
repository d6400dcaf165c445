"""The chart of the last days: bars of messages sent, drawn by the server next to a table with the same numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from campaigns.engine import day_counts
from campaigns.engine.day_counts import DaySums

WIDTH, HEIGHT = 720, 120  # of the drawing, which is scaled to its page
SLOT_SHARE = 0.72  # share of a day's width that its bar takes


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A part of a day's bar, in units of the drawing."""

    look: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class DayChart:
    """A chart. days: newest last. bars: sent, and within it delivered and bounced. most: of one day."""

    days: Sequence[DaySums]
    bars: tuple[ChartBar, ...]
    most: int
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def empty(self) -> bool:
        return not self.most

    @property
    def total(self) -> DaySums:
        return day_counts.total(self.days)


def chart(days: Sequence[DaySums]) -> DayChart:
    """Draw the days; a bar's height is the number of messages sent, or reported if that is more."""
    most = max((_top(one) for one in days), default=0)
    if not most:
        return DayChart(days, (), 0)
    slot = WIDTH / len(days)
    bars: list[ChartBar] = []
    for number, one in enumerate(days):
        x, width, base = round(slot * (number + (1 - SLOT_SHARE) / 2), 1), round(slot * SLOT_SHARE, 1), float(HEIGHT)
        reported = max(0, one.bounced), max(0, one.delivered)
        rest = max(0, one.sent - sum(reported))
        for look, count in (("bad", reported[0]), ("good", reported[1]), ("idle", rest)):
            height = round(HEIGHT * count / most, 1)
            if count:
                height = max(height, 1.0)
                bars.append(ChartBar(look, x, round(base - height, 1), width, height))
                base = round(base - height, 1)
    return DayChart(days, tuple(bars), most)


def _top(one: DaySums) -> int:
    return max(one.sent, max(0, one.delivered) + max(0, one.bounced))
