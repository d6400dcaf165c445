"""A lean HTTP/1.1 client that knows whether a request left: no redirects, proxies or hidden second try."""

from __future__ import annotations

import re
import ssl
from urllib.parse import urlsplit

from vendors.adapters.deadlines import Deadlines
from vendors.adapters.http_connection import HttpConnection, Response
from vendors.adapters.pool import Pool
from vendors.adapters.wire import connect
from vendors.outcomes import CallError

ANSWER_MAX = 1_000_000
"""Bytes that an answer may have."""
IDLE_MAX = 15.0
"""Seconds that a connection waits for its next request."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


def header(name: str, value: str) -> bytes:
    """One header line. Raises ValueError for anything that could begin another one."""
    if not _NAME.fullmatch(name):
        raise ValueError("a header name must be a token")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"the value of the header {name} must be one line of Latin-1")
    return f"{name}: {value}\r\n".encode("latin-1")


class Client:
    """Keep-alive connections to one origin.

    `connections`: at most so many at once; further calls wait. `deadline`: seconds for a call, everything included.
    `ca_file`: authorities to trust instead of the system's, for https.
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
        self._pool = Pool(self._connect, places=connections, idle_max=IDLE_MAX)

    async def call(self, method: str, target: str, headers: bytes = b"", body: bytes = b"") -> Response:
        """One request, one answer. `headers`: lines made by `header`. `target`: path and query, quoted.

        Raises CallError, which says whether anything was written. Cancelled, it closes its connection.
        """
        head = f"{method} {target} HTTP/1.1\r\n".encode("ascii")
        length = b"Content-Length: %d\r\n" % len(body) if body else b""
        request = b"".join((head, self._host_line, headers, length, b"\r\n", body))
        connection: HttpConnection | None = None
        try:
            with self._deadlines:
                async with self._pool.places:
                    connection = await self._pool.take()
                    try:
                        return await connection.exchange(request)
                    finally:
                        self._pool.put_back(connection)
        except TimeoutError:
            raise self._too_late(connection) from None

    async def close(self) -> None:
        """Closes every connection; calls in flight and later ones end as CallError."""
        await self._pool.close()

    def _too_late(self, connection: HttpConnection | None) -> CallError:
        if connection is None:
            return CallError(f"no connection within {self._deadline:g} s", written=False)
        reason = f"no complete answer within {self._deadline:g} s"
        return CallError(reason, written=True, status=connection.status, headers=connection.headers)

    async def _connect(self) -> HttpConnection:
        def make() -> HttpConnection:
            return HttpConnection(ANSWER_MAX, self._deadline)

        connection = await connect(make, self._host, self._port, self._tls)
        if not connection.fresh():
            connection.abort()
            raise CallError("the vendor closed the connection at once or spoke unasked", written=False)
        return connection
