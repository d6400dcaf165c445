"""Times that somebody writes with an offset of their own, as PostgreSQL keeps them: it refuses one of 16 hours."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    """The same moment, which has a time zone; where UTC has none so early or late, its first or last one."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return FIRST if moment.year == 1 else LAST


Instant = Annotated[AwareDatetime, AfterValidator(in_utc)]
