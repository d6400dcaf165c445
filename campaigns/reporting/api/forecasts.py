"""Forecasts for the API: the start of a new batch's calls, computed as on the operators' pages.

A vendor's queue is read at most once a second, and reading takes at most 1/SHARE of the time. Messages that this
process has accepted since the last read are added. Sponsors share a vendor (reporting/forecast/ahead.py): none reads
another one's name or numbers.
"""

import math
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from campaigns.doors.front.vendor_cache import VendorSnapshot
from campaigns.engine.progress import Progress
from campaigns.lists.intake import Hours
from campaigns.models import Job
from campaigns.reporting.forecast import ahead, eta, queues
from campaigns.reporting.forecast.ahead import Ahead
from campaigns.reporting.forecast.eta import Eta, forecast_seconds
from campaigns.reporting.forecast.queues import VendorQueue
from vendors.condition.reading import combine_conditions
from vendors.condition.values import Condition, describe_condition
from vendors.mail_classes import MailClass

FRESH = 1.0  # seconds
SHARE = 100
MOST_KNOWN = 10_000  # sponsors
NO_CREDENTIAL = combine_conditions(())
NEVER: tuple[float, dict[int, int]] = (0.0, {})


# first_at and last_at: earliest start of the first and of the last call, None if unknown. basis: the reasoning as text.
# own_ahead: the sponsor's own messages before it. share: about its part of the vendor, 1 while nobody else waits there.
Forecast = dict[str, str | float | None]


@dataclass(slots=True)
class _Read:
    """taken: messages accepted since, by sponsor and class."""

    queue: VendorQueue
    until: float
    taken: dict[tuple[int, int], int] = field(default_factory=dict)


class Forecasts:
    """The queues that this process has read, by vendor. Thread-safe."""

    def __init__(self) -> None:
        self._queues: dict[int, _Read] = {}
        self._own: dict[int, tuple[float, dict[int, int]]] = {}
        self._lock = threading.Lock()

    def waiting(self, vendor: VendorSnapshot, sponsor_id: int) -> int:
        """Return about how many of this vendor's messages wait; only the sponsor's if the vendor is not its own."""
        if not vendor.disclosed:
            return self._waiting_of(sponsor_id).get(vendor.id, 0)
        read = self._fresh_queue(vendor)
        return read.queue.waiting + sum(list(read.taken.values()))

    def condition_of(self, vendor: VendorSnapshot) -> Condition:
        """Return the condition of the credential that the API uses."""
        login = self._fresh_queue(vendor).queue.logins.get(vendor.credential_id or 0)
        return login.condition if login else NO_CREDENTIAL

    def is_paused(self, vendor: VendorSnapshot) -> bool:
        """Whether nothing is called over the API's credential until a person acts, as its sessions say."""
        queue = self._fresh_queue(vendor).queue
        login = queue.logins.get(vendor.credential_id or 0)
        return bool(queue.shut or (login and login.shut))

    def _waiting_of(self, sponsor_id: int) -> dict[int, int]:
        until, found = self._own.get(sponsor_id, NEVER)
        if time.monotonic() > until:
            with self._lock:
                began = time.monotonic()
                found = queues.waiting_of(sponsor_id)
                ended = time.monotonic()
                if len(self._own) >= MOST_KNOWN:
                    self._own.clear()
                self._own[sponsor_id] = ended + max(FRESH, SHARE * (ended - began)), found
        return found

    def count_taken(self, vendor: VendorSnapshot, sponsor_id: int, messages: int, mail_class: MailClass) -> None:
        """Count messages that this process has just accepted for the vendor."""
        read = self._queues.get(vendor.id)
        if read:
            key = sponsor_id, mail_class
            read.taken[key] = read.taken.get(key, 0) + messages

    def of(
        self,
        vendor: VendorSnapshot,
        sponsor_id: int,
        messages: int,
        send_at: datetime | None,
        units: int | None = None,
        mail_class: MailClass = MailClass.BULK,
    ) -> Forecast:
        """Return the forecast for a batch behind everything of the sponsor in its class and in more urgent ones.

        Beside it goes what others have waiting, by classes and shares.

        For a future batch the queue is assumed empty.

        `units`: the batch's cost; None: each message costs the same as the vendor's last ones.
        """
        read, now = self._fresh_queue(vendor), datetime.now(UTC)
        queue = read.queue if vendor.disclosed else _hide_reasons(read.queue)
        if units is not None:
            messages = math.ceil(units / queue.each)
        login = queue.logins.get(vendor.credential_id or 0)
        if send_at and not queue.halted and not (login and login.is_stuck):
            costs = (queue.units(n) for n in (1, messages))
            first, last = (forecast_seconds(cost, vendor.limits, (), 0.0) for cost in costs)
            return _make_forecast(
                _add_seconds(send_at, first), _add_seconds(send_at, last), f"{_limits_text(vendor)}, from then on"
            )
        taken = sum(read.taken.get((sponsor_id, one), 0) for one in MailClass if one <= mail_class)
        asked = queue, vendor.credential_id, sponsor_id, taken
        ends = [eta.forecast_batch(*asked, n, now, mail_class) for n in (1, messages)]
        own = queue.sponsors.get(sponsor_id)
        before = ahead.queue_before_sponsor(
            queue, sponsor_id, (own.count(mail_class) if own else 0) + taken, mail_class
        )
        basis = f"{_limits_text(vendor)}, {_describe_before(before)}"
        if queue.cost_text and vendor.disclosed:
            basis += f", {queue.cost_text}"
        if obstacle := ends[0].obstacle:
            basis += f"; {obstacle.reason}"
        return _make_forecast(_forecast_time(ends[0], now), _forecast_time(ends[1], now), basis, before)

    def forecast_with_hours(self, hours: Hours) -> Forecast:
        """Return a forecast without times, since a batch with sending hours cannot be predicted."""
        whose = "each recipient's clock" if hours.each else hours.zone
        return _make_forecast(None, None, f"it goes from {hours.start:%H:%M} to {hours.end:%H:%M} by {whose}")

    def forget_queues(self) -> None:
        self._queues.clear()
        self._own.clear()

    def _fresh_queue(self, vendor: VendorSnapshot) -> _Read:
        read = self._queues.get(vendor.id)
        if read is None or time.monotonic() > read.until:
            with self._lock:
                read = self._queues.get(vendor.id)
                if read is None or time.monotonic() > read.until:
                    read = self._queues[vendor.id] = _read_queue(vendor)
        return read


def forecast_of_job(job: Job, sums: Progress) -> Forecast | None:
    """Return the forecast of a stored batch; None once it is done. Its vendor, credential and campaign are read.

    Times are null while something else than limits and turns delays it, and the first one once it has begun.
    """
    if job.is_done:
        return None
    now = datetime.now(UTC)
    found = eta.forecast_jobs([job], {job.pk: sums}, now)[job.pk]
    if found.ahead is None:
        waits = "nothing is known while it waits for something else than its turn"
        return _make_forecast(None, None, "; ".join(filter(None, (waits, found.plain_stays))))
    return _make_forecast(found.first_at, found.ends_at, _describe_before(found.ahead), found.ahead)


def _read_queue(vendor: VendorSnapshot) -> _Read:
    began = time.monotonic()
    queue = queues.queues_of_vendors([vendor.id], datetime.now(UTC))[vendor.id]
    ended = time.monotonic()
    return _Read(queue, ended + max(FRESH, SHARE * (ended - began)))


def _hide_reasons(queue: VendorQueue) -> VendorQueue:
    """Return the queue without the reasons that this client may not read."""
    return replace(
        queue, disclosed=False, logins={pk: replace(one, disclosed=False) for pk, one in queue.logins.items()}
    )


def _describe_before(found: Ahead) -> str:
    """Say what goes first; of other sponsors without names and numbers."""
    if not (found.others or found.higher):
        return f"{found.own:,} ahead of you"
    return f"{found.own:,} of your own ahead of you; {replace(found, own=0).text_for_owners}"


def _limits_text(vendor: VendorSnapshot) -> str:
    return ", ".join(map(str, vendor.limits)) or "no limit"


def _make_forecast(first: datetime | None, last: datetime | None, basis: str, before: Ahead | None = None) -> Forecast:
    return {
        "first_at": iso_utc(first), "last_at": iso_utc(last), "basis": basis,
        "own_ahead": before.own if before else None, "share": before.rounded_share if before else None,
    }  # fmt: skip


def _forecast_time(end: Eta, now: datetime) -> datetime | None:
    """Return None if an obstacle stands in the way, or now if no limit delays the batch."""
    return None if end.obstacle else end.ends_at or now


def _add_seconds(start: datetime, seconds: float | None) -> datetime | None:
    try:
        return None if seconds is None else start + timedelta(seconds=seconds)
    except OverflowError:
        return None


def condition_facts(condition: Condition, disclosed: bool) -> dict[str, Any]:
    """Return the members of ConditionOut."""
    return {
        "kind": condition.kind,
        "since": iso_utc(condition.since),
        "until": iso_utc(condition.until),
        "tries": condition.tries if disclosed else None,
        "reason": describe_condition(condition, lambda at: iso_utc(at) or "", is_disclosed=disclosed),
    }


def iso_utc(at: datetime | None) -> str | None:
    """Return ISO 8601 in UTC."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at else None


forecasts = Forecasts()
