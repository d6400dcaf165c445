"""What a page hears that asks again by itself after its session has ended."""

from collections.abc import Callable

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse


class PollMiddleware:
    """401 and the address of the log-in page, instead of that page: it would land in the middle of the old one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        asks_again = "HX-Request" in request.headers and request.path.startswith(reverse("admin:index"))
        if not asks_again or admin.site.has_permission(request):
            return self._get_response(request)
        headers = {"WWW-Authenticate": "Session", "X-Login": reverse("admin:login"), "Cache-Control": "no-store"}
        return HttpResponse("Your session has ended.", "text/plain", 401, headers=headers)
