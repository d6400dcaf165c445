"""Who may see a page of campaign owners.

A page names the permission that it needs; whose rows it shows follows from the sponsors of its user
(`campaigns.models.campaigns.sponsors_of`). A row of another sponsor is answered like one that does not exist.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from mailhub.shares import sessions
from vendors.history import Actor

View = Callable[..., HttpResponse]
LOOK = "campaigns.view_campaign"


def page(*permissions: str) -> Callable[[View], View]:
    """Makes a view a page of campaign owners: for users who have logged in, and have these permissions."""

    def decorated(view: View) -> View:
        @wraps(view)
        def allowed(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            user: Any = request.user
            if not user.is_authenticated:
                return redirect_to_login(_back(request), reverse("login"))
            if not user.has_perms(permissions or (LOOK,)):
                raise PermissionDenied
            sessions.remember(request.session.session_key, user)
            answer = view(request, *args, **kwargs)
            answer.headers.setdefault("Cache-Control", "private, no-store")
            return answer

        return allowed

    return decorated


def _back(request: HttpRequest) -> str:
    """Where somebody goes on who has logged in: to what was asked for, or to the page whose form was sent."""
    if request.method in ("GET", "HEAD"):
        return request.get_full_path()
    page = urlsplit(request.headers.get("Referer", ""))
    return urlunsplit(("", "", page.path, page.query, "")) if page.netloc == request.get_host() else reverse("home")


def actor(request: HttpRequest) -> Actor:
    """Who decides, for the history."""
    user: Any = request.user
    return Actor(user.get_username(), user.pk)
