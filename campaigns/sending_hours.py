"""When a campaign's calls may start: its send time and its sending hours, in the recipients' zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from campaigns.models import Campaign

QUARTER = timedelta(minutes=15)


def opens_at(campaign: Campaign, now: datetime) -> datetime | None:
    """None: open now; else the earliest moment (UTC) at which it can be. From is included, to is not.

    08:00 to 20:00 is the day; 20:00 to 08:00 goes over midnight; equal times mean no restriction. What is past its
    deadline waits for nothing: it is picked up to expire.
    """
    if campaign.deadline and campaign.deadline <= now:
        return None
    start = max(now, campaign.send_at or now)
    opening = _next_opening(campaign, start)
    return None if opening <= now else opening


def closes_at(campaign: Campaign, now: datetime) -> datetime | None:
    """From when on no call may start (UTC), as seen while it is open: the deadline or the end of the sending hours.

    None: never.
    """
    ends = [at for at in (campaign.deadline, _end_of_hours(campaign, now)) if at]
    return min(ends, default=None)


def _end_of_hours(campaign: Campaign, now: datetime) -> datetime | None:
    """Also where clocks change, which they do on a quarter of an hour: they may pass over an hour, or show it twice."""
    last = campaign.hours_to
    if last is None or campaign.hours_from in (None, last):
        return None
    zone = ZoneInfo(campaign.time_zone or "UTC")
    today = now.astimezone(zone).date()
    days = [today + timedelta(days=ahead) for ahead in range(3)]
    ends = {datetime.combine(day, last, zone).replace(fold=fold).astimezone(UTC) for day in days for fold in (0, 1)}
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    ends |= {hour + QUARTER * number for number in range(1, 4 * 50)}
    return next((at for at in sorted(ends) if at > now and not _is_inside(campaign, at)), None)


def _is_inside(campaign: Campaign, at: datetime) -> bool:
    first, last = campaign.hours_from, campaign.hours_to
    if first is None or last is None or first == last:
        return True
    clock = at.astimezone(ZoneInfo(campaign.time_zone or "UTC")).time()
    return first <= clock < last if first < last else clock >= first or clock < last


def _next_opening(campaign: Campaign, at: datetime) -> datetime:
    first = campaign.hours_from
    if first is None or _is_inside(campaign, at):
        return at
    zone = ZoneInfo(campaign.time_zone or "UTC")
    local = at.astimezone(zone)
    day = local.date() if local.time() < first else local.date() + timedelta(days=1)
    opening = datetime.combine(day, first, tzinfo=zone).astimezone(UTC)
    if opening <= at:  # the clock shows that time twice, and the first was before
        opening = datetime.combine(day, first, tzinfo=zone).replace(fold=1).astimezone(UTC)
    return opening.astimezone(at.tzinfo)


def describe_opening(campaign: Campaign, opening: datetime) -> str:
    """Why it waits, as people read it."""
    zone = ZoneInfo(campaign.time_zone or "UTC")
    reason = "send time" if campaign.send_at and campaign.send_at >= opening else "sending hours"
    return f"{reason}: from {opening.astimezone(zone):%Y-%m-%d %H:%M} {zone.key}"
