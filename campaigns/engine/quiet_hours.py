"""Quiet hours of a sponsor's SMS, and sending hours of a campaign by each recipient's clock.

A phone number's prefix shows its location, by the data of phonenumbers (`zones_of`); where mobile numbers do not tell,
its country does. A number may lie in several zones: it is called when all of them allow it. If that never happens, or
no zone is known, the sponsor's own zone counts. For e-mail and letters the recipient's field `time_zone` counts.

A message that may not be called now waits by its own row, like a deferral (`Message.call_after`). `QuietWatch` writes
that for the messages a sender is about to claim. Its findings are valid until quiet hours may begin somewhere, `until`.
After that time the sender asks again before it claims.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache, lru_cache
from typing import Any, NamedTuple
from zoneinfo import available_timezones

from phonenumbers import COUNTRY_CODE_TO_REGION_CODE, PhoneNumberType, is_number_type_geographical

from campaigns.engine.lifecycle import execute_holding
from campaigns.engine.sending_hours import QUARTER, find_next_opening, is_inside
from campaigns.models import Campaign
from campaigns.models.campaigns import ZONE_FIELD
from vendors.models import Vendor, find_zone

AT_ONCE = 20_000  # messages in one statement
NORTH_AMERICA = 1  # the country code of a plan in which mobile numbers look like others
FARTHEST = timedelta(days=3)  # zones without a common open time within this have none at all
WHY = "quiet hours of its recipients"  # also for a campaign's hours by each recipient's clock
LONGEST = 9  # digits of a prefix
Zones = tuple[str, ...]


class OpenHours(NamedTuple):
    """The hours in which a zone is not quiet, in the shape of sending_hours.LocalHours."""

    hours_from: time
    hours_to: time
    time_zone: str


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Local times between which nothing is sent. zone: for numbers whose zone is not known."""

    start: time
    end: time
    zone: str

    def opening_of_number(self, number: str, now: datetime) -> datetime | None:
        """Return the earliest time (UTC) at which this number (E.164) may be called, or None for now."""
        return self.opens_in(zones_of(number), now)

    def opens_in(self, zones: Zones, now: datetime) -> datetime | None:
        """Return the earliest time (UTC) for somebody in any of these zones, or None for now."""
        opening = self._find_opening(zones, now)
        return None if opening <= now else opening

    def steady_interval(self, now: datetime) -> tuple[datetime, datetime]:
        """Return the interval around a time in which no zone becomes quiet or open.

        Clocks of all zones differ by quarters of an hour and change on them. So quiet hours begin, end or are skipped
        on a quarter, or at the minutes after a quarter that their own times have.
        """
        hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        shifts = {0, self.start.minute % 15, self.end.minute % 15}
        moments = sorted(
            hour + QUARTER * number + timedelta(minutes=shift) for number in range(-1, 5) for shift in shifts
        )
        return max(at for at in moments if at <= now), min(at for at in moments if at > now)

    def openings_by_prefix(self, now: datetime) -> dict[str, datetime | None]:
        """Return when numbers may be called, by prefix (digits after the +); None: now. The longest prefix counts."""
        return _compute_prefixes(self, self.steady_interval(now)[0])

    def openings_by_zone(self, now: datetime) -> dict[str, datetime | None]:
        """Return when recipients may be called, by zone; None: now. "": without a known zone."""
        return _compute_zones(self, self.steady_interval(now)[0])

    def _find_opening(self, zones: Zones, now: datetime) -> datetime:
        return self._find_common_hour(zones, now) or self._find_common_hour((self.zone,), now) or now

    def _find_common_hour(self, zones: Zones, now: datetime) -> datetime | None:
        """Return the first time at which none of these zones is quiet, or None."""
        hours = [OpenHours(self.end, self.start, zone) for zone in zones]
        at = now.astimezone(UTC)
        while hours and at <= now + FARTHEST:
            if all(is_inside(one, at) for one in hours):
                return at
            at = max(find_next_opening(one, at) for one in hours)
        return None


def quiet_hours_of_campaign(campaign: Campaign) -> QuietHours | None:
    """Return the quiet hours outside the campaign's hours by each recipient's clock, or None."""
    if campaign.each_from is None or campaign.each_to is None:
        return None
    return QuietHours(campaign.each_to, campaign.each_from, campaign.time_zone or "UTC")


def zones_of_recipient(channel: str, recipient: str, fields: Mapping[str, Any]) -> Zones:
    """Return the zones in which a recipient may be, or ()."""
    if channel == Vendor.Channel.SMS:
        return zones_of(recipient)
    zone = fields.get(ZONE_FIELD)
    known = find_zone(zone) if isinstance(zone, str) else None
    return (known,) if known else ()


def is_exempt(channel: str, campaign: Campaign) -> bool:
    """Return True if the sponsor's quiet hours do not apply."""
    return channel != Vendor.Channel.SMS or campaign.transactional


@cache
def _zones_by_prefix() -> dict[str, Zones]:
    """Return zones by prefix. Loaded on first use, because the table is large."""
    from phonenumbers.tzdata import TIMEZONE_DATA

    known, found = available_timezones(), dict[str, Zones]()
    for prefix, named in TIMEZONE_DATA.items():
        zones = tuple(zone for zone in named if zone in known)
        country = next(prefix[:n] for n in (1, 2, 3) if int(prefix[:n]) in COUNTRY_CODE_TO_REGION_CODE)
        if _tells_more(int(country)):
            found[prefix] = zones
        else:
            found[country] = tuple(dict.fromkeys((*found.get(country, ()), *zones)))
    return found


def _tells_more(country: int) -> bool:
    """Return True if a country's mobile numbers show a place within it."""
    return country == NORTH_AMERICA or is_number_type_geographical(PhoneNumberType.MOBILE, country)


def zones_of(number: str) -> Zones:
    """Return the zones of a number in E.164, by its longest known prefix, or ()."""
    digits, data = number.removeprefix("+"), _zones_by_prefix()
    return next((data[digits[:length]] for length in range(LONGEST, 0, -1) if digits[:length] in data), ())


@lru_cache(maxsize=256)
def _compute_prefixes(quiet: QuietHours, at: datetime) -> dict[str, datetime | None]:
    """Leaves out each prefix that has the result of its longest shorter one."""
    opens: dict[Zones, datetime | None] = {}
    found: dict[str, datetime | None] = {}
    for prefix, zones in sorted({"": (), **_zones_by_prefix()}.items()):  # each prefix comes after its own prefixes
        if zones not in opens:
            opening = quiet._find_opening(zones, at)
            opens[zones] = None if opening <= at else opening
        shorter = next((found[prefix[:n]] for n in range(len(prefix) - 1, -1, -1) if prefix[:n] in found), None)
        if opens[zones] != shorter:
            found[prefix] = opens[zones]
    return found


@lru_cache(maxsize=256)
def _compute_zones(quiet: QuietHours, at: datetime) -> dict[str, datetime | None]:
    return {zone: quiet.opens_in((zone,) if zone else (), at) for zone in ("", *sorted(available_timezones()))}


READ = "SELECT quiet_from, quiet_to, time_zone FROM campaigns_sponsor WHERE id = %s AND quiet_from IS NOT NULL"
# Only the sender that owns the job puts its messages off.
_PUT_OFF = """
WITH held AS (
    SELECT FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING'
), opening AS (
    SELECT * FROM unnest(%(places)s::text[], %(opens)s::timestamptz[]) AS p(place, opens)
), quiet AS (
    {quiet}
)
UPDATE campaigns_message m SET call_after = q.opens FROM quiet q
WHERE m.id = ANY(ARRAY[q.id]) AND m.dequeued_at IS NULL AND coalesce(m.call_after, '-infinity') < q.opens
"""
_WAITS = "m.id >= %(low)s AND m.id < %(high)s AND m.dequeued_at IS NULL AND EXISTS (SELECT FROM held)"
# The longest prefix counts, even one without quiet hours (NULL).
PUT_OFF = _PUT_OFF.format(
    quiet=f"""SELECT DISTINCT ON (m.id) m.id, p.opens
    FROM campaigns_message m CROSS JOIN generate_series(0, {LONGEST}) AS n
        JOIN opening p ON p.place = substr(m.recipient, 2, n) AND length(p.place) = n
    WHERE {_WAITS} ORDER BY m.id, n DESC"""
)
PUT_OFF_BY_FIELD = _PUT_OFF.format(
    quiet=f"""SELECT m.id, p.opens FROM campaigns_message m
        LEFT JOIN opening known ON lower(known.place) = replace(lower(m.params ->> '{ZONE_FIELD}'), ' ', '_')
        JOIN opening p ON p.place = coalesce(known.place, '')
    WHERE {_WAITS}"""
)


async def read_quiet_hours(connection: Any, sponsor_id: int) -> QuietHours | None:
    """Return the sponsor's current quiet hours, or None."""
    row = await (await connection.execute(READ, [sponsor_id])).fetchone()
    return QuietHours(*row) if row else None


class QuietWatch:
    """A sender's knowledge of quiet hours. until: how long it is valid; None: ask before claiming."""

    def __init__(self, job_id: int, fence: int, campaign: Campaign, channel: str) -> None:
        self._job_id, self._fence, self._sponsor_id = job_id, fence, campaign.sponsor_id
        self._exempt, self._own = is_exempt(channel, campaign), quiet_hours_of_campaign(campaign)
        self._by_number = channel == Vendor.Channel.SMS
        self.until: datetime | None = None
        self._since: datetime | None = None

    async def put_quiet_off(self, locking: Callable[..., Awaitable[Any]], messages: range, now: datetime) -> None:
        """Put off the messages that may not be called now, unless already known. None of them is in a call.

        locking: as SharedRows.run_with_rows.
        """
        # `now` before `_since` means that the clock was put back, so the findings are void.
        if (self._exempt and not self._own) or (self._since and self.until and self._since <= now < self.until):
            return
        both = await locking(lambda connection: self._let_wait(connection, messages, now))
        self._since, self.until = now, min((one.steady_interval(now)[1] for one in both), default=now + QUARTER)

    async def _let_wait(self, connection: Any, messages: range, now: datetime) -> list[QuietHours]:
        of_all = None if self._exempt else await read_quiet_hours(connection, self._sponsor_id)
        both = [one for one in (of_all, self._own) if one]
        for quiet in both:
            opens = quiet.openings_by_prefix(now) if self._by_number else quiet.openings_by_zone(now)
            await self._put_off_slices(connection, opens, messages)
        return both

    async def _put_off_slices(self, connection: Any, opens: dict[str, datetime | None], messages: range) -> None:
        """Update in slices, so that a stop does not wait for long."""
        params = {"job": self._job_id, "fence": self._fence, "places": list(opens), "opens": list(opens.values())}
        statement = PUT_OFF if self._by_number else PUT_OFF_BY_FIELD
        for low in range(messages.start, messages.stop, AT_ONCE):
            params |= {"low": low, "high": min(low + AT_ONCE, messages.stop)}
            await execute_holding(connection, statement, params, jobs=[self._job_id])
