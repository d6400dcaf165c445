"""The way out to programs' webhooks: one POST to an address that somebody else chose, so it is not trusted.

Every address that the name has is looked at, and the connection goes to one that was: no private, loopback or
link-local network can be reached (settings.WEBHOOK_NETWORKS allows some). No redirect is followed, nothing of the
answer is kept but its status.
"""

import http.client
import ipaddress
import logging
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from vendors.outcomes import parse_retry_after

log = logging.getLogger(__name__)

PATIENCE = 15.0  # seconds, for connecting and for each answer
WAITS = (429, 502, 503, 504)
NAT64 = ipaddress.ip_network("64:ff9b::/96")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Forbidden(ValueError):
    """No webhook may go there. The text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """status: HTTP's, if there was an answer. retry_after: seconds that the receiver asked for."""

    status: int | None
    told: str
    retry_after: float = 0.0

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def check(url: str) -> None:
    """The address as it is written; where it leads is looked at before each call. Raises Forbidden."""
    _parts(url)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Never raises for what the receiver or the network does."""
    try:
        parts = _parts(url)
        address = _resolve(parts)
    except Forbidden as why:
        return Answer(None, str(why))
    try:
        with closing(_connection(parts, address)) as connection:
            sent = {"Content-Type": "application/json", "User-Agent": "mailhub", **headers}
            connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, sent)
            return _read(connection.getresponse())
    except OSError as why:
        return Answer(None, f"{type(why).__name__}: {why}")
    except http.client.HTTPException as why:  # its text is the receiver's
        return Answer(None, f"the answer is not HTTP: {type(why).__name__}")


def _read(response: http.client.HTTPResponse) -> Answer:
    wait = 0.0
    if response.status in WAITS and "retry-after" in response.headers:
        wait = parse_retry_after(response.headers["retry-after"], now=time.time())
    return Answer(response.status, f"HTTP {response.status}", wait)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  the parser looks at the port only when asked
    except ValueError as why:
        raise Forbidden(f"it is not a URL: {why}") from why
    if parts.scheme not in ("https", "http") or not parts.hostname or not url.isascii() or not url.isprintable():
        raise Forbidden("it must be an https URL")
    if parts.username or parts.password or " " in url:
        raise Forbidden("it must not hold a login or spaces")
    if parts.scheme == "http" and not settings.WEBHOOK_NETWORKS:
        raise Forbidden("it must be an https URL")
    return parts


def _resolve(parts: SplitResult) -> tuple[str, int]:
    """The first of its addresses; Forbidden if any of them is one that nobody outside may name."""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as why:
        raise _nowhere(parts, str(why)) from why
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        _permit(parts, _meant(ipaddress.ip_address(address.partition("%")[0])))
    return addresses[0], port


def _nowhere(parts: SplitResult, why: str) -> Forbidden:
    """Programs are told the same of an unknown name and of one inside: what we see in here is not theirs."""
    log.info("no webhook may go to %s: %s", parts.hostname, why)
    return Forbidden(f"no address of the public network was found for {parts.hostname}")


def _meant(ip: Address) -> Address:
    """The IPv4 address inside an IPv6 one that only leads to it."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if ip in NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip


def _permit(parts: SplitResult, ip: Address) -> None:
    networks = [ipaddress.ip_network(network) for network in settings.WEBHOOK_NETWORKS]
    if any(ip in network for network in networks if network.version == ip.version):
        return
    if parts.scheme == "http":
        raise Forbidden("it must be an https URL")
    inside = isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local
    if not ip.is_global or ip.is_multicast or ip.is_reserved or inside:
        raise _nowhere(parts, f"it leads to {ip}")


def _connection(parts: SplitResult, address: tuple[str, int]) -> http.client.HTTPConnection:
    """To the address that was looked at, whatever the name leads to by now; the certificate is the name's."""
    host: Any = parts.hostname
    made: Any
    if parts.scheme == "https":
        made = http.client.HTTPSConnection(host, address[1], timeout=PATIENCE, context=ssl.create_default_context())
    else:
        made = http.client.HTTPConnection(host, address[1], timeout=PATIENCE)
    made._create_connection = partial(_connect, address)
    return made


def _connect(address: tuple[str, int], _: Any, *options: Any) -> socket.socket:
    return socket.create_connection(address, *options)
