"""The sandbox vendor's sockets: a port for callers, which may be closed, and one for control, always open."""

import asyncio
import contextlib
import socket
import sys
from typing import Any
from urllib.parse import parse_qs

import orjson

from sandbox.vendor.connection import CallerConnection
from sandbox.vendor.ledger import Ledger
from sandbox.vendor.responder import Reply, Responder, respond
from sandbox.vendor.settings import Settings

# Lets a socket listen on a port that another of ours reserves without listening.
SHARE_HELD_PORT = socket.SO_REUSEADDR if sys.platform == "linux" else socket.SO_REUSEPORT
BACKLOG = 1024


class Server:
    """Two ports that answer every request. The setting `down`, made on the control port, cuts off the other."""

    CONTROLS = frozenset({b"/settings", b"/ledger", b"/ledger/entries"})

    def __init__(self, host: str, port: int, settings: Settings, ledger: Ledger) -> None:
        self.responder = Responder(settings, ledger)
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ledger = ledger
        self._callers: set[CallerConnection] = set()
        self._booked: list[tuple[CallerConnection, Reply]] = []
        self._changes: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._listener: asyncio.Server | None = None
        self._held = hold_port(host, port)  # keeps the port ours while the vendor is down
        self._control = hold_port(host, 0)
        self.url, self.control_url = _url(self._held), _url(self._control)

    async def open(self) -> None:
        await self._serve(self._control, set())
        await self._follow_down()

    async def _serve(self, listening: socket.socket, connections: set[CallerConnection]) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: CallerConnection(self, connections), sock=listening, backlog=BACKLOG)

    async def _follow_down(self) -> None:
        closed = self.responder.settings.down == "closed"
        if closed and self._listener:
            self._listener.close()
            self._listener = None
            for connection in list(self._callers):
                connection.reset()
        elif not closed and not self._listener:
            self._listener = await self._serve(hold_port(*self._held.getsockname()), self._callers)

    def book(self, connection: CallerConnection, answer: Reply) -> None:
        """Write the books once for all calls that arrived together; then send their answers."""
        if not self._booked:
            asyncio.get_running_loop().call_soon(self._write_books)
        self._booked.append((connection, answer))

    def _write_books(self) -> None:
        booked, self._booked = self._booked, []
        try:
            self._ledger.write()
        except OSError as error:  # without books no answer may leave: the process ends with the error
            with contextlib.suppress(asyncio.InvalidStateError):
                self.ended.set_exception(error)
            return
        for connection, answer in booked:
            if answer.delay > 0:
                asyncio.get_running_loop().call_later(answer.delay, connection.release, answer)
            elif not answer.held:
                connection.release(answer)

    def control(self, connection: CallerConnection, method: bytes, path: bytes, query: bytes) -> Reply:
        """Answer GET and POST /settings, GET /ledger?window=S, GET /ledger/entries?after=N."""
        asked = parse_qs(query.decode("latin-1"))
        try:
            if path == b"/ledger":
                summary = self._ledger.summary([float(seconds) for seconds in asked.get("window", [])])
                return _ok(summary | {"reports": self.responder.reported()})
            if path == b"/ledger/entries":
                return _ok(self._ledger.page(int(asked.get("after", ["0"])[0])))
            if method == b"POST":
                return self._start_change(connection, orjson.loads(connection.body()))
        except ValueError as error:
            return _wrong(error)
        return self._settings()

    def _start_change(self, connection: CallerConnection, values: Any) -> Reply:
        answer = Reply(None, held=True)
        change = asyncio.get_running_loop().create_task(self._change(connection, answer, values))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return answer

    async def _change(self, connection: CallerConnection, answer: Reply, values: Any) -> None:
        """Answer once the change is in force, so that the caller's next call meets it."""
        async with self._changing:
            try:
                self.responder.change(values)
                await self._follow_down()
                answer.data = self._settings().data
            except ValueError as error:
                answer.data = _wrong(error).data
        connection.release(answer)

    def _settings(self) -> Reply:
        return _ok({**self.responder.settings.as_dict(), "url": self.url, "control_url": self.control_url})


def _ok(content: dict[str, Any]) -> Reply:
    return Reply(respond(200, content))


def _wrong(error: ValueError) -> Reply:
    return Reply(respond(400, {"error": str(error)}))


def hold_port(host: str, port: int) -> socket.socket:
    """Return a bound socket that does not listen. While it is open no other program gets the port, but a vendor can."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, SHARE_HELD_PORT, 1)
    held.bind((host, port))
    return held


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()
    return f"http://{host}:{port}"
