"""The sending hours of a campaign, as a user states them."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import time
from typing import Any

from django.core.exceptions import ValidationError

from campaigns.lists.intake.checking import quote_text
from campaigns.models.campaigns import ZONE_FIELD
from campaigns.texts.bad_input import BadInput
from campaigns.texts.templates import Budget, Content, Values
from vendors.models import Vendor, find_zone, known_zone
from vendors.said import Said


@dataclass(frozen=True, slots=True)
class Hours:
    """Sending hours in local time: start is included, end is not; 20:00 to 08:00 spans midnight.

    each: by the clock of each recipient; `zone` then applies to recipients whose zone is unknown.
    """

    start: time
    end: time
    zone: str
    each: bool = False

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise BadInput(Said("sending hours %(hours)s are no hours", hours=f"{self.start:%H:%M}-{self.end:%H:%M}"))
        if self.each and (self.start.second or self.end.second):
            raise BadInput(Said("hours by each recipient's clock begin and end with a minute"))
        try:
            known_zone(self.zone)
        except ValidationError as error:
            raise BadInput(error.messages[0]) from error

    @property
    def columns(self) -> dict[str, Any]:
        """The hours as columns of a campaign."""
        first, last = ("each_from", "each_to") if self.each else ("hours_from", "hours_to")
        return {first: self.start, last: self.end, "time_zone": self.zone}

    def check_fields(self, channel: str, fields: Collection[str]) -> None:
        """Raise BadInput if the hours go by each recipient's clock and these fields cannot tell it."""
        if self.each and channel != Vendor.Channel.SMS and ZONE_FIELD not in fields:
            raise BadInput(
                Said("hours by each recipient's clock need a column time_zone that says where each is (Europe/London)")
            )

    def check_recipient_zones(self, channel: str, content: Content) -> Content:
        """Return the content with a check of each recipient's zone, if the hours go by it."""
        if not self.each or channel == Vendor.Channel.SMS:
            return content
        before = content.further

        def find_zone_faults(recipient: str, fields: Values, budget: Budget | None) -> Iterator[str]:
            zone = fields.get(ZONE_FIELD)
            if not (zone in (None, "") or (isinstance(zone, str) and find_zone(zone))):
                yield Said(
                    "time_zone: %(name)s is no time zone of the IANA list; "
                    "write it like Europe/London, or leave it empty",
                    name=quote_text(str(zone)),
                )
            yield from before(recipient, fields, budget) if before else ()

        return replace(content, further=find_zone_faults)


def parse_hours(text: str, zone: str, each: bool = False) -> Hours:
    """Parse hours like 08:00-20:00 in this zone; each: as in Hours. Raises BadInput."""
    found = re.fullmatch(r"(\d\d?:\d\d)-(\d\d?:\d\d)", text)
    try:
        start, end = (time.fromisoformat(part.zfill(5)) for part in found.groups()) if found else (None, None)
    except ValueError:
        start = end = None
    if start is None or end is None:
        raise BadInput(Said("sending hours %(hours)s must look like 08:00-20:00", hours=repr(text)))
    return Hours(start, end, find_zone(zone) or zone, each)
