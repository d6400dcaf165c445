"""Delivery reports of e-mail services through django-anymail: verifies signatures and maps their events to ours."""

from __future__ import annotations

import base64
import hmac
import importlib
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from django.core.handlers.wsgi import WSGIRequest

from vendors.adapters.anymail_services import check_boto3
from vendors.adapters.reports import (
    Bounce,
    NotTheVendor,
    Reported,
    ReportedKind,
    ReportRequest,
    ToConfirm,
    bad_report,
    verify_signature,
)
from vendors.causes.gone import says_unknown
from vendors.causes.scopes import is_about_us
from vendors.causes.services import find_service

REFERENCE = "reference"
"""The name under which our reference travels in a mail's metadata."""

# django-anymail's name for each service's signing secret. The other services call with USER:PASSWORD in the address
# (basic authentication).
SIGNED = {
    "mailgun": "webhook_signing_key",
    "sendgrid": "tracking_webhook_verification_key",
    "mailersend": "signing_secret",
    "mandrill": "webhook_key",
    "postal": "webhook_key",
    "unisender_go": "api_key",
}
SVIX = ("resend",)  # Standard Webhooks with older header names, so no further package is needed
_SUBSCRIBE = re.compile(
    r"https://sns\.(?P<region>[a-z]{2}(?:-[a-z0-9]+){1,4})\.amazonaws\.com(?:\.cn)?/\?Action=ConfirmSubscription&[!-~]{1,2000}"
)
KINDS: dict[str, ReportedKind] = {
    "delivered": "delivered",
    "deferred": "deferred",
    "bounced": "bounced",
    "rejected": "failed",
    "failed": "failed",
    "complained": "complained",
    "unsubscribed": "unsubscribed",
    "opened": "opened",
    "clicked": "clicked",
}


def _look_inside(event: Any, *path: str) -> Any:
    for name in path:
        event = event.get(name) if isinstance(event, Mapping) else None
    return event


# True if the service itself says that the recipient does not exist. All other bounces are soft, and so are those whose
# text contradicts the service, because a hard bounce suppresses its recipient.
UNKNOWN: dict[str, Callable[[Any], bool]] = {
    "amazon_ses": lambda event: (
        _look_inside(event, "bounce", "bounceType") == "Permanent"
        and _look_inside(event, "bounce", "bounceSubType") in ("General", "NoEmail", "Suppressed")
    ),
    "brevo": lambda event: _look_inside(event, "event") in ("hard_bounce", "invalid_email"),
    "mailgun": lambda event: _is_permanent(event) and _look_inside(event, "event-data", "reason") == "bounce",
    "postmark": lambda event: _look_inside(event, "Type") in ("HardBounce", "BadEmailAddress"),
    "resend": lambda event: _look_inside(event, "data", "bounce", "type") == "Permanent",
    "sendgrid": lambda event: _look_inside(event, "event") == "bounce" and _look_inside(event, "type") == "bounce",
}
# True if the service calls a bounce permanent, whatever the cause; then the text decides.
PERMANENT: dict[str, Callable[[Any], bool]] = {
    "amazon_ses": lambda event: _look_inside(event, "bounce", "bounceType") == "Permanent",
    "mailgun": lambda event: _is_permanent(event),
    "sendgrid": lambda event: _look_inside(event, "event") == "bounce" and _look_inside(event, "type") is None,
}
# Where a service's event has the code that its table lists.
LISTED: dict[str, tuple[str, ...]] = {
    "amazon_ses": ("bounce", "bounceSubType"),
    "brevo": ("event",),
    "mailgun": ("event-data", "delivery-status", "code"),
    "mailjet": ("error",),
    "mandrill": ("reject", "reason"),
    "postmark": ("Type",),
    "sendgrid": ("bounce_classification",),
    "sparkpost": ("msys", "message_event", "bounce_class"),
}
CODES = (("status",), ("event-data", "delivery-status", "code"), ("event-data", "delivery-status", "enhanced-code"))


def _is_permanent(event: Any) -> bool:
    return bool(_look_inside(event, "event-data", "severity") == "permanent")


def _is_hard(service: str, event: Any, note: str) -> bool:
    def is_never_hard(_: Any) -> bool:
        return False

    codes = [str(_look_inside(event.esp_event, *path) or "") for path in CODES]
    unknown = says_unknown(" ".join([*codes, note]))
    if event.reject_reason == "invalid" or UNKNOWN.get(service, is_never_hard)(event.esp_event):
        return unknown is not False
    return unknown is True and PERMANENT.get(service, is_never_hard)(event.esp_event)


def read_events(service: str, request: ReportRequest, secrets: Sequence[str]) -> list[Reported]:
    """Return the events in a service's report, signed with one of the secrets.

    Raises NotTheVendor, BadReport, ToConfirm.
    """
    if service == "amazon_ses":
        check_boto3()  # django-anymail's view needs it too
    view = _verified_view(service, request, secrets)
    if service == "amazon_ses" and (confirming := request.json()).get("Type") == "SubscriptionConfirmation":
        raise ToConfirm(_amazon_confirmation(confirming))
    try:
        events = view.parse_events(_to_django_request(request))
        found = [_convert_event(service, event) for event in events]
    except Exception as error:  # anything may be missing in it
        raise bad_report("unreadable", f"It is no report as {service} makes them: {type(error).__name__}.") from None
    return [one for one in found if one is not None]


def _verified_view(service: str, request: ReportRequest, secrets: Sequence[str]) -> Any:
    """Return the view that accepts the signature. Raises NotTheVendor."""
    if service in SVIX:
        renamed = {
            f"webhook-{name}": request.headers.get(f"svix-{name}", "") for name in ("id", "timestamp", "signature")
        }
        verify_signature(secrets, renamed, request.body)
        return _make_view(service, "nobody:")
    for secret in secrets if service in SIGNED else _logged_in(request, secrets):
        with suppress(Exception):  # a stranger may send anything
            view = _make_view(service, secret)
            view.run_validators(_to_django_request(request))
            return view
    raise NotTheVendor(f"the signature is not that of {service}")


def _logged_in(request: ReportRequest, secrets: Sequence[str]) -> list[str]:
    """Return the secrets that match the request's basic authentication. Nothing else is read without a match."""
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return []
    logins = [(base64.b64encode(secret.encode()), secret) for secret in secrets]
    return [secret for login, secret in logins if hmac.compare_digest(given.strip().encode("utf-8", "replace"), login)]


def _amazon_confirmation(said: Mapping[str, Any]) -> str:
    """Return the URL that confirms a subscription. Only Amazon SNS in the topic's own region is accepted.

    Raises BadReport.
    """
    url, region = str(said.get("SubscribeURL")), str(said.get("TopicArn")).split(":")[3:4]
    found = _SUBSCRIBE.fullmatch(url)
    if found is None or [found["region"]] != region:
        raise bad_report("not_amazons", "It is to be confirmed at no address of Amazon SNS.", "SubscribeURL")
    return url


@lru_cache(maxsize=256)
def _make_view(service: str, secret: str) -> Any:
    """Return django-anymail's view of the service, used only to check and read. Raises ValueError."""
    module = importlib.import_module(f"anymail.webhooks.{service}")
    mine = [one for name, one in vars(module).items() if name.endswith("TrackingWebhookView")]
    (kind,) = (one for one in mine if one.__module__ == module.__name__)
    given: dict[str, Any] = {SIGNED.get(service, "webhook_secret"): secret}
    if service == "amazon_ses":
        # django-anymail would confirm through boto3, with any AWS credential it finds
        given["auto_confirm_sns_subscriptions"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SendGrid: "dropped official support"
        return kind(**given)


def _to_django_request(request: ReportRequest) -> WSGIRequest:
    parts = urlsplit(request.url)
    environ = {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": parts.path,
        "QUERY_STRING": parts.query,
        "SERVER_NAME": parts.hostname or "localhost",
        "SERVER_PORT": str(parts.port or (443 if parts.scheme == "https" else 80)),
        "wsgi.url_scheme": parts.scheme,
        "wsgi.input": BytesIO(request.body),
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(request.body)),
    }
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    return WSGIRequest(environ)


def _convert_event(service: str, event: Any) -> Reported | None:
    """Convert an event; None if it means nothing to us, such as that a mail is on its way."""
    delayed = (
        service == "amazon_ses" and _look_inside(event.esp_event, "eventType") == "DeliveryDelay"
    )  # unknown to anymail
    kind: ReportedKind | None = "deferred" if delayed else KINDS.get(event.event_type)
    if kind is None:
        return None
    note = _reason_of_delay(event.esp_event) if delayed else str(event.mta_response or event.description or "")
    bounce: Bounce = "soft"
    if kind == "bounced" or event.reject_reason == "invalid":
        kind = "bounced"
        bounce = "blocked" if is_about_us("", note) else "hard" if _is_hard(service, event, note) else "soft"
    at = event.timestamp or datetime.now(UTC)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    vendor_id, code = str(event.message_id or ""), str(event.reject_reason or "")
    timed, cause = event.timestamp is not None, _listed_cause(service, event.esp_event)
    return Reported(_find_reference(event), kind, at, vendor_id, note, bounce, code, timed, cause)


def _listed_cause(service: str, event: Any) -> str:
    """Return the cause of the event's code by the service's table; "" if it has none."""
    table, found = find_service(service), _look_inside(event, *LISTED.get(service, ("",)))
    return table.find_cause(str(found), reported=True) if table and found is not None else ""


def _reason_of_delay(event: Any) -> str:
    """Return the receiver's words in a DeliveryDelay of Amazon SES, else its type."""
    whom = _look_inside(event, "deliveryDelay", "delayedRecipients")
    first = whom[0] if isinstance(whom, list) and whom else {}
    return str(_look_inside(first, "diagnosticCode") or _look_inside(event, "deliveryDelay", "delayType") or "")


def _find_reference(event: Any) -> str:
    """Return our reference from the metadata or the tags, or ""."""
    found = _look_inside(event.metadata, REFERENCE)
    if isinstance(found, str) and found:
        return found
    tags = event.tags if isinstance(event.tags, list) else []
    return next((tag for tag in tags if isinstance(tag, str) and len(tag) > 36 and tag[36] == "-"), "")
