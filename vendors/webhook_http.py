"""Posts to webhooks. A client chose the URL, so it is not trusted.

All addresses of the host name are checked, and the connection goes to a checked one: no private, loopback or link-local
network can be reached (settings.WEBHOOK_NETWORKS allows some). Redirects are not followed, and only the answer's status
is kept.
"""

import asyncio
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from vendors.adapters.http_client import HttpConnection, header
from vendors.adapters.transport import open_wire
from vendors.outcomes import CallError, parse_retry_after
from vendors.said import Said

log = logging.getLogger(__name__)

DEADLINE = 10.0  # seconds for a call, everything included
RESOLVERS = 64  # concurrent look-ups of names
ANSWER_MAX = 65_536  # bytes; none of them are kept
WAITS = (429, 502, 503, 504)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
# Besides what Python's ipaddress calls not global: private NAT64, IETF and 6to4 relays, documentation, and the
# addresses where clouds keep credentials of machines.
NOWHERE = [
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "100.64.0.0/10", "100.100.100.200/32",
        "64:ff9b:1::/48", "2001::/23", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10",
        "::/96",
    )
]  # fmt: skip
LOWEST_PORT = 1024
PLAIN_PORTS = frozenset({80, 443})
SERVICES = frozenset(
    {
        1080, 1433, 1434, 1521, 1883, 2049, 2181, 2375, 2376, 2379, 2380, 3128, 3260, 3306, 3389, 4369, 4444, 5000,
        5432, 5433, 5555, 5601, 5671, 5672, 5900, 5984, 5985, 5986, 6000, 6379, 6380, 6432, 6443, 6667, 7001, 7199,
        8086, 8300, 8500, 8600, 9000, 9042, 9092, 9200, 9300, 9418, 10000, 10250, 10255, 11211, 15672, 16379, 25565,
        25672, 26379, 27017, 27018, 27019, 28017, 50070,
    }
)  # fmt: skip
"""Ports from LOWEST_PORT on at which databases, brokers, caches and the like listen, none of them a webhook."""


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Forbidden(ValueError):
    """A webhook must not have this URL; the text says why."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of a post. `status`: HTTP's, if there was an answer. `retry_after`: seconds the receiver asked for.

    `note`: the result as text. `timed_out`: no answer came within DEADLINE.
    """

    status: int | None
    note: str
    retry_after: float = 0.0
    timed_out: bool = False

    @property
    def is_taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def check_url(url: str) -> None:
    """Check the URL itself; its addresses are checked before each call. Raises Forbidden."""
    _check_port(_port_of(_split_url(url)))


async def post_once(url: str, body: bytes, headers: Mapping[str, str]) -> PostResult:
    """Post once, within DEADLINE including the look-up of the name. Never raises because of receiver or network."""
    return await _call_once("POST", url, body, {"Content-Type": "application/json", **headers})


async def get_once(url: str) -> PostResult:
    """Get a URL once, within DEADLINE. Never raises because of receiver or network."""
    return await _call_once("GET", url, b"", {})


async def _call_once(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> PostResult:
    connection: HttpConnection | None = None
    try:
        async with asyncio.timeout(DEADLINE):
            parts = _split_url(url)
            address, port = await _resolve_host(parts)
            connection = await _connect_checked(parts, address, port)
            return _read_result(
                (await connection.exchange(_build_request(method, parts, body, headers))).status, connection
            )
    except TimeoutError:
        if connection is not None and connection.status is not None:  # only the status counts
            return _read_result(connection.status, connection)
        return PostResult(None, f"no answer within {DEADLINE:g} s", timed_out=True)
    except Forbidden as why:
        return PostResult(None, str(why))
    except CallError as why:
        if why.status is not None and connection is not None:
            return _read_result(why.status, connection)
        return PostResult(None, type(why.__cause__).__name__ if why.__cause__ else _short_reason(why))
    finally:
        if connection is not None:
            connection.abort()


def _build_request(method: str, parts: SplitResult, body: bytes, headers: Mapping[str, str]) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = {"Host": parts.netloc, "User-Agent": "mailhub", **headers}
    lines |= {"Accept": "*/*", "Connection": "close", "Content-Length": str(len(body))}
    return f"{method} {target} HTTP/1.1\r\n".encode() + b"".join(header(*one) for one in lines.items()) + b"\r\n" + body


def _read_result(status: int, connection: HttpConnection) -> PostResult:
    wait = 0.0
    if status in WAITS and "retry-after" in connection.headers:
        wait = parse_retry_after(connection.headers["retry-after"], now=time.time())
    return PostResult(status, f"HTTP {status}", wait)


def _short_reason(error: CallError) -> str:
    """Return the error's reason without the part after a colon, which may be the receiver's text."""
    return error.reason.partition(":")[0].replace("the vendor", "the receiver")


def _split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  the parser looks at the port only when asked
    except ValueError as why:
        raise Forbidden(Said("it is not a URL: %(error)s", error=why)) from why
    if parts.scheme not in ("https", "http") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise Forbidden(Said("it must be an https URL"))
    if parts.username or parts.password or " " in url:
        raise Forbidden(Said("it must not hold a login or spaces"))
    if parts.scheme == "http" and not settings.WEBHOOK_NETWORKS:
        raise Forbidden(
            Said(
                "it must be an https URL; http is allowed within WEBHOOK_NETWORKS, as WEBHOOK_NETWORKS=127.0.0.0/8 in "
                "the environment of `up` and of each command"
            )
        )
    return parts


def _port_of(parts: SplitResult) -> int:
    return parts.port if parts.port is not None else 443 if parts.scheme == "https" else 80


def _check_port(port: int) -> None:
    """Check that a port is meant for the web, or is in WEBHOOK_PORTS if that is set. Raises Forbidden."""
    if settings.WEBHOOK_PORTS:
        good = port in settings.WEBHOOK_PORTS
    else:
        good = port in PLAIN_PORTS or (port >= LOWEST_PORT and port not in SERVICES)
    if not good:
        raise Forbidden(
            Said("no webhook may go to the port %(port)s: use 443, or one that WEBHOOK_PORTS names", port=str(port))
        )


async def _resolve_host(parts: SplitResult) -> tuple[str, int]:
    """Return the host's first address, and the port. Raises Forbidden if any address is not public."""
    port = _port_of(parts)
    ask = partial(socket.getaddrinfo, parts.hostname, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_resolver_pool(), ask)
    except (OSError, UnicodeError) as why:
        raise _not_public(parts, str(why)) from why
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        for one in _addresses_meant(ipaddress.ip_address(address.partition("%")[0])):
            _permit_address(parts, one)
    _check_port(port)
    return addresses[0], port


@cache
def _resolver_pool() -> ThreadPoolExecutor:
    """Return a separate pool, so that a silent name server delays no other look-ups of the process."""
    return ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolver")


@cache
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _not_public(parts: SplitResult, why: str) -> Forbidden:
    """Return one error for unknown and internal names, so that clients learn nothing of our network."""
    log.info("no webhook may go to %s: %s", parts.hostname, why)
    return Forbidden(Said("no address of the public network was found for %(host)s", host=parts.hostname))


def _addresses_meant(ip: Address) -> list[Address]:
    """Return the addresses to check: the IPv4 addresses inside an IPv6 address, or the address itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    if ip in NAT64:
        return [ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)]
    if inner := ip.ipv4_mapped or ip.sixtofour:
        return [inner]
    return [ip, *(ip.teredo or ())]


def _permit_address(parts: SplitResult, ip: Address) -> None:
    networks = [ipaddress.ip_network(network) for network in settings.WEBHOOK_NETWORKS]
    if any(ip in network for network in networks if network.version == ip.version):
        return
    if parts.scheme == "http":
        raise Forbidden(Said("it must be an https URL"))
    inside = isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local
    inside = inside or any(ip in network for network in NOWHERE if network.version == ip.version)
    if not ip.is_global or ip.is_multicast or ip.is_reserved or inside:
        raise _not_public(parts, f"it leads to {ip}")


async def _connect_checked(parts: SplitResult, address: str, port: int) -> HttpConnection:
    """Connect to the checked address, even if the name now resolves to another. The certificate must match the name."""
    tls = _tls_context() if parts.scheme == "https" else None
    return await open_wire(partial(HttpConnection, ANSWER_MAX, DEADLINE), address, port, tls, name=parts.hostname or "")
