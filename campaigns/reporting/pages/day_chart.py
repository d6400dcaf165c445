"""The chart of the last days: bars of messages sent, drawn by the server next to a table with the same numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time

from campaigns.doors.labels import scale_to
from campaigns.engine import day_counts
from campaigns.engine.day_counts import DaySums
from vendors.reporting import find_reporting

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
    """A chart. days: newest last. bars: sent, and within it delivered and bounced. most: of one day.

    scale: the numbers on its axis, the highest first, at equal distances. reported: of the messages sent, those by
    vendors that report deliveries.
    """

    days: Sequence[DaySums]
    bars: tuple[ChartBar, ...]
    most: int
    reported: int = 0
    scale: tuple[int, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def empty(self) -> bool:
        return not self.most

    @property
    def total(self) -> DaySums:
        return day_counts.sum_all_days(self.days)

    @property
    def shows_delivered(self) -> bool:
        """Return True if a vendor of these days reports deliveries."""
        return self.reported > 0 or self.total.delivered > 0

    @property
    def unreported(self) -> int:
        """Messages sent by vendors that report no deliveries."""
        return max(0, self.total.sent - self.reported)

    @property
    def lines(self) -> tuple[float, ...]:
        """The heights of the numbers on the axis, without that of 0."""
        steps = max(1, len(self.scale) - 1)
        return tuple(round(HEIGHT * number / steps, 1) for number in range(steps))

    @property
    def begins(self) -> datetime:
        """The moment at which the last day began, as days are those of UTC."""
        return datetime.combine(self.days[-1].day, time(), tzinfo=UTC)


def draw_last_days(sponsors: Sequence[int] | None) -> DayChart:
    """Draw the last days of these sponsors; None: of all."""
    sent = day_counts.sent_by_vendors(sponsors)
    reporting = find_reporting(sent)
    return draw_chart(day_counts.sum_days(sponsors), sum(sent[vendor] for vendor in reporting))


def draw_chart(days: Sequence[DaySums], reported: int = 0) -> DayChart:
    """Draw the days; a bar's height is the number of messages sent, or the number reported if larger."""
    most = max((_bar_height(one) for one in days), default=0)
    if not most:
        return DayChart(days, (), 0, reported)
    scale = scale_to(most)
    slot = WIDTH / len(days)
    bars: list[ChartBar] = []
    for number, one in enumerate(days):
        x, width, base = round(slot * (number + (1 - SLOT_SHARE) / 2), 1), round(slot * SLOT_SHARE, 1), float(HEIGHT)
        back, got = max(0, one.bounced), max(0, one.delivered)
        rest = max(0, one.sent - back - got)
        for look, count in (("bad", back), ("good", got), ("idle", rest)):
            height = round(HEIGHT * count / scale[0], 1)
            if count:
                height = max(height, 1.0)
                bars.append(ChartBar(look, x, round(base - height, 1), width, height))
                base = round(base - height, 1)
    return DayChart(days, tuple(bars), most, reported, scale)


def _bar_height(one: DaySums) -> int:
    return max(one.sent, max(0, one.delivered) + max(0, one.bounced))
