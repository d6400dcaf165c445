"""One HTTP/1.1 connection: one request, one answer, and the certainty of what was written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httptools

from vendors.adapters.wire import Wire
from vendors.outcomes import CallError


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer. `headers`: names in lower case, the last of several with the same name."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpConnection(Wire):
    """Reads one answer at a time; whatever comes unasked closes it.

    `limit`: bytes that an answer may have, its head and informational answers (1xx) included.
    """

    def __init__(self, limit: int, deadline: float) -> None:
        super().__init__(deadline)
        self._limit = limit
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Response] | None = None
        self._left = 0
        self._begin()

    def _begin(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._reusable = False

    # --- for the client ---------------------------------------------------------------------------

    async def exchange(self, request: bytes) -> Response:
        """Writes the request and waits for its answer. Raises CallError, always after the write."""
        self._begin()
        self._left = self._limit
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def reusable(self) -> bool:
        return self._reusable and not self.closed and not self._transport.get_write_buffer_size()

    def leave(self) -> None:
        self.abort()

    # --- from the loop ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()
            return
        self._left -= len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail("the vendor switched protocols")
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")
        if self._left < 0:
            self._fail(f"the answer is longer than {self._limit} bytes")

    def eof_received(self) -> None:
        self.closed = True
        if self.status is not None and not self.headers.keys() & {"content-length", "transfer-encoding"}:
            self._finish()  # without a length the end of the connection is the end of the answer
        self._fail("the vendor closed the connection before the end of its answer")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"connection lost: {exc or 'closed'}")
        super().connection_lost(exc)

    def _fail(self, reason: str) -> None:
        self.closed = True
        if self._waiter is not None and not self._waiter.done():
            error = CallError(reason, written=True, status=self.status, headers=self.headers)
            self._waiter.set_exception(error)

    def _finish(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            assert self.status is not None
            self._waiter.set_result(Response(self.status, self.headers, b"".join(self._body)))

    # --- from the parser --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._waiter is not None and self._waiter.done():
            self._reusable = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.status is not None:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:  # 100 Continue, 103 Early Hints: the answer is still to come
            self.headers = {}

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self.status is not None:
            self._reusable = self._parser.should_keep_alive()
            self._finish()
