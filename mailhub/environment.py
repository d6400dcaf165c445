"""The environment as settings: every value is judged where it is read.

Each function raises ImproperlyConfigured with one sentence that names the variable and a value that would do.

One broker's address, spelled for each library that reads it, and what kind of broker it is.

The secret of an installation that was given none: made once, kept in its home, readable by its owner only.
"""

import math
import os
import secrets
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from zoneinfo import available_timezones

import dj_database_url
from django.core.exceptions import ImproperlyConfigured


def secret_key(home: Path) -> str:
    """The key in home/secret_key; the first caller makes it. Several processes may call at once."""
    path = home / "secret_key"
    try:
        return path.read_text()
    except FileNotFoundError:
        home.mkdir(parents=True, exist_ok=True)
    draft = home / f".secret_key.{os.getpid()}.{secrets.token_hex(4)}"
    draft.touch(mode=0o600)
    draft.write_text(secrets.token_urlsafe(50))
    try:
        os.link(draft, path)  # whoever links first decides; the others read
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text()


def celery_url(url: str) -> str:
    """The address of a Redis as Celery and kombu spell it: unix:///path?db=1 becomes redis+socket://..."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return url
    db = parse_qs(parts.query).get("db", ["0"])[0]
    return f"redis+socket://{quote(unquote(parts.path))}?virtual_host={db}"


def is_rabbitmq(url: str) -> bool:
    """Every address that kombu gives to py-amqp."""
    return urlsplit(url).scheme in ("amqp", "amqps", "pyamqp")


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
