"""The time zone of campaign owners' pages: the one of the browser, which a script tells in a cookie.

Operators' pages keep the installation's zone, because logs and other operators do.
"""

from collections.abc import Callable
from functools import cache
from zoneinfo import available_timezones

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from mailhub.languages import NOT_PAGES

COOKIE = "mailhub_zone"  # as in static/mailhub/admin.js
OTHERS = (*NOT_PAGES, "/admin/")


@cache
def _known() -> frozenset[str]:
    return frozenset(available_timezones())


class VisitorZone:
    """Shows the times of owners' pages in the zone of their browser, if it is known."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        name = request.COOKIES.get(COOKIE, "")
        if request.path_info.startswith(OTHERS) or name not in _known():
            return self._get_response(request)
        with timezone.override(name):
            return self._get_response(request)


def is_known(request: HttpRequest) -> bool:
    """Return True if the browser has told its zone."""
    return request.COOKIES.get(COOKIE, "") in _known()
