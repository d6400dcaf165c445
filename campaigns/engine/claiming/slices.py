"""Time slices of the streams of an event loop, and the units given to their sponsors (campaigns/engine/turns).

Once a second one statement charges the given units, and another one looks for leaves of the process that give way. The
second one is made only for vendors with a stream that may give way.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from psycopg import AsyncConnection

from campaigns.engine.turns import charges, leavers
from campaigns.engine.turns.leavers import Leaf, Waiter
from campaigns.engine.turns.order import VendorClasses

log = logging.getLogger(__name__)
ALIVE = 2.5  # heartbeats; a leaf without any for longer cannot give way


class StreamSlice:
    """A stream's place at a vendor. gives_way: it ends its turn, and continues later.

    wake: called once it gives way, as the stream may wait for permits until then.
    """

    def __init__(self, slices: "Slices", job_id: int, vendor_id: int, sponsor_id: int, mail_class: int) -> None:
        self._slices, self.job_id, self.vendor_id, self.sponsor_id = slices, job_id, vendor_id, sponsor_id
        self.mail_class = mail_class
        self.began = time.monotonic()
        self.gives_way = False
        self.wake: Callable[[], None] = _sleep_on

    def charge(self, units: int) -> None:
        """Charge the sponsor for these units with the next statement."""
        self._slices.given.add(*self.whose, units)

    @property
    def whose(self) -> tuple[int, int, int]:
        """Its vendor, sponsor and class."""
        return self.vendor_id, self.sponsor_id, self.mail_class

    def may_give_way(self, now: float, seconds: float) -> bool:
        """Tell if some leaves of its age give way: to a higher class, or to a sponsor that has none."""
        return now - self.began >= min(seconds, leavers.LOOK_SECONDS)


class Slices:
    """Charges and looks for all streams of an event loop. rows: executes statements like a database connection."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._charged_at = time.monotonic()
        self.given = charges.UnitsGiven()

    async def tick(self, places: Iterable[StreamSlice]) -> None:
        """Charge the units given since the last tick, and tell the places that give way."""
        there = list(places)
        await self._charge(Counter(one.whose for one in there))
        slice_seconds, now = settings.TURN_SECONDS, time.monotonic()
        old = {one.vendor_id for one in there if slice_seconds and one.may_give_way(now, slice_seconds)}
        leaving = await read_leavers(self._rows, sorted(old), slice_seconds) if old else frozenset()
        for one in there:
            one.gives_way = one.job_id in leaving
            if one.gives_way:
                one.wake()

    async def _charge(self, streams: "Counter[tuple[int, int, int]]") -> None:
        now = time.monotonic()
        charged = self.given.take(streams, now - self._charged_at)
        self._charged_at = now
        if charged:
            try:
                await self._rows.run(lambda connection: connection.execute(charges.CHARGE, charged), over=_soon)
            except Exception:
                self.given.put_back(charged)
                raise


def _sleep_on() -> None:
    pass


def _soon() -> bool:
    return True  # a locked row is charged with the next tick; contexts do not wait for it


async def read_leavers(connection: AsyncConnection[Any], vendor_ids: list[int], seconds: float) -> frozenset[int]:
    """Return the running leaves of these vendors that give way now. seconds: the time slice."""
    params = {"vendors": vendor_ids, "alive": ALIVE * settings.HEARTBEAT_SECONDS}
    rows = await (await connection.execute(leavers.WATCH, params)).fetchall()
    found = set[int]()
    for _, state, waiters, leaves, idle, lower_most in rows:
        classes = VendorClasses.read(state)
        found |= leavers.choose_leavers(
            classes, [Waiter(*one) for one in waiters or ()], [Leaf(*one) for one in leaves], idle, seconds, lower_most
        )
    return frozenset(found)
