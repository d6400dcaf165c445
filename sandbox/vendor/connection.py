"""HTTP/1.1 connections: answers leave in the order of their requests, each after its entry is in the books."""

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from sandbox.vendor.responder import Reply, respond
from sandbox.vendor.wires.base import Call

if TYPE_CHECKING:
    from sandbox.vendor.server import Server

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: the caller sees a reset, not an orderly end
BODY_MAX = 16 * 1024 * 1024  # bytes; no letter is longer


class CallerConnection(asyncio.Protocol):
    """A caller's connection. It is in `registered` while it is open."""

    def __init__(self, server: "Server", registered: set["CallerConnection"]) -> None:
        self._server = server
        self._registered = registered
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Reply] = deque()
        self._keep_alive = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._registered.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registered.discard(self)
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._answer_last(Reply(respond(400, {"code": "malformed"})))

    def on_message_begin(self) -> None:
        self._target = b""
        self._body: list[bytes] = []
        self._size = 0
        self._headers: dict[bytes, bytes] = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > BODY_MAX:
            self.transport.abort()
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self.transport.is_closing() or not self._keep_alive:
            return
        answer = self._take(self._parser.get_method(), self._target.partition(b"?"))
        if self._parser.should_keep_alive():
            self._queue(answer)
        else:
            self._answer_last(answer)

    def _take(self, method: bytes, target: tuple[bytes, bytes, bytes]) -> Reply:
        path, _, query = target
        if path in self._server.CONTROLS:
            return self._server.control(self, method, path, query)
        call = Call(method, path, query, self._headers, self.body())
        if method == b"POST":
            return self._server.responder.send(call)
        if method == b"GET":
            return self._server.responder.look_up(call)
        return Reply(respond(405, {"code": "method_not_allowed"}))

    def body(self) -> bytes:
        return b"".join(self._body)

    def _answer_last(self, answer: Reply) -> None:
        if self._keep_alive:
            self._keep_alive = False
            self._queue(answer)

    def _queue(self, answer: Reply) -> None:
        self._waiting.append(answer)
        self._server.book(self, answer)

    def release(self, answer: Reply) -> None:
        """Send this answer as soon as those before it are sent."""
        answer.released = True
        while self._waiting and self._waiting[0].released and not self.transport.is_closing():
            self._send(self._waiting.popleft().data)

    def _send(self, data: bytes | None) -> None:
        if data is None:
            self.reset()
            return
        self.transport.write(data)
        if not self._keep_alive and not self._waiting:
            self.transport.close()

    def reset(self) -> None:
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()
