"""Devices that have logged in before: their log-ins do not wait behind those of strangers.

Checking a password takes a processor for a third of a second, so only a few are checked at a time. A signed cookie
names the device's user. It grants no access; a thief may guess passwords as fast as its owner.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from django.conf import settings
from django.core.signing import BadSignature, TimestampSigner
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url

COOKIE, AGE = "mailhub_device", 365 * 24 * 3600
FOUND = re.compile(rf"(?:^|;\s*){COOKIE}=([\w.-]{{1,200}})(?:;|$)")
WITH_PORT = re.compile(r"\[(.*)\](?::\d+)?|([\d.]+):\d+", re.ASCII)  # the form in which some proxies write the address
NETWORK = 64  # bits of an IPv6 address that identify its owner, who chooses the others


def _device_signer() -> TimestampSigner:
    return TimestampSigner(sep=".", salt="mailhub.devices")


@cache
def login_paths() -> frozenset[str]:
    """Paths where passwords are checked."""
    return frozenset((resolve_url(settings.LOGIN_URL), resolve_url("admin:login")))


def find_user(cookies: str) -> str | None:
    """Return the key of the user who has logged in on this device, or None."""
    found = FOUND.search(cookies)
    try:
        return _device_signer().unsign(found[1], max_age=AGE) if found else None
    except BadSignature:
        return None


def find_address(environ: Mapping[str, Any]) -> str:
    """Return a request's network: as the proxy in front says, if there is a trusted one (HTTPS)."""
    address = str(environ.get("REMOTE_ADDR", ""))
    if settings.SECURE_PROXY_SSL_HEADER:
        address = environ.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip() or address
        if with_port := WITH_PORT.fullmatch(address):
            address = with_port[1] or with_port[2]
    try:
        known = ipaddress.ip_address(address)
        known = getattr(known, "ipv4_mapped", None) or known  # a dual-stack socket shows IPv4 like this
    except ValueError:
        return address[:50]
    return str(ipaddress.ip_network((known, NETWORK), strict=False)) if known.version == 6 else str(known)


class DeviceMiddleware:
    """Sets a device's cookie when a user logs in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        answer = self._get_response(request)
        if request.method == "POST" and request.path in login_paths() and request.user.is_authenticated:
            answer.set_cookie(
                COOKIE,
                _device_signer().sign(str(request.user.pk)),
                max_age=AGE,
                secure=settings.SESSION_COOKIE_SECURE,
                httponly=True,
                samesite="Lax",
            )
        return answer
