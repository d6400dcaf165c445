"""The page on which a recipient unsubscribes, and the one-click request of a mailbox provider (RFC 8058).

The token in the URL is the only authority: there is no log-in, no cookie, and so no CSRF token either. GET changes
nothing, because scanners follow links. Each change is idempotent, so it may be requested twice. A one-click request is
answered directly, without a redirect.
"""

import logging
from typing import Any

from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.csrf import csrf_exempt

from campaigns.doors.front import rate_limits
from campaigns.doors.front.problems import Problem
from campaigns.suppression import links, unsubscribing
from campaigns.suppression.links import Subscription
from campaigns.suppression.pages.phrases import choose_phrases
from vendors import alarms
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)

ONE_CLICK, PAGE = Said(gettext_noop("one-click")), Said(gettext_noop("link"))  # sources of suppressions
LATER = 60  # seconds
UNDONE = 10  # times a minute that one recipient may subscribe again; each change makes senders check
BEHIND = ".,;:!?)>]}'\""  # characters after a URL that programs take for a part of it
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the URL is the authority
    "X-Robots-Tag": "noindex",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "Vary": "Accept-Language",
}


@csrf_exempt
def unsubscribe_page(request: HttpRequest, token: str) -> HttpResponse:
    """Show the state (GET) or change it (POST). `what` is topic, all or again; without it the request is one-click."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD, POST"})
    token = token.rstrip(BEHIND)
    if token == links.PREVIEW:
        return _answer_page(request, "preview")
    try:
        found = links.read_link(token)
        state = unsubscribing.subscription_state(found) if found else None
        if found is None or state is None:
            return _answer_page(request, "unknown", 404)
        done: str | None = ""
        if request.method == "POST":
            done = _change_subscription(request, found)
            state = unsubscribing.subscription_state(found)
    except Error as error:
        alarms.CANNOT_UNSUBSCRIBE.log(log, error)
        return _answer_page(request, "later", 503)
    except Problem:
        return _answer_page(request, "later", 503)
    if done is None:
        return HttpResponse(status=400)
    return _answer_page(request, done, state=state) if state else _answer_page(request, "unknown", 404)


def _change_subscription(request: HttpRequest, of: Subscription) -> str | None:
    """Make the requested change and return its name; None if the request is unknown."""
    match request.POST.get("what"):
        case None:
            unsubscribing.unsubscribe_link(of, ONE_CLICK)
        case "topic":
            unsubscribing.unsubscribe_link(of, PAGE)
        case "all":
            unsubscribing.unsubscribe_link(of, PAGE, everything=True)
        case "again":
            rate_limits.subscribe_again(f"{of.sponsor_id} {of.digest}", UNDONE)
            unsubscribing.subscribe_again(of)
            return "subscribed"
        case _:
            return None
    return "unsubscribed"


def _answer_page(
    request: HttpRequest, what: str, status: int = 200, state: unsubscribing.SubscriptionState | None = None
) -> HttpResponse:
    chosen = state.language if state else ""
    language, say = choose_phrases(chosen, request.META.get("HTTP_ACCEPT_LANGUAGE", ""))
    facts: dict[str, Any] = {"language": language, "say": say, "notice": _notice_text(what, say), "state": state}
    if state:
        names = {"sponsor": state.sponsor, "topic": state.topic}
        facts |= {name: getattr(say, name).format(**names) for name in ("button_all", "button_topic")}
        facts["now"] = _state_text(state, say).format(**names)
    text = render_to_string("public/unsubscribe.html", facts)
    headers = {**HEADERS, "Content-Language": language} | ({"Retry-After": str(LATER)} if status == 503 else {})
    return HttpResponse(text, status=status, headers=headers)


def _notice_text(what: str, say: Any) -> str:
    return getattr(say, what, "") if what in ("unknown", "preview", "later", "subscribed") else ""


def _state_text(state: unsubscribing.SubscriptionState, say: Any) -> str:
    if state.without_everything:
        return str(say.without_all)
    if state.topic:
        return str(say.without_topic if state.without_topic else say.from_topic)
    return str(say.from_all)
