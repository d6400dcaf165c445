"""A TCP connection as the pool wants it: tuned, watched, and closed without waiting."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar, cast

from vendors.outcomes import CallError

TLS_FAREWELL = 2.0
"""Seconds to wait for the other side's end of TLS."""
NOT_YET_VALID, EXPIRED = 9, 10
"""What OpenSSL says of a certificate's dates."""


class Wire(asyncio.Protocol):
    """`deadline`: seconds after which the kernel gives up on bytes that nobody acknowledges."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.closed = False
        self.idle_since = 0.0
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        kernel = transport.get_extra_info("socket")
        kernel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            kernel.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(self._deadline * 1000)))
        self._poll = select.poll()
        self._poll.register(kernel.fileno(), select.POLLIN)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if not self.lost.done():
            self.lost.set_result(None)

    def fresh(self) -> bool:
        """Open, and nothing has arrived unasked as far as this machine's kernel knows at this instant."""
        return not self.closed and not self._transport.is_closing() and not self._poll.poll(0)

    def abort(self) -> None:
        """Closes at once."""
        self.closed = True
        self._transport.abort()


W = TypeVar("W", bound=Wire)


async def connect(make: Callable[[], W], host: str, port: int, tls: ssl.SSLContext | None, *, name: str = "") -> W:
    """A new connection, with TLS from the first byte if `tls` is given. Raises CallError.

    `name`: whose certificate it must be, where `host` is an address.
    """
    try:
        _, wire = await asyncio.get_running_loop().create_connection(
            make,
            host,
            port,
            ssl=tls,
            server_hostname=(name or host) if tls else None,
            ssl_shutdown_timeout=TLS_FAREWELL if tls else None,
        )
    except OSError as error:  # also DNS and TLS
        raise CallError(f"no connection: {error}", written=False, pause=is_wrong_vendor(error)) from error
    return wire


def is_wrong_vendor(error: OSError) -> bool:
    """Did it show a certificate of an unknown authority, or of another host? No second try mends that; an expired one,
    or a clock that is wrong, is mended elsewhere."""
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code not in (NOT_YET_VALID, EXPIRED)
