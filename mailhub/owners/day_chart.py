"""The last days as a chart: bars of what was sent, made by the server, beside a table that says the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from campaigns import day_counts
from campaigns.day_counts import DaySums

WIDTH, HEIGHT = 720, 120  # of the drawing; it is as wide as its page
SLOT_SHARE = 0.72  # of a day's width that its bar has


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
    """days: the newest last; bars: what was sent, and in it what was delivered and came back; most: of one day."""

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
    """A day's bar is as high as the messages sent on it, or reported if those are more."""
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
