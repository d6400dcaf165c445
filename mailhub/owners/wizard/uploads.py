"""Who may send a large body: a browser that has been shown a page of the wizard, by a cookie that says so.

Bodies are read before anybody's session is looked at, so the cookie is signed, and the event loop can check it alone.
"""

from http.cookies import CookieError, SimpleCookie

from django.conf import settings
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpResponse

from campaigns.models.files import LARGEST_MAIL

PATHS = ("/campaigns/new/", "/drafts/")
COOKIE = "upload"
HOURS = 48
BESIDE = 1_000_000  # bytes of a form beside its file


def most_bytes() -> int:
    """Of a body with a list of recipients or with files of letters."""
    return max(settings.LIST_BYTES, LARGEST_MAIL) + BESIDE


def allow(answer: HttpResponse, user_id: int) -> None:
    """Lets the browser send large bodies for some time."""
    answer.set_cookie(
        COOKIE,
        _signer().sign(str(user_id)),
        max_age=HOURS * 3600,
        path="/",
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )


def may(path: str, cookies: str) -> bool:
    """Whether a request with these cookies may have a large body."""
    if not path.startswith(PATHS):
        return False
    try:
        found = SimpleCookie(cookies).get(COOKIE)
        return found is not None and bool(_signer().unsign(found.value, max_age=HOURS * 3600))
    except (CookieError, BadSignature):
        return False


def _signer() -> TimestampSigner:
    return TimestampSigner(salt="mailhub.owners.wizard.uploads")
