"""When a new batch will have gone: the same reckoning as on the operators' pages, read seldom enough for programs.

A vendor's queue is read at most once a second, and seldom enough to cost a hundredth of the time at most; what this
process has taken since then is added.
"""

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from campaigns.forecast import eta, queues
from campaigns.forecast.eta import Eta, forecast
from campaigns.forecast.queues import VendorQueue
from mailhub.front.vendor_cache import VendorSnapshot

FRESH = 1.0  # seconds
SHARE = 100


# first_at and last_at: when the first and the last call can start, None where nobody can know; basis: in words.
Forecast = dict[str, str | None]


@dataclass(slots=True)
class _Read:
    queue: VendorQueue
    taken: int
    until: float


class Forecasts:
    def __init__(self) -> None:
        self._queues: dict[int, _Read] = {}
        self._lock = threading.Lock()

    def waiting(self, desk: VendorSnapshot) -> int:
        """Messages of this vendor that are not called yet, about."""
        read = self._queue(desk)
        return read.queue.waiting + read.taken

    def taken(self, desk: VendorSnapshot, messages: int) -> None:
        """So many more wait now."""
        read = self._queues.get(desk.id)
        if read:
            read.taken += messages

    def of(self, desk: VendorSnapshot, messages: int, send_at: datetime | None) -> Forecast:
        """For so many messages that come last in the queue now. A future batch is taken to find it empty."""
        read, now = self._queue(desk), datetime.now(UTC)
        if send_at and not read.queue.halted:
            units = read.queue.units
            first, last = (forecast(units(n), desk.limits, (), 0.0) for n in (1, messages))
            return _forecast(_after(send_at, first), _after(send_at, last), f"{_limits(desk)}, from then on")
        ahead = read.queue.in_line + read.taken
        ends = [eta.of_batch(read.queue, desk.credential_id, read.taken, n, now) for n in (1, messages)]
        basis = f"{_limits(desk)}, {ahead:,} ahead of you"
        if read.queue.cost:
            basis += f", {read.queue.cost}"
        if obstacle := ends[0].obstacle:
            basis += f"; {obstacle.words}"
        return _forecast(_at(ends[0], now), _at(ends[1], now), basis)

    def forget(self) -> None:
        self._queues.clear()

    def _queue(self, desk: VendorSnapshot) -> _Read:
        read = self._queues.get(desk.id)
        if read is None or time.monotonic() > read.until:
            with self._lock:
                read = self._queues.get(desk.id)
                if read is None or time.monotonic() > read.until:
                    read = self._queues[desk.id] = _read(desk)
        return read


def _read(desk: VendorSnapshot) -> _Read:
    began = time.monotonic()
    queue = queues.of_vendors([desk.id], datetime.now(UTC))[desk.id]
    ended = time.monotonic()
    return _Read(queue, 0, ended + max(FRESH, SHARE * (ended - began)))


def _limits(desk: VendorSnapshot) -> str:
    return ", ".join(f"{limit.units:,} per {limit.seconds:g} s" for limit in desk.limits) or "no limit"


def _forecast(first: datetime | None, last: datetime | None, basis: str) -> Forecast:
    return {"first_at": _told(first), "last_at": _told(last), "basis": basis}


def _at(end: Eta, now: datetime) -> datetime | None:
    """Without an obstacle and without a limit: at once."""
    return None if end.obstacle else end.ends_at or now


def _after(start: datetime, seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else start + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _told(at: datetime | None) -> str | None:
    """As programs read it, UTC."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at else None


forecasts = Forecasts()
