"""Live parts of pages: asked for again every few seconds, and sent only if something has changed.

A part says when to ask again: later if its answer has taken long, and never when nothing can change any more. Without
JavaScript it is what the page shows.
"""

import hashlib
import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

EVERY = (2, 5, 15, 60)  # seconds
SHARE = 20  # an answer takes a twentieth of the time until the next one, or less


class LivePart:
    """A part of a page. url: answers with the part alone; over: nothing will change; began: time.monotonic()."""

    def __init__(self, request: HttpRequest, url: str, template: str, context: dict[str, Any]) -> None:
        self._request, self._url, self._template, self._context = request, url, template, context
        self.began = time.monotonic()

    def html(self, *, over: bool) -> SafeString:
        """The part for its page."""
        return self._whole(*self._made(over))

    def answer(self, *, over: bool) -> HttpResponse:
        """The part alone; empty if it is what the browser shows, which asks seldom enough."""
        inner, every, digest = self._made(over)
        seen, _, asks = self._request.GET.get("seen", "").partition("-")
        if seen == digest and asks.isdecimal() and (0 < every <= int(asks[:4]) or over):
            return HttpResponse(status=204)
        return HttpResponse(self._whole(inner, every, digest))

    def _made(self, over: bool) -> tuple[SafeString, int, str]:
        inner = render_to_string(self._template, self._context, self._request)
        taken = SHARE * (time.monotonic() - self.began)
        every = 0 if over else next((seconds for seconds in EVERY if seconds >= taken), EVERY[-1])
        return inner, every, hashlib.sha256(f"{over} {inner}".encode()).hexdigest()[:16]

    def _whole(self, inner: SafeString, every: int, digest: str) -> SafeString:
        at = timezone.localtime()
        context = {"inner": inner, "every": every, "digest": digest, "url": self._url, "at": at}
        return render_to_string("owners/live.html", context)
