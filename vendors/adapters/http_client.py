"""A small HTTP/1.1 client that knows whether a request was written (docs/decisions/0004).

It follows no redirects, uses no proxies and never repeats a request.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from vendors.adapters.letter_faults import LetterFault, LetterPart
from vendors.adapters.transport import Deadlines, Pool, Wire, open_wire
from vendors.outcomes import CallError
from vendors.said import Said

Lines = list[tuple[bytes, bytes]]


def _read_headers(lines: Lines) -> dict[str, str]:
    """Return headers by lower-case name; the last of several wins."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in lines}


class Response(NamedTuple):
    """A complete answer. `lines`: its raw headers, parsed on demand."""

    status: int
    lines: Lines
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        return _read_headers(self.lines)


class HttpConnection(Wire):
    """One HTTP/1.1 connection, with one request at a time. Unexpected data closes it.

    `limit`: bytes in an answer, including its head and informational answers (1xx).
    """

    def __init__(self, limit: int, deadline: float) -> None:
        super().__init__(deadline)
        self._limit = limit
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Response] | None = None
        self._left = 0
        self._begin_answer()

    def _begin_answer(self) -> None:
        self.status: int | None = None
        self._lines: Lines = []
        self._body: list[bytes] = []
        self._reusable = False

    # --- for the client ---------------------------------------------------------------------------

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer received so far."""
        return _read_headers(self._lines)

    async def exchange(self, request: bytes) -> Response:
        """Write the request and wait for its answer. Raises CallError with written=True."""
        self._begin_answer()
        self._left = self._limit
        self._waiter = self._loop.create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def is_reusable(self) -> bool:
        return self._reusable and not self.closed and not self._transport.get_write_buffer_size()

    def say_goodbye(self) -> None:
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
            self._fail_exchange("the vendor switched protocols")
        except httptools.HttpParserError as error:
            self._fail_exchange(f"the answer is not HTTP: {error}")
        if self._left < 0:
            self._fail_exchange(f"the answer is longer than {self._limit} bytes")

    def eof_received(self) -> None:
        self.closed = True
        if self.status is not None and not self.headers.keys() & {"content-length", "transfer-encoding"}:
            self._finish_answer()  # without a length, the end of the connection ends the answer
        self._fail_exchange("the vendor closed the connection before the end of its answer")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_exchange(f"connection lost: {exc or 'closed'}")
        super().connection_lost(exc)

    def _fail_exchange(self, reason: str) -> None:
        self.closed = True
        if self._waiter is not None and not self._waiter.done():
            error = CallError(reason, written=True, status=self.status, headers=self.headers)
            self._waiter.set_exception(error)

    def _finish_answer(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            assert self.status is not None
            self._waiter.set_result(Response(self.status, self._lines, b"".join(self._body)))

    # --- from the parser --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._waiter is not None and self._waiter.done():
            self._reusable = False  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status is None:
            self._lines.append((name, value))

    def on_headers_complete(self) -> None:
        if self.status is not None:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:  # 100 Continue, 103 Early Hints: the answer is yet to come
            self._lines = []

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self.status is not None:
            self._reusable = self._parser.should_keep_alive()
            self._finish_answer()


ANSWER_MAX = 1_000_000
"""Bytes that an answer may have."""
IDLE_MAX = 15.0
"""Seconds that a connection waits for its next request."""

_is_name = cache(re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch)
_is_value = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch


def header(name: str, value: str) -> bytes:
    """Return one header line. Raises ValueError for anything that could begin another one."""
    if not _is_name(name):
        raise LetterFault(LetterPart.HEADER, Said("a header name must be a token"))
    if not (value.isascii() and value.isprintable()) and not _is_value(value):
        why = Said("the value of the header %(name)s must be one line of Latin-1", name=name)
        raise LetterFault(LetterPart.HEADER, why)
    return f"{name}: {value}\r\n".encode("latin-1")


class Client:
    """Keep-alive connections to one origin.

    `connections`: their largest number; further calls wait. `deadline`: seconds for a whole call. `ca_file`:
    authorities to trust for https instead of the system's.
    """

    def __init__(self, url: str, *, connections: int, deadline: float, ca_file: str = "") -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._host_line = header("Host", parts.netloc)
        self._tls = ssl.create_default_context(cafile=ca_file or None) if secure else None
        self._deadline = deadline
        self._deadlines = Deadlines(deadline)
        self._pool = Pool(self._open_connection, slots=connections, idle_max=IDLE_MAX)

    def head(self, method: str, target: str, headers: bytes = b"") -> bytes:
        """Build the start of a request, to be reused. `target`: path and query, quoted. `headers`: as in `call`."""
        return f"{method} {target} HTTP/1.1\r\n".encode("ascii") + self._host_line + headers

    async def call(self, head: bytes, headers: bytes = b"", body: bytes = b"") -> Response:
        """Send one request and return its answer. `headers`: more lines, built by `header`.

        Raises CallError, which says whether anything was written. If cancelled, it closes its connection.
        """
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        request = b"".join((head, headers, length, b"\r\n", body))
        connection: HttpConnection | None = None
        try:
            with self._deadlines:
                connection = await self._pool.take_connection()
                try:
                    return await connection.exchange(request)
                finally:
                    self._pool.put_back(connection)
        except TimeoutError:
            raise self._deadline_error(connection) from None

    async def close(self) -> None:
        """Close all connections; calls in flight and later ones end with CallError."""
        await self._pool.close()

    def _deadline_error(self, connection: HttpConnection | None) -> CallError:
        if connection is None:
            return CallError(f"no connection within {self._deadline:g} s", written=False)
        reason = f"no complete answer within {self._deadline:g} s"
        return CallError(reason, written=True, status=connection.status, headers=connection.headers)

    async def _open_connection(self) -> HttpConnection:
        def make_connection() -> HttpConnection:
            return HttpConnection(ANSWER_MAX, self._deadline)

        connection = await open_wire(make_connection, self._host, self._port, self._tls)
        if not connection.is_fresh():
            connection.abort()
            raise CallError("the vendor closed the connection at once or spoke unasked", written=False)
        return connection
