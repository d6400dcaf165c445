"""The environment as settings: every value is judged where it is read.

Each function raises ImproperlyConfigured with one sentence that names the variable and a value that would do.
"""

import math
import os
from datetime import timedelta
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import available_timezones

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

REDIS = ("redis", "rediss", "unix")
MOST = 1e6  # of any number: what is longer than a million seconds, minutes or days is a slip of the hand


def text(name: str, default: str = "") -> str:
    return os.environ.get(name) or default


def listed(name: str, default: str = "") -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text(name, default).split(",") if word.strip()]


def number(name: str, default: float, *, zero: bool = False, most: float = MOST) -> float:
    """Above 0; zero: or 0 itself."""
    typed = text(name, f"{default:g}")
    try:
        value = float(typed)
    except ValueError:
        value = math.nan
    if not (0 < value <= most or (zero and value == 0)):
        wanted = "0 or a number above it" if zero else "a number above 0"
        raise ImproperlyConfigured(f"{name} is {typed!r}: give it {wanted}, such as {default:g}")
    return value


def minutes(name: str, default: float) -> timedelta:
    return timedelta(minutes=number(name, default))


def days(name: str, default: float) -> timedelta:
    return timedelta(days=number(name, default))


def zone(name: str, default: str) -> str:
    typed = text(name, default)
    if typed not in available_timezones():
        raise ImproperlyConfigured(f"{name} is {typed!r}, which is no time zone: write it like Europe/London or UTC")
    return typed


def networks(name: str) -> list[str]:
    found = listed(name)
    for word in found:
        try:
            ip_network(word)
        except ValueError as why:
            raise ImproperlyConfigured(f"{name}: {why}; write networks like 10.0.0.0/8,fd00::/8") from None
    return found


def redis(name: str, default: str) -> str:
    return _redis(name, text(name, default))


def redis_servers(name: str, default: str) -> list[str]:
    """One or several, between commas."""
    return [_redis(name, url) for url in listed(name, default)]


def _redis(name: str, url: str) -> str:
    """The fault does not show the address: it may hold a password."""
    if urlsplit(url).scheme not in REDIS:
        wanted = "write redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket"
        raise ImproperlyConfigured(f"{name} is no address of a Redis: {wanted}")
    return url


def database(name: str, default: str) -> dict[str, Any]:
    """Django's settings of a PostgreSQL. The fault does not show the address either."""
    url = text(name, default)
    wanted = f"{name} is no address of a PostgreSQL: write postgres://user:password@host:5432/name"
    try:
        found: dict[str, Any] = dict(dj_database_url.parse(url, conn_max_age=60, conn_health_checks=True))
    except ValueError:
        raise ImproperlyConfigured(wanted) from None
    if found.get("ENGINE") != "django.db.backends.postgresql":
        raise ImproperlyConfigured(wanted)
    return found
