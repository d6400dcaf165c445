"""Time slices and portions of the streams of an event loop, and the units given to sponsors (campaigns/engine/turns).

Once a second one statement charges the given units, and another one looks for leaves of the process that give way. The
second one is made only for vendors with a stream that may give way. Where a limit binds and others wait, a stream is
given a portion of units. Once that is used up, both statements are made at once.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from django.conf import settings
from psycopg import AsyncConnection

from campaigns.engine.threads import wait_for_event
from campaigns.engine.turns import charges, leavers
from campaigns.engine.turns.leavers import Leaf, Portions, Waiter, choose_leavers
from campaigns.engine.turns.order import VendorClasses
from vendors.limits.values import AT_A_TIME, Limit, Scope

log = logging.getLogger(__name__)
ALIVE = 2.5  # heartbeats; a leaf without any for longer cannot give way
BOUND_SECONDS = 3.0  # after a stream waited for permits, its vendor's streams are given portions
KEPT_SECONDS = 5.0  # that a vendor which others wait for is looked at without a stream here
SOON, IDLE_SHARE = 0.1, 10.0  # seconds between two looks at least, and as a multiple of what the last one took
LOOK_PATIENCE = 0.2  # seconds that a stream waits for a look
QUICK = 0.25  # seconds between looks where a limit binds: newcomers need not miss its next window


class StreamSlice:
    """A stream's place at a vendor. gives_way: it ends its turn, and continues later.

    portion: units until the next look; None: as many as there are permits. is_new: it has work for a portion, a limit,
    and no look yet that tells who else waits. wake: called once it gives way, as the stream may wait for permits until
    then. renewed: set after a look.
    """

    def __init__(
        self, slices: "Slices", job_id: int, vendor_id: int, sponsor_id: int, mail_class: int, messages: int
    ) -> None:
        self._slices, self.job_id, self.vendor_id, self.sponsor_id = slices, job_id, vendor_id, sponsor_id
        self.mail_class = mail_class
        self.began = self._counted_at = time.monotonic()
        self.gives_way = False
        self.wake: Callable[[], None] = _sleep_on
        self.renewed = asyncio.Event()
        self.portion = slices.find_portion(self)
        self.is_new = False
        self._may_be_new = messages > leavers.LEAST_PORTION and settings.TURN_SECONDS > 0

    def note_scope(self, scope: Scope) -> None:
        """Note the limits of its vendor. With the first ones, ask for a look if there has been none lately."""
        self._slices.note_limits(scope)
        if self._may_be_new and scope.limits and self.portion is None:
            self.is_new = not self._slices.was_seen(self.vendor_id)
            if self.is_new:
                self._slices.look_soon()
            else:
                self.portion = self._slices.find_portion(self, is_first=True)
        self._may_be_new = False

    async def wait_for_look(self) -> None:
        """Wait until a look has told the next portion, for a moment at most."""
        await wait_for_event(self.renewed, LOOK_PATIENCE)
        self.is_new = False

    def charge_units(self, units: int) -> None:
        """Charge the sponsor for these units with the next statement."""
        self._slices.given.add_units(*self.charged_key, units, alone=self._slices.owes_nothing(self))
        if self.portion is not None:
            self.portion -= units
            if self.is_spent:
                self.renewed.clear()
                self._slices.look_soon()

    @property
    def is_spent(self) -> bool:
        return self.portion is not None and self.portion < 1

    @property
    def awaits_look(self) -> bool:
        return self.is_new or self.is_spent

    def renew(self, gives_way: bool, had_portion: bool) -> None:
        """Update the slice with the result of a look. had_portion: its portion was used up by then."""
        self.gives_way = gives_way
        if self.portion is None or had_portion:
            self.portion = self._slices.find_portion(self, self.is_new)
        self.is_new = False
        if gives_way or not self.is_spent:
            self.renewed.set()
        if gives_way:
            self.wake()

    def cut(self, messages: int) -> int:
        """Return how many of this number of messages the portion allows."""
        return messages if self.portion is None else min(messages, max(1, self.portion))

    def note_bound(self) -> None:
        """Note that a limit binds: the stream did not get the permits it asked for."""
        self._slices.bound_at[self.vendor_id] = time.monotonic()

    def count_time(self) -> None:
        """Note the time of the stream since the last call."""
        now = time.monotonic()
        self._slices.given.add_time(self.charged_key, now - self._counted_at)
        self._counted_at = now

    @property
    def charged_key(self) -> tuple[int, int, int]:
        """Its vendor, sponsor and class."""
        return self.vendor_id, self.sponsor_id, self.mail_class

    def may_be_looked_at(self, now: float, seconds: float) -> bool:
        """Tell if leaves of its age give way, to a higher class or a sponsor without one, or if it needs a portion."""
        return now - self.began >= min(seconds, leavers.LOOK_SECONDS) or self._slices.is_bound(self.vendor_id)


class Slices:
    """Charges and looks for all streams of an event loop. rows: executes statements like a database connection.

    alone: vendors where nobody else waited at the last look. bound_at: when a limit of a vendor bound last, in seconds
    of time.monotonic.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.given = charges.UnitsGiven()
        self.alone: frozenset[int] = frozenset()
        self.bound_at: dict[int, float] = {}
        self._limits: dict[int, dict[int, _LimitsSeen]] = {}  # by vendor and credential
        self._seen_at: dict[int, float] = {}  # by vendor, seconds of time.monotonic
        self._shared: dict[int, tuple[float, Portions]] = {}  # by vendor, with the time of its last stream here
        self._hurried = asyncio.Event()
        self._next_at = 0.0  # seconds of time.monotonic

    def look_soon(self) -> None:
        """End the wait for the next look."""
        self._hurried.set()

    async def wait(self, seconds: float) -> bool:
        """Wait at most this many seconds for the next look. Return False if only a quick one is due."""
        until = time.monotonic() + seconds
        quick = any(self.is_bound(vendor) for vendor in self.bound_at)
        if await wait_for_event(self._hurried, max(0.0, min(seconds, QUICK) if quick else seconds)) or quick:
            await asyncio.sleep(max(0.0, min(self._next_at, until) - time.monotonic()))
        return self._hurried.is_set() or time.monotonic() >= until

    def is_bound(self, vendor_id: int) -> bool:
        """Tell if a limit of the vendor binds its streams here."""
        return time.monotonic() - self.bound_at.get(vendor_id, -BOUND_SECONDS) < BOUND_SECONDS

    def note_limits(self, scope: Scope) -> None:
        """Note the limits of a credential and its vendor."""
        seen = self._limits.setdefault(scope.vendor_id, {})
        if scope.credential_id not in seen or seen[scope.credential_id].version != scope.limits_version:
            most = (_most_units(scope.vendor_limits), _most_units(scope.credential_limits))
            seen[scope.credential_id] = _LimitsSeen(scope.limits_version, *most)

    def _most_units(self, vendor_id: int) -> float:
        """Return the units that the limits of a vendor allow in ROUND_SECONDS, with those of its credentials here."""
        seen = self._limits.get(vendor_id, {}).values()
        return min([one.of_vendor for one in seen] + [sum(one.of_credential for one in seen) or math.inf])

    def was_seen(self, vendor_id: int) -> bool:
        """Tell if the last look at the vendor is so new that a stream need not wait for another one."""
        return time.monotonic() - self._seen_at.get(vendor_id, -QUICK) < QUICK

    def find_portion(self, place: StreamSlice, is_first: bool = False) -> int | None:
        """Return the portion of a stream by the last look at its vendor. is_first: no limit need have bound yet."""
        is_shared = (is_first or self.is_bound(place.vendor_id)) and settings.TURN_SECONDS
        shared = self._shared.get(place.vendor_id) if is_shared else None
        return shared[1].of(place.mail_class, place.sponsor_id) if shared else None

    def owes_nothing(self, place: StreamSlice) -> bool:
        """Tell if nobody waited for a turn of the stream's at the last look: its permits were shared out by weights."""
        is_shared_out = self.is_bound(place.vendor_id) and place.vendor_id in self._shared and place.portion is None
        return place.vendor_id in self.alone or (is_shared_out and bool(settings.TURN_SECONDS))

    def _find_clock(self, vendor_id: int, mail_class: int) -> float:
        shared = self._shared.get(vendor_id)
        return shared[1].clock(mail_class) if shared else 0.0

    async def charge_and_tell(self, places: Iterable[StreamSlice], quick: bool = False) -> None:
        """Charge the units given since the last tick, and tell the places that give way.

        quick: charge nothing, and look only where a limit binds.
        """
        began, there = time.monotonic(), list(places)
        try:
            if not quick:
                self._hurried.clear()
                for one in there:
                    one.count_time()
                await self._charge_sponsors()
            await self._look(there, quick)
        finally:
            now = time.monotonic()
            self._next_at = now + max(SOON, IDLE_SHARE * (now - began))

    async def _look(self, there: list[StreamSlice], quick: bool) -> None:
        seconds, now = settings.TURN_SECONDS, time.monotonic()
        here = {one.vendor_id for one in there}
        kept = {vendor for vendor, (at, _) in self._shared.items() if vendor in here or now - at < KEPT_SECONDS}
        asked = kept | {one.vendor_id for one in there if one.may_be_looked_at(now, seconds)} if seconds else set[int]()
        asked = {vendor for vendor in asked if self.is_bound(vendor)} if quick else asked
        asked |= {one.vendor_id for one in there if one.is_new}
        spent = {one.job_id for one in there if one.is_spent and not quick}  # a quick look has charged nothing
        leaving = set[int]()
        seen = await read_vendors(self._rows, sorted(asked)) if asked else {}
        self._seen_at |= dict.fromkeys(asked, now)
        self.alone = self.alone - asked | (asked - seen.keys())
        seen_at = {vendor: at for vendor, (at, _) in self._shared.items()}
        self._shared = {vendor: one for vendor, one in self._shared.items() if vendor not in asked and vendor in kept}
        for vendor, (classes, waiters, all_leaves, idle, lower_most) in seen.items():
            leaves = [leaf._replace(is_spent=leaf.job in spent) for leaf in all_leaves]
            leaving |= choose_leavers(classes, waiters, leaves, idle, seconds, lower_most)
            at = now if vendor in here else seen_at[vendor]
            self._shared[vendor] = at, Portions(classes, waiters, leaves, self._most_units(vendor))
        for one in there:
            if one.vendor_id in asked or not quick:
                one.renew(one.job_id in leaving, one.job_id in spent)

    async def _charge_sponsors(self) -> None:
        if charged := self.given.take_params(self._find_clock):
            try:
                await self._rows.run_with_rows(
                    lambda connection: connection.execute(charges.CHARGE, charged), over=_wakes_at_once
                )
            except Exception:
                self.given.put_back(charged)
                raise


class _LimitsSeen(NamedTuple):
    """Units that limits allow in ROUND_SECONDS. version: of the edit."""

    version: int
    of_vendor: float
    of_credential: float


def _most_units(limits: Iterable[Limit]) -> float:
    """Return the units that these limits allow in ROUND_SECONDS, if their windows are empty."""
    seconds = leavers.ROUND_SECONDS
    return min(
        (one.units * max(1.0, seconds / one.seconds) for one in limits if one.seconds > AT_A_TIME), default=math.inf
    )


def _sleep_on() -> None:
    pass


def _wakes_at_once() -> bool:
    return True  # a locked row is charged with the next tick; contexts do not wait for it


class SeenVendor(NamedTuple):
    """A vendor with work of several sponsors or classes; see leavers.WATCH."""

    classes: VendorClasses
    waiters: list[Waiter]
    leaves: list[Leaf]
    idle: list[str]
    lower_most: int | None


async def read_vendors(connection: AsyncConnection[Any], vendor_ids: list[int]) -> Mapping[int, SeenVendor]:
    """Return those of these vendors that have work of several sponsors or classes."""
    params = {"vendors": vendor_ids, "alive": ALIVE * settings.HEARTBEAT_SECONDS}
    rows = await (await connection.execute(leavers.WATCH, params)).fetchall()
    return {
        vendor: SeenVendor(
            VendorClasses.read_state(state),
            [Waiter(*one) for one in waiters or ()], [Leaf(*one) for one in leaves], idle,
            lower_most,
        )
        for vendor, state, waiters, leaves, idle, lower_most in rows
    }  # fmt: skip
