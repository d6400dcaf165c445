"""When a campaign may be sent: what people write, read strictly. Every function raises BadInput."""

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Literal

from django.core.exceptions import ValidationError

from campaigns.intake.problems import BadInput
from vendors.models import known_zone

FARTHEST = timedelta(days=3653)  # ten years
At = Literal["nightly", "now"] | datetime


@dataclass(frozen=True, slots=True)
class Hours:
    """Calls start from start on and none from end on, local time of the zone; 20:00 to 08:00 goes over midnight."""

    start: time
    end: time
    zone: str

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise BadInput(f"sending hours {self.start:%H:%M}-{self.end:%H:%M} are no hours")
        try:
            known_zone(self.zone)
        except ValidationError as error:
            raise BadInput(error.messages[0]) from error


def parse_at(text: str) -> At:
    """nightly, now, or a moment."""
    if text == "nightly":
        return "nightly"
    if text == "now":
        return "now"
    return parse_moment(text, "--at")


def parse_moment(text: str, what: str) -> datetime:
    """ISO 8601 with its zone."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"{what} {text!r} is not a time; write it like 2030-01-31T18:00:00+00:00") from error


def parse_hours(text: str, zone: str) -> Hours:
    found = re.fullmatch(r"(\d\d?:\d\d)-(\d\d?:\d\d)", text)
    try:
        start, end = (time.fromisoformat(part.zfill(5)) for part in found.groups()) if found else (None, None)
    except ValueError:
        start = end = None
    if start is None or end is None:
        raise BadInput(f"sending hours {text!r} must look like 08:00-20:00")
    return Hours(start, end, zone)


def check_moment(moment: datetime, what: str, now: datetime) -> None:
    """A moment that is still to come, within ten years."""
    if moment.tzinfo is None:
        raise BadInput(f"{what} {moment.isoformat()} has no time zone; add one, like {moment.isoformat()}+00:00")
    if moment <= now:
        raise BadInput(f"{what} {moment.isoformat()} is past")
    if moment > now + FARTHEST:
        raise BadInput(f"{what} {moment.isoformat()} is more than ten years ahead")


def check_times(at: At, deadline: datetime | None, now: datetime) -> None:
    if isinstance(at, datetime):
        check_moment(at, "the time to send at,", now)
    if deadline is not None:
        check_moment(deadline, "the deadline", now)
        if isinstance(at, datetime) and deadline <= at:
            raise BadInput("the deadline is not after the time to send at")
