"""Times from outside, in a form that PostgreSQL accepts, which refuses offsets of 16 hours; and times for readers.

The first and last days that Python knows are excluded, because pages show times in zones where they may not exist.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any

from django.utils import formats, timezone
from pydantic import AfterValidator, AwareDatetime, BeforeValidator

FIRST, LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def convert_to_utc(moment: datetime) -> datetime:
    """Return an aware time in UTC, limited to FIRST and LAST."""
    try:
        return min(max(moment.astimezone(UTC), FIRST), LAST)
    except OverflowError:
        return FIRST if moment.year == 1 else LAST


def check_instant(moment: datetime) -> datetime:
    """Return an aware time in UTC. Raises ValueError if it is not between FIRST and LAST."""
    found = convert_to_utc(moment)
    if found in (FIRST, LAST):
        raise ValueError(f"{moment} is too far away")
    return found


def shown_by_clock(clock: datetime, zone: tzinfo) -> list[datetime]:
    """Return the moments at which a zone's clocks show this time: one, none if they skip it, or two in order."""
    first, second = (clock.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = (one.utcoffset() or timedelta() for one in (first, second))
    if before == after:
        return [first]
    return [first, second] if before > after else []


_DATE_TIME = re.compile(  # RFC 3339, as in `format: date-time` of JSON Schema
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-5][0-9])", re.ASCII
)
# Offsets that Python takes and ISO 8601 does not have: 60 minutes or more, and seconds.
_NO_OFFSET = re.compile(r"[+-][0-9]{2}:?(?:[6-9][0-9]|[0-9]{2}:?[0-9]{2}(?:\.[0-9]+)?)", re.ASCII)
_LEAP_SECOND = re.compile(r"(?<=[0-9]:[0-5][0-9]):60")


def drop_leap_second(text: str) -> str:
    """Replace a leap second by the second before it; Python has no leap seconds."""
    return _LEAP_SECOND.sub(":59", text)


def check_offset(text: str) -> str:
    """Return a typed time. Raises ValueError if it ends with an offset that no zone has."""
    sign = max(text.rfind("+"), text.rfind("-"))
    if sign > 0 and _NO_OFFSET.fullmatch(text[sign:]):
        raise ValueError(f"{text!r} has an offset that no zone has")
    return text


def parse_iso_time(text: str) -> datetime:
    """Parse an ISO 8601 time, with or without a zone. Raises ValueError."""
    return datetime.fromisoformat(check_offset(text))


def _parse_instant(value: Any) -> Any:
    """Parse RFC 3339. Raises ValueError for numbers, which would pass as seconds since 1970 and make everything due."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _DATE_TIME.fullmatch(value):
        raise ValueError("give a time with its zone as text, like 2026-12-31T18:00:00+01:00")
    try:
        return datetime.fromisoformat(drop_leap_second(value).upper())
    except ValueError:
        raise ValueError("there is no such time; give one like 2026-12-31T18:00:00+01:00") from None


Instant = Annotated[AwareDatetime, BeforeValidator(_parse_instant), AfterValidator(convert_to_utc)]
"""Of a request: a time as RFC 3339 writes it, nothing else."""


def write_time(at: datetime, now: datetime | None = None) -> str:
    """Write a time of the reader's clock as 18:00, with the date if it is 20 or more hours away."""
    local = timezone.localtime(at)
    near = abs(at - (now or timezone.now())) < timedelta(hours=20)
    return f"{local:%H:%M}" if near else formats.date_format(local, "d M H:i")
