"""TCP connections for the HTTP and SMTP adapters: Wire (a connection), Pool (kept connections), Deadlines (timeouts).

Pool keeps a bounded number of open connections and never returns one that the other side has closed. Deadlines uses one
timer for all calls with the same time limit; asyncio.timeout would set one for each, at a noticeable cost.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, cast

from vendors.outcomes import CallError


class Deadlines:
    """Limits blocks `with deadlines:` to a number of seconds; then they end with TimeoutError.

    A task may be in only one block of the same Deadlines. A cancellation from outside stays a cancellation.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0.0  # next look of the timer, at the latest at the first end
        self._loop: asyncio.AbstractEventLoop | None = None  # kept, because asking costs a system call

    def __enter__(self) -> None:
        loop = self._loop = self._loop or asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        assert task not in self._ends
        self._end_at(task, loop.time() + self._seconds)

    def reschedule(self, end: float) -> None:
        """Move the end of this task's block to a time of the loop."""
        task = asyncio.current_task(self._loop)
        assert task is not None
        assert task in self._ends
        self._end_at(task, end)

    def _end_at(self, task: asyncio.Task[Any], end: float) -> None:
        self._ends[task] = end
        if self._timer is None or end < self._next:
            self._look_at(end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        if self._ends.pop(task, None) is not None:
            return
        self._late.discard(task)
        if task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look_at(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        assert self._loop is not None
        self._next, self._timer = moment, self._loop.call_at(moment, self._cancel_expired)

    def _cancel_expired(self) -> None:
        assert self._loop is not None
        self._timer, now = None, self._loop.time()
        for task in [task for task, end in self._ends.items() if end <= now]:
            del self._ends[task]
            self._late.add(task)
            task.cancel()
        if self._ends:
            self._look_at(min(self._ends.values()))


class Pooled(Protocol):
    """The pool's view of a connection."""

    idle_since: float
    lost: asyncio.Future[None]

    def is_fresh(self) -> bool:
        """Return True if it is open and the kernel knows of no unexpected data at this instant."""

    def is_reusable(self) -> bool:
        """Return True if the last exchange is over on both sides and another may begin."""

    def say_goodbye(self) -> None:
        """Close it in the protocol's own way, if it has one."""

    def abort(self) -> None:
        """Close it immediately."""


C = TypeVar("C", bound=Pooled)


class Pool(Generic[C]):
    """Pool of at most `slots` connections in use. Usage: `take`, exchange, and always `put_back`.

    `idle_max`: seconds after which an unused connection is closed. It must be shorter than the vendor's own limit: a
    request that crosses the vendor's close leaves a message in doubt.
    """

    def __init__(self, connect: Callable[[], Awaitable[C]], *, slots: int, idle_max: float) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._connect = connect
        self._idle_max = idle_max
        self._idle: list[C] = []
        self._open: set[C] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take_connection(self) -> C:
        """Return the last used fresh connection, else a new one. Waits while all slots are in use.

        Raises CallError and what `connect` raises.
        """
        await self._slots.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if connection.is_fresh():
                    return connection
                connection.abort()
            return await self._open_new()
        except BaseException:
            self._slots.release()
            raise

    async def _open_new(self) -> C:
        if self._closed:
            raise CallError("the adapter is closed", written=False)
        self._loop = asyncio.get_running_loop()
        connection = await self._connect()
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def put_back(self, connection: C) -> None:
        """Return a connection after its exchange, successful or not."""
        self._slots.release()
        if self._closed or not connection.is_reusable():
            connection.abort()
            return
        assert self._loop is not None
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._reaper is None:
            self._reaper = self._loop.call_later(self._idle_max, self._close_idle)

    def _close_idle(self) -> None:
        """Close connections idle for too long, the oldest first."""
        loop = self._loop
        assert loop is not None
        while self._idle and self._idle[0].idle_since + self._idle_max <= loop.time():
            self._idle.pop(0).say_goodbye()
        self._reaper = None
        if self._idle:
            self._reaper = loop.call_at(self._idle[0].idle_since + self._idle_max, self._close_idle)

    async def close(self) -> None:
        """Close all connections; calls in flight and later ones end with CallError."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        closing = list(self._open)
        for connection in closing:
            if connection in self._idle:
                connection.say_goodbye()
            else:
                connection.abort()
        self._idle.clear()
        await asyncio.gather(*(connection.lost for connection in closing))


TLS_FAREWELL = 2.0
"""Seconds to wait for the other side's end of TLS."""
NOT_YET_VALID, EXPIRED = 9, 10
"""OpenSSL's errors about a certificate's dates."""


class Wire(asyncio.Protocol):
    """A tuned TCP connection. `deadline`: seconds after which the kernel gives up on unacknowledged bytes."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.closed = False
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()  # kept, because asking costs a system call
        self.lost: asyncio.Future[None] = self._loop.create_future()

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

    def is_fresh(self) -> bool:
        """Return True if it is open and the kernel knows of no unexpected data at this instant."""
        return not self.closed and not self._transport.is_closing() and not self._poll.poll(0)

    def abort(self) -> None:
        """Close it immediately."""
        self.closed = True
        self._transport.abort()


W = TypeVar("W", bound=Wire)


async def open_wire(make: Callable[[], W], host: str, port: int, tls: ssl.SSLContext | None, *, name: str = "") -> W:
    """Open a connection, with TLS from the first byte if `tls` is given. Raises CallError.

    `name`: the host name in the certificate, if `host` is an IP address.
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
    """Return True if the certificate has an unknown authority or another host, which a retry does not fix.

    An expired certificate or a wrong clock is fixed elsewhere.
    """
    return isinstance(error, ssl.SSLCertVerificationError) and error.verify_code not in (NOT_YET_VALID, EXPIRED)
