"""Settings from environment variables, each validated where it is read.

The functions that read a variable raise ImproperlyConfigured with one sentence that names it and a valid value.
`secret_key` is the secret of an installation without a given one.
"""

import math
import os
import re
import secrets
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import available_timezones

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from vendors import redis_addresses

PROJECT = Path(__file__).resolve().parents[1]  # holds manage.py; in an installed wheel it is site-packages


def secret_key(home: Path) -> str:
    """Return the key in home/secret_key, readable only by its owner; created if missing, also by concurrent calls."""
    path = home / "secret_key"
    try:
        with suppress(FileNotFoundError):
            return path.read_text()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _make_secret_key(path)
    except OSError as why:  # read-only, full, of another user, below a file
        raise ImproperlyConfigured(
            f"{path} cannot be read or made ({why.strerror or why}): set SECRET_KEY, or MAILHUB_HOME to a folder of "
            "yours with free space"
        ) from why


def _make_secret_key(path: Path) -> str:
    draft = path.with_name(f".secret_key.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(50))
        with suppress(FileExistsError):
            os.link(draft, path)  # the first link counts; the others read it
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text()


def home_folder(name: str) -> Path:
    """Return the folder that the variable names; or else .mailhub beside manage.py, or the user's data folder.

    An installed wheel has no manage.py, and its folder is replaced by the next version.
    """
    if given := os.environ.get(name):
        return Path(given)
    if (PROJECT / "manage.py").exists():
        return PROJECT / ".mailhub"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share", "mailhub")


def is_rabbitmq(url: str) -> bool:
    """Return True if kombu would use py-amqp for this URL."""
    return urlsplit(url).scheme in ("amqp", "amqps", "pyamqp")


MOST = 1e6  # for any number: more than a million seconds, minutes or days is a typing error


def text_setting(name: str, default: str = "") -> str:
    return os.environ.get(name) or default


def choose_word(name: str, *choices: str) -> str:
    """Return one of these words; the first is the default."""
    word = text_setting(name, choices[0])
    if word not in choices:
        raise ImproperlyConfigured(f"{name}={word!r} is none of {', '.join(choices)}")
    return word


ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


def flag_setting(name: str) -> bool:
    """Return whether a flag is set: charts and compose files write 1, true or True. Any other word is refused."""
    word = text_setting(name).strip().lower()
    if word not in ON + OFF:
        raise ImproperlyConfigured(f"{name} is {text_setting(name)!r}: give it 1 or 0")
    return word in ON


def list_setting(name: str, default: str = "") -> list[str]:
    """Return a list, separated by commas."""
    return [word.strip() for word in text_setting(name, default).split(",") if word.strip()]


def port_numbers(name: str) -> list[int]:
    """Return port numbers, separated by commas."""
    given = list_setting(name)
    if not all(one.isdecimal() and 0 < int(one) < 65_536 for one in given):
        raise ImproperlyConfigured(
            f"{name} is {text_setting(name)!r}: give it ports separated by commas, such as 443,8443"
        )
    return [int(one) for one in given]


def number_setting(name: str, default: float, *, zero: bool = False, most: float = MOST) -> float:
    """Return a number above 0, at most `most`. `zero`: 0 is allowed too."""
    typed = text_setting(name, f"{default:g}")
    try:
        value = float(typed)
    except ValueError:
        value = math.nan
    if not (0 < value <= most or (zero and value == 0)):
        wanted = "0 or a number above it" if zero else "a number above 0"
        raise ImproperlyConfigured(f"{name} is {typed!r}: give it {wanted}, such as {default:g}")
    return value


def minutes_setting(name: str, default: float) -> timedelta:
    return timedelta(minutes=number_setting(name, default))


def days_setting(name: str, default: float) -> timedelta:
    return timedelta(days=number_setting(name, default))


def time_zone_setting(name: str, default: str) -> str:
    typed = text_setting(name, default)
    if typed not in available_timezones():
        raise ImproperlyConfigured(f"{name} is {typed!r}, which is no time zone: write it like Europe/London or UTC")
    return typed


def network_list(name: str) -> list[str]:
    found = list_setting(name)
    for word in found:
        try:
            ip_network(word)
        except ValueError as why:
            raise ImproperlyConfigured(f"{name}: {why}; write networks like 10.0.0.0/8,fd00::/8") from None
    return found


def server_addresses(name: str, port: int) -> list[tuple[str, int]]:
    """Return IP addresses with their port or the usual one: 192.0.2.1, 192.0.2.1:5353, [2001:db8::1]:53."""
    return [_server_address(name, word, port) for word in list_setting(name)]


def _server_address(name: str, word: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//[{word}]" if word.count(":") > 1 and not word.startswith("[") else f"//{word}")
        found = ip_address(parts.hostname or ""), port if parts.port is None else parts.port
        if parts.geturl() != f"//{parts.netloc}" or parts.username is not None:  # more than an address
            raise ValueError
        return str(found[0]), found[1]
    except ValueError:
        raise ImproperlyConfigured(
            f"{name} has {word!r}: write IP addresses like 192.0.2.1 or 192.0.2.1:{port}, separated by commas"
        ) from None


def redis_url(name: str, default: str) -> str:
    return _check_redis_url(name, text_setting(name, default))


def redis_servers(name: str, default: str) -> list[str]:
    """Return one or more URLs, separated by commas."""
    given = re.split(r",(?=\s*[a-z+]+://)", text_setting(name, default))
    return [_check_redis_url(name, url.strip()) for url in given if url.strip()]


def _check_redis_url(name: str, url: str) -> str:
    """Check a URL. The error does not show it, as it may contain a password."""
    try:
        fits = redis_addresses.is_one_server(url) or redis_addresses.parse_sentinels(url)
    except ValueError:
        fits = None
    if not fits:
        wanted = (
            "write redis://host:6379/0, rediss://host:6379/0, unix:///path/to/socket, or for a master that Sentinels "
        )
        wanted += "know redis+sentinel://one:26379,two:26379/mymaster/0; Redis Cluster cannot be used"
        raise ImproperlyConfigured(f"{name} is no address of a Redis: {wanted}")
    return url


def broker_url(name: str, default: str) -> str:
    """Return the broker's URL: that of a Redis as for Celery, any other one as it is given.

    Of RabbitMQ also several, separated by semicolons: the nodes of a cluster.
    """
    url = text_setting(name, default)
    if is_rabbitmq(url):
        return _check_rabbitmq_url(name, url)
    scheme = urlsplit(url).scheme
    is_redis = scheme.startswith(("redis", "sentinel", "unix")) and scheme != "redis+socket"  # kombu's own form
    return _check_redis_url(name, url) if is_redis else url


def _check_rabbitmq_url(name: str, url: str) -> str:
    """Check one or more URLs. The error does not show them, as they may contain a password."""
    try:
        nodes = [urlsplit(one) for one in url.split(";")]
        fits = all(node.hostname and node.port != 0 for node in nodes) and len({node.scheme for node in nodes}) == 1
        about_tls = {word for node in nodes for word in parse_qs(node.query) if word.startswith("ssl")}
        fits &= about_tls <= ({"ssl_ca_certs"} if nodes[0].scheme == "amqps" else set())
    except ValueError:
        fits = False
    if not fits:
        wanted = (
            "write amqp://user:password@host:5672// or amqps://user:password@host:5671//?ssl_ca_certs=/etc/ca.pem, "
        )
        wanted += "for a cluster several of one kind with ; between them. Certificate and name are always checked"
        raise ImproperlyConfigured(f"{name} is no address of a RabbitMQ: {wanted}")
    return url


def public_url(name: str) -> str:
    """Return the public URL of this installation for recipients, without a trailing slash; empty: none."""
    url = text_setting(name).rstrip("/")
    parts = urlsplit(url)
    here = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    fits = parts.hostname and url.isascii() and url.isprintable() and not set(' <>"') & set(url)
    if url and not (fits and (here or parts.scheme == "https") and not (parts.query or parts.fragment or parts.path)):
        wanted = "write https://mail.example.org; http is for this machine alone, and there is no path"
        raise ImproperlyConfigured(f"{name} is {url!r}: {wanted}")
    if len(url) > 200:
        raise ImproperlyConfigured(f"{name} has more than 200 characters")
    return url


def mail_server(name: str, example: str, schemes: tuple[str, ...]) -> str:
    """Return the URL of a mail server, or "". The error does not show it, as it may contain a password."""
    url = text_setting(name)
    try:
        parts = urlsplit(url)
        fits = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if url and not fits:
        raise ImproperlyConfigured(f"{name} is no address of such a server: write {example}")
    return url


def database_settings(name: str, default: str) -> dict[str, Any]:
    """Return Django's database settings from a PostgreSQL URL. The error does not show the URL."""
    url = text_setting(name, default)
    wanted = f"{name} is no address of a PostgreSQL: write postgres://user:password@host:5432/name"
    try:
        one, hosts, ports = _several_hosts(url)
        found: dict[str, Any] = dict(dj_database_url.parse(one, conn_max_age=60, conn_health_checks=True))
    except ValueError:
        raise ImproperlyConfigured(wanted) from None
    if found.get("ENGINE") != "django.db.backends.postgresql":
        raise ImproperlyConfigured(wanted)
    if hosts:
        found |= {"HOST": hosts, "PORT": ports}
    if "," in (found["HOST"] or found.get("OPTIONS", {}).get("host", "")):  # only one of them takes writes
        found.setdefault("OPTIONS", {}).setdefault("target_session_attrs", "read-write")
    return found


def _several_hosts(url: str) -> tuple[str, str, str]:
    """Return (the URL, "", ""); of several hosts (the URL of the first one, all hosts, their ports) as libpq wants."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return url, "", ""
    nodes = [urlsplit(f"//{host}") for host in hosts.split(",")]
    names, ports = [node.hostname for node in nodes], [str(node.port or 5432) for node in nodes]
    if not all(names):
        raise ValueError
    return parts._replace(netloc=login + at + hosts.split(",")[0]).geturl(), ",".join(map(str, names)), ",".join(ports)
