"""A proxy before PostgreSQL that loses replies: the server executes a statement, the client never hears of it.

It listens on its own socket beside the server's; a client that connects to `url` goes through it. A reply is everything
up to the server's ReadyForQuery. The proxy holds back the whole reply to lose, and cuts the connection.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit

from tests.waiting import DEADLINE, joined

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
READY, PARSE, BIND, QUERY = b"Z", b"P", b"B", b"Q"


class PostgresProxy:
    """Runs in a thread of its own from `with` to its end. url: as DATABASE_URL; upstream: the server's, over a socket.

    replies: how many were passed on so far, the ones to logins left out. lost: the statements whose replies were lost.
    """

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        options = parse_qs(parts.query)
        host, port = options.get("host", [parts.hostname or ""])[0], options.get("port", [str(parts.port or 5432)])[0]
        self._server = f"{host}/.s.PGSQL.{port}"
        assert os.path.exists(self._server), f"no socket of a PostgreSQL: {self._server}"
        self._folder = tempfile.mkdtemp(prefix="mailhub-proxy-")
        self._here = f"{self._folder}/.s.PGSQL.{port}"
        self.url = upstream.replace(quote(host, safe=""), quote(self._folder, safe="")).replace(host, self._folder)
        self.replies = 0
        self.lost: list[str] = []
        self._lose: Callable[[str], bool] = lambda statement: False
        self._open: set[asyncio.Task[None]] = set()

    def lose_next(self, after: int = 0, of: Callable[[str], bool] = lambda statement: True) -> None:
        """Lose one reply, after skipping some: only statements that `of` picks by their text count."""
        left = after

        def this_one(statement: str) -> bool:
            nonlocal left
            if not of(statement):
                return False
            left -= 1
            if left < 0:
                self._lose = lambda statement: False
                return True
            return False

        self._lose = this_one

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="proxy", daemon=True)
        self._thread.start()
        assert ready.wait(DEADLINE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        joined(self._thread)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_unix_server(self._accept, self._here)
        ready.set()
        await self._over.wait()
        server.close()
        for one in self._open:
            one.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._connection(reader, writer)
        except asyncio.CancelledError:
            pass  # the proxy ends
        finally:
            self._open.discard(task)
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._server)
        except OSError:  # it is away: so are we
            return
        seen = _Statements()
        pumps = [
            asyncio.create_task(self._forwards(reader, up_writer, seen)),
            asyncio.create_task(self._backwards(up_reader, writer, seen)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            up_writer.close()

    async def _forwards(self, reader: asyncio.StreamReader, up: asyncio.StreamWriter, seen: "_Statements") -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:  # the login's first message has no type; a wish for encryption is not ours to grant
                size = int.from_bytes(await reader.readexactly(4))
                body = await reader.readexactly(size - 4)
                assert int.from_bytes(body[:4]) not in (SSL_REQUEST, GSS_REQUEST), "not over a unix socket"
                up.write(size.to_bytes(4) + body)
                break
            while True:
                kind, message = await _message(reader)
                seen.hear(kind, message[4:])
                up.write(kind + message)
                await up.drain()

    async def _backwards(self, up: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: "_Statements") -> None:
        kept, logged_in = bytearray(), False
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                kind, message = await _message(up)
                if not logged_in:
                    writer.write(kind + message)
                    logged_in = kind == READY
                    continue
                kept += kind + message
                if kind != READY:
                    continue
                statement = seen.last
                if self._lose(statement):
                    self.lost.append(statement)
                    return
                self.replies += 1
                writer.write(bytes(kept))
                kept.clear()
                await writer.drain()


class _Statements:
    """last: the text of the statement that one connection asked for last."""

    def __init__(self) -> None:
        self.last = ""
        self._prepared: dict[bytes, str] = {}

    def hear(self, kind: bytes, body: bytes) -> None:
        if kind == PARSE:
            name, text, _ = body.split(b"\0", 2)
            self.last = self._prepared[name] = text.decode(errors="replace")
        elif kind == BIND:  # names a prepared statement
            _, name, _ = body.split(b"\0", 2)
            self.last = self._prepared.get(name, "")
        elif kind == QUERY:
            self.last = body.rstrip(b"\0").decode(errors="replace")


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Its type, and the rest with its length."""
    kind = await reader.readexactly(1)
    size = await reader.readexactly(4)
    return kind, size + await reader.readexactly(int.from_bytes(size) - 4)
