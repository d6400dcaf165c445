"""What stands in a vendor's queue, from the rows alone, in one statement however many vendors and jobs are asked for.

In line is what nothing but the window holds back: not what waits for a time of its own (put off, a send time, sending
hours), for the night, or for a paused login. Calls that are in flight have their places already.
"""

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.db import connection

from campaigns.dispatch.nightly import LOOK_BACK, Run
from campaigns.failover import guard
from campaigns.forecast.queries import PLACES, TOTALS, VENDORS
from campaigns.lifecycle import PARENTS, S
from campaigns.models import Job
from vendors import redis_clients
from vendors.limits.values import Limit

NEAR = 1000  # jobs of a vendor in one state that are counted to say when one of them ends
QUEUED = (S.READY, S.DISPATCHED, S.RECOVERING, S.ENQUEUED, S.SENDING, S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED)
Sponsors = list[int] | None  # None: all


@dataclass(slots=True)
class LoginQueue:
    """A credential, its own limits, and its messages: those in line, those that wait for a time of their own."""

    id: int
    name: str
    paused: bool
    reason: str
    closed_until: datetime | None
    limits: tuple[Limit, ...] = ()
    waiting: int = 0
    in_line: int = 0

    @property
    def stopped(self) -> str:
        """Why nothing goes over it until a person acts; empty: it is open."""
        if self.paused:
            return f"credential {self.name} paused: {self.reason}".rstrip(": ")
        return f"credential {self.name}: a limit is 0" if any(not limit.units for limit in self.limits) else ""


@dataclass(slots=True)
class VendorQueue:
    """Of one vendor. kinds: of its enabled mailcasters; sending: its jobs that a sender is at.

    halted: why no call may start at any vendor; empty: it may.
    each: units that a message has cost at this vendor within the last hour, 1 where nobody knows.
    slots: of the workers that read its queue, None where Redis cannot tell; busy: how many of them are at work.
    waiting: messages not called yet; mine: those of them that the viewer may know of; in_line and put_off: see above;
    next_at: when the first of those put off may go; rendered: those for the night; closes_at: when the first sending
    hours of what is in line end.
    """

    vendor_id: int
    slug: str
    paused: bool
    reason: str
    logins: dict[int, LoginQueue]
    limits: tuple[Limit, ...]
    kinds: frozenset[str]
    nights: tuple[Run, ...]
    halted: str = ""
    each: float = 1.0
    sending: int = 0
    slots: int | None = None
    busy: int = 0
    jobs: int = 0
    waiting: int = 0
    mine: int = 0
    put_off: int = 0
    next_at: datetime | None = None
    rendered: int = 0
    closes_at: datetime | None = None
    places: "dict[int, QueuePosition]" = field(default_factory=dict)  # by job
    taken: dict[int, Any] = field(default_factory=dict)  # by login, what is in the windows, once it was asked

    @property
    def in_line(self) -> int:
        return sum(login.in_line for login in self.logins.values())

    def units(self, messages: int) -> int:
        """What so many will cost, about: their own cost is not known before they are made."""
        return math.ceil(messages * self.each)

    @property
    def cost(self) -> str:
        """In words; empty where each message costs one unit."""
        return f"about {self.each:.3g} units a message" if self.each >= 1.05 else ""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Messages in line up to the end of this job: of the vendor, and of the job's login."""

    of_vendor: int
    of_login: int


def of_vendors(ids: Collection[int], now: datetime, sponsors: Sponsors = None) -> dict[int, VendorQueue]:
    """Each with all that waits; mine counts the messages of these sponsors."""
    return _read(VENDORS + TOTALS, list(ids), now, {"sponsors": sponsors, "counted": [*QUEUED, S.RENDERED]})


def of_jobs(jobs: Iterable[Job], now: datetime) -> dict[int, VendorQueue]:
    """By vendor, with the places of those jobs that are near enough to the front of it; without the totals."""
    there = [job for job in jobs if job.status in QUEUED or job.status == S.RENDERED]
    asked = [job for job in there if job.status in QUEUED]
    words = {
        "of": [job.vendor_id for job in asked],
        "jobs": [job.pk for job in asked],
        "queued": list(QUEUED),
        "most": NEAR,
        "end": 2**63 - 1,
    }
    return _read(VENDORS + (PLACES if asked else ""), sorted({job.vendor_id for job in there}), now, words)


def _read(statement: str, vendors: list[int], now: datetime, words: dict[str, Any]) -> dict[int, VendorQueue]:
    if not vendors:
        return {}
    zones = _zones(int(now.timestamp() // 900))
    words |= {
        "vendors": vendors,
        "now": now,
        "since": now.date() - timedelta(days=LOOK_BACK + 1),
        "parents": list(PARENTS),
        "running": [S.ENQUEUED, S.SENDING],
        "zones": list(zones),
        "shifts": list(zones.values()),
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, words)
        rows = [(what, vendor, _json(told)) for what, vendor, told in cursor.fetchall()]
    queues = {vendor: _queue(vendor, told) for what, vendor, told in rows if what == "vendor"}
    for what, vendor, told in rows:
        if what == "line":
            _add(queues[vendor], told)
        elif what == "place":
            queues[vendor].places[told[0]] = QueuePosition(told[1], told[2])
        elif what == "sending":
            _read_by(queues.values(), told)
    return queues


@lru_cache(maxsize=2)
def _zones(quarter: int) -> dict[str, int]:
    """Seconds ahead of UTC in each zone, in that quarter of an hour: clocks change between two of them."""
    at = datetime.fromtimestamp(quarter * 900, UTC)
    shifts = ((name, at.astimezone(ZoneInfo(name)).utcoffset()) for name in available_timezones())
    return {name: int(shift.total_seconds()) for name, shift in shifts if shift}


def _queue(vendor: int, told: dict[str, Any]) -> VendorQueue:
    limits: dict[int | None, list[Limit]] = {}
    for login, units, seconds in told["limits"] or ():
        limits.setdefault(login, []).append(Limit(units, seconds))
    logins = {
        pk: LoginQueue(pk, name, paused, reason, _moment(closed), tuple(limits.get(pk, ())))
        for pk, name, paused, reason, closed in told["logins"] or ()
    }
    runs = (
        Run(date.fromisoformat(day), _moment(began), over, missed) for day, began, over, missed in told["nights"] or ()
    )
    kinds = frozenset(told["kinds"] or ())
    return VendorQueue(
        vendor, told["slug"], told["paused"], told["reason"], logins, tuple(limits.get(None, ())), kinds, tuple(runs),
        halted=guard.why_halted(*map(bool, told["store"] or (False, False, False))) or "",
        each=max(1.0, told["each"] or 1.0),
    )  # fmt: skip


def _add(queue: VendorQueue, told: list[Any]) -> None:
    login, jobs, waiting, mine, in_line, rendered, next_at, closes = told
    of = queue.logins[login]
    of.waiting, of.in_line = int(waiting), 0 if of.stopped else int(in_line)
    queue.jobs += jobs
    queue.waiting += int(waiting)
    queue.mine += int(mine)
    queue.put_off += int(waiting) - int(in_line)
    queue.rendered += int(rendered)
    queue.next_at = min(filter(None, (queue.next_at, _moment(next_at))), default=None)
    queue.closes_at = min(filter(None, (queue.closes_at, _moment(closes))), default=None)


def _read_by(queues: Iterable[VendorQueue], sending: dict[str, int]) -> None:
    """Who reads them, and what those are at."""
    try:
        there = redis_clients.registered_workers(settings.REDIS_URL)
    except redis_clients.WorkerRegistryUnreachable:
        return
    for queue in queues:
        name = f"vendor.{queue.slug}"
        mine = redis_clients.workers_reading(name, there)
        others = frozenset().union(*(one.queues for one in mine)) if mine else frozenset()
        queue.slots = sum(one.slots for one in mine)
        queue.sending = sending.get(queue.slug, 0)
        queue.busy = sum(count for slug, count in sending.items() if f"vendor.{slug}" in others)


def _json(told: Any) -> Any:
    return json.loads(told) if isinstance(told, str) else told


def _moment(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(float(seconds), UTC) if seconds is not None else None
