"""When a new batch will have gone: from the limits, the calls in the window and what waits before it.

What waits and what is in the window is read at most once a second for each vendor, and seldom enough to cost a
hundredth of the time at most; what this process has taken since then is added.
"""

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

from django.conf import settings

from campaigns import outlook
from mailhub.front.roster import Desk
from vendors import stores
from vendors.forecast import forecast
from vendors.limits import Scope
from vendors.throttle import Throttle, Unreachable

FRESH = 1.0  # seconds
SHARE = 100


# first_at and last_at: when the first and the last call can start, None while a limit is 0; basis: in words.
Forecast = dict[str, str | None]


@dataclass(slots=True)
class _Queue:
    waiting: int
    places: list[float]
    read_at: float
    until: float


class Forecasts:
    def __init__(self) -> None:
        self._queues: dict[int, _Queue] = {}
        self._lock = threading.Lock()

    def waiting(self, desk: Desk) -> int:
        """Messages of this vendor that are not called yet, about."""
        return self._queue(desk).waiting

    def taken(self, desk: Desk, messages: int) -> None:
        """So many more wait now."""
        queue = self._queues.get(desk.id)
        if queue:
            queue.waiting += messages

    def of(self, desk: Desk, messages: int, send_at: datetime | None) -> Forecast:
        """For so many messages that come last in the queue now. A future batch is taken to find it empty."""
        if send_at:
            first, last = (forecast(n, desk.limits, (), 0.0) for n in (1, messages))
            return _forecast(send_at, first, last, f"{_limits(desk)}, from then on")
        queue, now = self._queue(desk), datetime.now(UTC)
        ahead = queue.waiting
        clock = now.timestamp()
        first, last = (forecast(ahead + n, desk.limits, queue.places, clock) for n in (1, messages))
        return _forecast(now, first, last, f"{_limits(desk)}, {ahead:,} ahead of you")

    def forget(self) -> None:
        self._queues.clear()

    def _queue(self, desk: Desk) -> _Queue:
        queue = self._queues.get(desk.id)
        if queue is None or time.monotonic() > queue.until:
            with self._lock:
                queue = self._queues.get(desk.id)
                if queue is None or time.monotonic() > queue.until:
                    queue = self._queues[desk.id] = _read(desk)
        return queue


def _read(desk: Desk) -> _Queue:
    began = time.monotonic()
    waiting = outlook.left(outlook.line(desk.id, datetime.now(UTC)))
    places = _places(desk)
    ended = time.monotonic()
    return _Queue(waiting, places, began, ended + max(FRESH, SHARE * (ended - began)))


def _places(desk: Desk) -> list[float]:
    if not desk.limits:
        return []
    try:
        return _throttle(settings.REDIS_URL, settings.STORE_PATIENCE).places(
            Scope(desk.id, desk.credential_id or 0, 0), most=1000
        )[0]
    except Unreachable:
        return []  # a forecast is not worth an error


@cache
def _throttle(url: str, patience: float) -> Throttle:
    return Throttle(stores.redis(url, patience))


def _limits(desk: Desk) -> str:
    return ", ".join(f"{limit.units:,} per {limit.seconds:g} s" for limit in desk.limits) or "no limit"


def _forecast(start: datetime, first: float | None, last: float | None, basis: str) -> Forecast:
    return {"first_at": _after(start, first), "last_at": _after(start, last), "basis": basis}


def _after(start: datetime, seconds: float | None) -> str | None:
    """As programs read it, UTC."""
    try:
        at = None if seconds is None else start + timedelta(seconds=seconds)
    except OverflowError:
        return None
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at else None


forecasts = Forecasts()
