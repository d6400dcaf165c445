"""The picture of a vendor's last hour: each sponsor's part of it, minute by minute, and the shares now."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from campaigns.doors import labels
from campaigns.engine.lifecycle import sql_list
from campaigns.models import Sponsor
from campaigns.models.states import RUNNING
from campaigns.reporting.forecast import ahead, queues
from campaigns.reporting.forecast.ahead import SharingSponsor
from mailhub.operations import charts
from vendors.models import Vendor

WIDTH, HEIGHT, MINUTES = 720, 140, 60  # of the drawing, which is scaled to its page
SLOT_SHARE = 0.8  # share of a minute's width that its bar takes
NAMED = 5  # sponsors with a colour of their own: those with the largest parts
MOST_ROWS = 20

GIVEN = """
SELECT sponsor, extract(epoch FROM at)::bigint, sum(greatest(units, accepted + refused + in_doubt))::bigint
FROM vendors_minute WHERE vendor_id = %(vendor)s AND at >= %(first)s AND at < %(last)s AND sponsor <> 0
GROUP BY 1, 2
"""
RUNS = f"""
SELECT sponsor_id, count(*), max(extract(epoch FROM statement_timestamp() - status_at)) FROM campaigns_job
WHERE vendor_id = %(vendor)s AND status IN {sql_list(RUNNING)} GROUP BY 1
"""


@dataclass(frozen=True, slots=True)
class ShareBar:
    """A sponsor's part of a minute's bar, in units of the drawing. look: the number of its colour, 0: the others."""

    look: int
    x: float
    y: float
    width: float
    height: float


@dataclass(slots=True)
class ShareRow:
    """A sponsor at the vendor. given: units within the hour. part: of the rate now, in percent; None: nothing waits.

    running: its jobs with a sender. slice: seconds for which the longest of them has had its sender.
    """

    sponsor: int
    name: str
    weight: int
    look: int = 0
    given: int = 0
    percent: int = 0
    waiting: int = 0
    part: int | None = None
    running: int = 0
    slice: int = 0


@dataclass(slots=True)
class ShareChart:
    """The picture and its table. rows: sponsors with the largest parts first; more: further sponsors."""

    first: datetime
    last: datetime
    rows: list[ShareRow]
    bars: list[ShareBar] = field(default_factory=list)
    scale: Sequence[int] = ()
    most: int = 0
    more: int = 0
    limit: float | None = None
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def is_shared(self) -> bool:
        """Whether several sponsors used the vendor, or wait for it."""
        return len(self.rows) > 1

    @property
    def legend(self) -> list[ShareRow]:
        return [row for row in self.rows if row.look]

    @property
    def has_others(self) -> bool:
        """Whether sponsors without a colour of their own were given something."""
        return any(bar.look == 0 for bar in self.bars)

    @property
    def lines(self) -> list[float]:
        """The heights of the numbers on the axis, without that of 0."""
        steps = max(1, len(self.scale) - 1)
        return [round(HEIGHT * number / steps, 1) for number in range(steps)]

    @property
    def limit_at(self) -> float | None:
        """The height of the limit; None if there is none, or it is above the axis."""
        if self.limit is None or not self.scale or self.limit > self.scale[0]:
            return None
        return round(HEIGHT * (1 - self.limit / self.scale[0]), 1)


def chart_of_vendor(vendor: Vendor) -> ShareChart:
    """Return a vendor's last whole minutes and its shares now, of all sponsors."""
    now = timezone.now()
    last = now.replace(second=0, microsecond=0)
    first = last - timedelta(minutes=MINUTES)
    asked: dict[str, Any] = {"vendor": vendor.pk, "first": first, "last": last}
    with connection.cursor() as cursor:
        cursor.execute(GIVEN, asked)
        given = cursor.fetchall()
        cursor.execute(RUNS, asked)
        runs = {sponsor: (int(jobs), max(0, round(seconds or 0))) for sponsor, jobs, seconds in cursor.fetchall()}
    queue = queues.queues_of_vendors([vendor.pk], now, recent=True)[vendor.pk]
    shares = {one.sponsor.id: one for one in ahead.list_sharing(queue, now)}
    minutes: dict[int, dict[int, int]] = {}  # by sponsor and minute
    for sponsor, at, units in given:
        minutes.setdefault(sponsor, {})[int((at - first.timestamp()) // 60)] = int(units)
    rows = _share_rows(minutes, shares, runs, queue.weights)
    found = ShareChart(first, last, rows[:MOST_ROWS], more=max(0, len(rows) - MOST_ROWS))
    found.limit = charts.per_minute(vendor)
    found.most = max((sum(of.get(minute, 0) for of in minutes.values()) for minute in range(MINUTES)), default=0)
    if found.most:
        found.scale = labels.scale_to(max(found.most, int(found.limit or 0) if _is_limit_near(found) else 0))
        found.bars = _share_bars(minutes, rows, found.scale[0])
    return found


def _is_limit_near(found: ShareChart) -> bool:
    """Return whether the limit is near enough to the bars to be drawn."""
    return found.limit is not None and found.limit <= 2 * found.most


def _share_rows(
    minutes: dict[int, dict[int, int]],
    shares: dict[int, SharingSponsor],
    runs: dict[int, tuple[int, int]],
    weights: dict[int, int],
) -> list[ShareRow]:
    ids = minutes.keys() | shares.keys() | runs.keys()
    names = dict(Sponsor.objects.filter(pk__in=ids).order_by().values_list("pk", "name"))
    total = sum(sum(of.values()) for of in minutes.values()) or 1
    rows = []
    for pk in ids & names.keys():
        row = ShareRow(pk, names[pk], weights.get(pk, 1), given=sum(minutes.get(pk, {}).values()))
        row.percent = round(100 * row.given / total)
        row.running, row.slice = runs.get(pk, (0, 0))
        if pk in shares:
            row.waiting, row.part = shares[pk].sponsor.count_queued, round(100 * shares[pk].part)
        rows.append(row)
    rows.sort(key=lambda row: (-row.given, -row.waiting, row.name))
    for number, row in enumerate(rows[:NAMED], start=1):
        row.look = number
    return rows


def _share_bars(minutes: dict[int, dict[int, int]], rows: Sequence[ShareRow], top: int) -> list[ShareBar]:
    slot, bars = WIDTH / MINUTES, list[ShareBar]()
    for minute in range(MINUTES):
        parts = [(row.look, minutes.get(row.sponsor, {}).get(minute, 0)) for row in rows if row.look]
        parts.append((0, sum(minutes.get(row.sponsor, {}).get(minute, 0) for row in rows if not row.look)))
        base = float(HEIGHT)
        for look, units in parts:
            if units:
                height = max(1.0, round(HEIGHT * units / top, 1))
                base = round(base - height, 1)
                x = round(slot * (minute + (1 - SLOT_SHARE) / 2), 1)
                bars.append(ShareBar(look, x, base, round(slot * SLOT_SHARE, 1), height))
    return bars
