"""Access to the pages of campaign owners.

A page names the permissions it needs. It shows rows of its user's sponsors only
(`campaigns.models.campaigns.sponsors_of`); another sponsor's row is answered like one that does not exist.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from campaigns.doors.owner_phrases import reword_for_owners
from campaigns.doors.shares import sessions
from vendors.history import Actor

View = Callable[..., HttpResponse]
LOOK = "campaigns.view_campaign"


def owners_page(*permissions: str) -> Callable[[View], View]:
    """Make a view a page of campaign owners, for logged-in users with these permissions."""

    def decorate_view(view: View) -> View:
        @wraps(view)
        def view_if_allowed(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            user: Any = request.user
            if not user.is_authenticated:
                return redirect_to_login(_page_after_login(request), reverse("login"))
            if not user.has_perms(permissions or (LOOK,)):
                raise PermissionDenied
            sessions.remember_user(request.session.session_key, user)
            with reword_for_owners():
                answer = view(request, *args, **kwargs)
            answer.headers.setdefault("Cache-Control", "private, no-store")
            return answer

        return view_if_allowed

    return decorate_view


def _page_after_login(request: HttpRequest) -> str:
    """Return where to go after login: the requested page, or the page whose form was sent."""
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    page = urlsplit(request.headers.get("Referer", ""))
    return urlunsplit(("", "", page.path, page.query, "")) if page.netloc == request.get_host() else reverse("home")


def deciding_actor(request: HttpRequest) -> Actor:
    """Return the deciding user, for the history."""
    user: Any = request.user
    return Actor(user.get_username(), user.pk)
