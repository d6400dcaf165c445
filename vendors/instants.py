"""Times that somebody writes with an offset of their own, as PostgreSQL keeps them: it refuses one of 16 hours.

The first and the last days that Python knows are left out: pages show times in a zone, and not every zone has them.
"""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

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


Instant = Annotated[AwareDatetime, AfterValidator(in_utc)]
