"""The time zone of campaign owners' pages: the one of the browser, which a script tells in a cookie.

Operators' pages keep the installation's zone, because logs and other operators do.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from campaigns.doors.browser_zones import find_zone
from mailhub.languages import NOT_PAGES

OTHERS = (*NOT_PAGES, "/admin/")


class VisitorZone:
    """Shows the times of owners' pages in the zone of their browser, if it is known."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        zone = None if request.path_info.startswith(OTHERS) else find_zone(request)
        if zone is None:
            return self._get_response(request)
        with timezone.override(zone):
            return self._get_response(request)
