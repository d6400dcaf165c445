"""Times that somebody writes with an offset of their own, as PostgreSQL keeps them: it refuses one of 16 hours.

The first and the last days that Python knows are left out: pages show times in a zone, and not every zone has them.
"""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

FIRST, LAST = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """The same moment, which has a time zone; FIRST or LAST if it is before or after that."""
    try:
        return min(max(moment.astimezone(UTC), FIRST), LAST)
    except OverflowError:
        return FIRST if moment.year == 1 else LAST


def checked(moment: datetime) -> datetime:
    """The same, for whoever can be told: raises ValueError where there is no such moment between FIRST and LAST."""
    found = in_utc(moment)
    if found in (FIRST, LAST):
        raise ValueError(f"{moment} is too far away")
    return found


def shown_by_clock(clock: datetime, zone: tzinfo) -> list[datetime]:
    """The moments at which the clocks of a zone show this time: one, none where they skip it, two in their order."""
    first, second = (clock.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = (one.utcoffset() or timedelta() for one in (first, second))
    if before == after:
        return [first]
    return [first, second] if before > after else []


_DATE_TIME = re.compile(  # RFC 3339, as `format: date-time` of a JSON schema has it
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)
_LEAP_SECOND = re.compile(r"(?<=[0-9]:[0-5][0-9]):60")


def without_leap_second(text: str) -> str:
    """The same time with a leap second taken for the second before it: Python knows none."""
    return _LEAP_SECOND.sub(":59", text)


def _parsed(value: Any) -> Any:
    """A number, or digits alone, would pass for seconds since 1970, a time at which everything is due."""
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _DATE_TIME.fullmatch(value):
        raise ValueError("give a time with its zone as text, like 2026-12-31T18:00:00+01:00")
    return datetime.fromisoformat(without_leap_second(value).upper())


Instant = Annotated[AwareDatetime, BeforeValidator(_parsed), AfterValidator(in_utc)]
"""Of a request: a time as RFC 3339 writes it, nothing else."""
