"""The common part of misbehaving servers, on a free port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections import Counter
from typing import Self


class MisbehavingServer(ABC):
    """A server in the test's own loop. It counts what it took, by reference."""

    def __init__(self, tls: ssl.SSLContext | None = None, limit: int = 2**16) -> None:
        self.taken: Counter[str] = Counter()
        """Complete requests or mails."""
        self.connections = 0
        self.tls = tls
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls, limit=self._limit)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            _abort(writer)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self.serve(reader, writer)
        _abort(writer)
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self._writers.discard(writer)

    async def is_deserted(self) -> bool:
        """Return True if no connection is open, down to the kernel."""
        return not self._writers

    @abstractmethod
    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""


class SilentServer(MisbehavingServer):
    """Never sends anything, not even for a TLS handshake."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with RST instead of FIN."""
    kernel = writer.get_extra_info("socket")
    kernel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _abort(writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    # In Python 3.11.2 a TLS transport closed twice has forgotten its connection, which is closed by then.
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


def closed_port() -> int:
    """Return a loopback port on which nobody listens, reserved for the life of this process."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    port: int = held.getsockname()[1]
    return port


_held: list[socket.socket] = []
