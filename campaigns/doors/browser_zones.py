"""The time zone of a browser, which a script tells in a cookie."""

from functools import cache
from zoneinfo import available_timezones

from django.http import HttpRequest

COOKIE = "mailhub_zone"  # as in static/mailhub/admin.js


@cache
def known_zones() -> frozenset[str]:
    """Return the names of all time zones. The library opens hundreds of files for them."""
    return frozenset(available_timezones())


def find_zone(request: HttpRequest) -> str | None:
    """Return the zone that the browser has told; None if there is no such zone."""
    name = request.COOKIES.get(COOKIE, "")
    return name if name in known_zones() else None
