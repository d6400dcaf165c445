"""Secrets that a page shows once, derived from a token of its form, so that a second press makes no second one.

The token is in the form alone, and nothing is stored. Sending the same form again within an hour, for example by a
double click, gives the same secret.
"""

import base64
import hashlib
import hmac
import secrets

from django.conf import settings
from django.core import signing
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

FORM_LIFE = 3600  # seconds
SALT = "campaigns.doors.once"
TOO_OLD = gettext_lazy("Nothing was changed: this form was open for more than an hour. Please try again.")


class FormTooOld(Exception):
    """The form was opened more than an hour ago, or is not ours."""


def make_form_token() -> str:
    """Return a token for the hidden field `once` of a form."""
    return signing.TimestampSigner(salt=SALT).sign(secrets.token_urlsafe(24))


def derive_from_form(request: HttpRequest, purpose: str) -> bytes:
    """Return 32 bytes, determined by this form's token, its content and the user. Raises FormTooOld."""
    given = request.POST.get("once", "")
    try:
        signing.TimestampSigner(salt=SALT).unsign(given, max_age=FORM_LIFE)
    except signing.BadSignature as error:
        raise FormTooOld from error
    filled = sorted((name, request.POST.getlist(name)) for name in request.POST if name != "csrfmiddlewaretoken")
    plain = f"{SALT} {purpose} {request.user.pk} {filled}"
    return hmac.digest(settings.SECRET_KEY.encode(), plain.encode(), hashlib.sha256)


def text_of(some: bytes) -> str:
    """Encode bytes as characters safe in a URL."""
    return base64.urlsafe_b64encode(some).rstrip(b"=").decode()
