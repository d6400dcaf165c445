"""Admits large request bodies: from logged-in users, for drafts they may edit.

The rows are checked before any of the body is read, so a logout, a deleted draft or a withdrawn right takes effect.
"""

import re
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, load_backend
from django.utils.crypto import constant_time_compare

from campaigns.doors.front.body_gate import STRANGERS_BODY, BodyVerdict, WsgiEnviron
from campaigns.doors.front.problems import Problem
from campaigns.models import Draft
from campaigns.models.campaigns import sponsors_of
from campaigns.models.files import LARGEST_MAIL

NEW = "/campaigns/new/"
MAKE = ("campaigns.add_campaign", "campaigns.see_recipients")
DRAFT = re.compile(r"/drafts/(\d{1,18})/")
BESIDE = 1_000_000  # bytes for the form's other fields


def largest_body() -> int:
    """Return the limit of a body with a list of recipients or files of letters."""
    return max(settings.LIST_BYTES, LARGEST_MAIL) + BESIDE


def judge_draft_body(path: str, environ: WsgiEnviron) -> BodyVerdict:
    """Return whose the body is. Raises Problem if it is not for a draft of this user, and django.db's errors."""
    user = logged_in(environ.get("HTTP_COOKIE", ""))
    if user is None:
        return BodyVerdict(STRANGERS_BODY)
    owner = f"user {user.pk}"
    draft = DRAFT.match(path)
    if not draft and path != NEW:
        return BodyVerdict(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, (owner,))
    if not user.has_perms(MAKE):
        raise Problem("forbidden", "You may not make campaigns.")
    if not draft:
        return BodyVerdict(largest_body(), (owner,))
    rows = Draft.objects.of_sponsors(sponsors_of(user)).filter(pk=int(draft[1]), campaign=None)
    sponsor = rows.exclude(busy=Draft.SENDING).values_list("sponsor", flat=True).first()
    if sponsor is None:
        raise Problem("not-found", "There is no such draft of yours; or it was sent.")
    return BodyVerdict(largest_body(), (owner, f"sponsor {sponsor}"))


def logged_in(cookies: str) -> Any:
    """Return the user of a request's session, or None. Unlike Django's own look-up, it never changes the session."""
    try:
        found = SimpleCookie(cookies).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return None
    if found is None or not found.value:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(found.value).load()
    backend = session.get(BACKEND_SESSION_KEY)
    if backend not in settings.AUTHENTICATION_BACKENDS or SESSION_KEY not in session:
        return None
    user: Any = load_backend(backend).get_user(session[SESSION_KEY])  # None for a deactivated user
    if user is None:
        return None
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    known = session.get(HASH_SESSION_KEY, "")
    return user if any(constant_time_compare(known, one) for one in hashes) else None
