"""Live parts of pages, polled every few seconds and sent only when changed.

Each answer sets the next interval: longer if it took long, and none once nothing can change any more. Without
JavaScript the part shows the state at page load.
"""

import hashlib
import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

EVERY = (2, 5, 15, 60)  # seconds
SHARE = 20  # an answer takes at most a twentieth of the interval


class LivePart:
    """A live part of a page. url: answers with the part alone. began: time.monotonic().

    around: a template with the elements elsewhere on the page that change with it, for htmx to put in their places; it
    has `polled` in its context. over: nothing will change any more.
    """

    def __init__(
        self, request: HttpRequest, url: str, template: str, context: dict[str, Any], around: str = ""
    ) -> None:
        self._request, self._url, self._template, self._context = request, url, template, context
        self._around = around
        self.began = time.monotonic()

    @property
    def page_context(self) -> dict[str, Any]:
        """The context of the part, for the rest of the page."""
        return self._context

    def html(self, *, over: bool) -> SafeString:
        """Return the part for its page."""
        inner, _around, every, digest = self._render_parts(over)
        return self._render_around(inner, every, digest)

    def answer(self, *, over: bool) -> HttpResponse:
        """Answer a poll with the part; empty if the browser has it already and polls no more often than needed."""
        inner, around, every, digest = self._render_parts(over)
        seen, _, asks = self._request.GET.get("seen", "").partition("-")
        if seen == digest and asks.isdecimal() and (0 < every <= int(asks[:4]) or over):
            return HttpResponse(status=204)
        return HttpResponse(self._render_around(inner, every, digest) + around)

    def _render_parts(self, over: bool) -> tuple[SafeString, SafeString, int, str]:
        inner = render_to_string(self._template, self._context, self._request)
        around = SafeString("")
        if self._around:
            around = render_to_string(self._around, {**self._context, "polled": True}, self._request)
        taken = SHARE * (time.monotonic() - self.began)
        every = 0 if over else next((seconds for seconds in EVERY if seconds >= taken), EVERY[-1])
        return inner, around, every, hashlib.sha256(f"{over} {inner} {around}".encode()).hexdigest()[:16]

    def _render_around(self, inner: SafeString, every: int, digest: str) -> SafeString:
        at = timezone.localtime()
        context = {"inner": inner, "every": every, "digest": digest, "url": self._url, "at": at}
        return render_to_string("owners/live.html", context)
