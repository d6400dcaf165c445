"""When a campaign's calls may start: its send time and its sending hours, in the recipients' zone."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from campaigns.models import Campaign


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


def _next_opening(campaign: Campaign, at: datetime) -> datetime:
    first, last = campaign.hours_from, campaign.hours_to
    if first is None or last is None or first == last:
        return at
    zone = ZoneInfo(campaign.time_zone or "UTC")
    local = at.astimezone(zone)
    clock = local.time().replace(tzinfo=None)
    inside = first <= clock < last if first < last else clock >= first or clock < last
    if inside:
        return at
    day = local.date() if clock < first else local.date() + timedelta(days=1)
    return datetime.combine(day, first, tzinfo=zone).astimezone(at.tzinfo)


def in_words(campaign: Campaign, opening: datetime) -> str:
    """Why it waits, as people read it."""
    zone = ZoneInfo(campaign.time_zone or "UTC")
    reason = "send time" if campaign.send_at and campaign.send_at >= opening else "sending hours"
    return f"{reason}: from {opening.astimezone(zone):%Y-%m-%d %H:%M} {zone.key}"
