"""Open connections, kept for the next call: a bounded number, never one that may have gone stale."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from vendors.outcomes import CallError


class Pooled(Protocol):
    """What the pool asks of a connection."""

    idle_since: float
    lost: asyncio.Future[None]

    def fresh(self) -> bool:
        """Open, and nothing has arrived unasked as far as this machine's kernel knows at this instant."""

    def reusable(self) -> bool:
        """The last exchange is over on both sides and left the connection as it was."""

    def leave(self) -> None:
        """Says goodbye, if the protocol has a word for it, and closes."""

    def abort(self) -> None:
        """Closes at once."""


C = TypeVar("C", bound=Pooled)


class Pool(Generic[C]):
    """At most `places` connections. Use: `async with pool.places`, `take`, exchange, `put_back` in any case.

    `idle_max`: seconds after which an unused connection is closed; must be less than the
    vendor waits, for a race with its closing is a message in doubt.
    """

    def __init__(self, connect: Callable[[], Awaitable[C]], *, places: int, idle_max: float) -> None:
        self.places = asyncio.Semaphore(places)
        self._connect = connect
        self._idle_max = idle_max
        self._idle: list[C] = []
        self._open: set[C] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    async def take(self) -> C:
        """The connection used last if it is still fresh, else a new one. Raises CallError and what `connect` does."""
        while self._idle:
            connection = self._idle.pop()
            if connection.fresh():
                return connection
            connection.abort()
        if self._closed:
            raise CallError("the adapter is closed", written=False)
        connection = await self._connect()
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def put_back(self, connection: C) -> None:
        """After an exchange, however it ended."""
        if self._closed or not connection.reusable():
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._reaper is None:
            self._reaper = loop.call_later(self._idle_max, self._reap)

    def _reap(self) -> None:
        """Closes what has been idle for too long; the oldest stand in front."""
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].idle_since + self._idle_max <= loop.time():
            self._idle.pop(0).leave()
        self._reaper = None
        if self._idle:
            self._reaper = loop.call_at(self._idle[0].idle_since + self._idle_max, self._reap)

    async def close(self) -> None:
        """Closes every connection; calls in flight and later ones end as CallError."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        closing = list(self._open)
        for connection in closing:
            if connection in self._idle:
                connection.leave()
            else:
                connection.abort()
        self._idle.clear()
        await asyncio.gather(*(connection.lost for connection in closing))
