"""The times between which a campaign may be called: send time, deadline and sending hours, in the recipients' zone."""

from datetime import UTC, datetime, time, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from campaigns.models import Campaign
from vendors.said import gettext_noop

QUARTER = timedelta(minutes=15)
BY_TIME = gettext_noop("send time: from %(at)s %(zone)s")
BY_HOURS = gettext_noop("sending hours: from %(at)s %(zone)s")


class LocalHours(Protocol):
    """Hours of a day in a zone ("": UTC), as a campaign stores them."""

    @property
    def hours_from(self) -> time | None: ...
    @property
    def hours_to(self) -> time | None: ...
    @property
    def time_zone(self) -> str: ...


def campaign_opens_at(campaign: Campaign, now: datetime) -> datetime | None:
    """Return the earliest time (UTC) at which calls may start, or None for now.

    The start of the hours is included, their end is not. 20:00 to 08:00 spans midnight; equal times mean no
    restriction. A campaign past its deadline does not wait: its jobs are taken so that their messages expire.
    """
    if campaign.deadline and campaign.deadline <= now:
        return None
    start = max(now, campaign.send_at or now)
    opening = find_next_opening(campaign, start)
    return None if opening <= now else opening


def closes_at(campaign: Campaign, now: datetime) -> datetime | None:
    """Return the time (UTC) from which no call may start: the earlier of the deadline and the end of the sending hours.

    Call it while the campaign is open. None: it has neither.
    """
    ends = [at for at in (campaign.deadline, _end_of_hours(campaign, now)) if at]
    return min(ends, default=None)


def _end_of_hours(campaign: Campaign, now: datetime) -> datetime | None:
    """Also tries each quarter of an hour: clocks change on one, and may skip the end or show it twice."""
    last = campaign.hours_to
    if last is None or campaign.hours_from in (None, last):
        return None
    zone = ZoneInfo(campaign.time_zone or "UTC")
    today = now.astimezone(zone).date()
    days = [today + timedelta(days=ahead) for ahead in range(3)]
    ends = {datetime.combine(day, last, zone).replace(fold=fold).astimezone(UTC) for day in days for fold in (0, 1)}
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    ends |= {hour + QUARTER * number for number in range(1, 4 * 50)}
    return next((at for at in sorted(ends) if at > now and not is_inside(campaign, at)), None)


def is_inside(hours: LocalHours, at: datetime) -> bool:
    """Return True if calls may start at that time."""
    first, last = hours.hours_from, hours.hours_to
    if first is None or last is None or first == last:
        return True
    clock = at.astimezone(ZoneInfo(hours.time_zone or "UTC")).time()
    return first <= clock < last if first < last else clock >= first or clock < last


def find_next_opening(hours: LocalHours, at: datetime) -> datetime:
    """Return the time itself if calls may start then, else the start of the next hours."""
    first = hours.hours_from
    if first is None or is_inside(hours, at):
        return at
    zone = ZoneInfo(hours.time_zone or "UTC")
    local = at.astimezone(zone)
    day = local.date() if local.time() < first else local.date() + timedelta(days=1)
    opening = datetime.combine(day, first, tzinfo=zone).astimezone(UTC)
    if opening <= at:  # the clock shows that time twice, and the first one is past
        opening = datetime.combine(day, first, tzinfo=zone).replace(fold=1).astimezone(UTC)
    return opening.astimezone(at.tzinfo)


def opening_form(campaign: Campaign, opening: datetime) -> tuple[str, dict[str, str]]:
    """Return the reason the campaign waits: a text with %(names)s, and their values."""
    zone = ZoneInfo(campaign.time_zone or "UTC")
    by_time = campaign.send_at and campaign.send_at >= opening
    return BY_TIME if by_time else BY_HOURS, {"at": f"{opening.astimezone(zone):%Y-%m-%d %H:%M}", "zone": zone.key}


def describe_opening(campaign: Campaign, opening: datetime) -> str:
    """Return in English when a campaign opens, as it is stored and as commands print it."""
    form, values = opening_form(campaign, opening)
    return form % values
