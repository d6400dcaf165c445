"""A misbehaving HTTP vendor."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from vendors.testing.servers import MisbehavingServer, reset

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class HttpRequest(NamedTuple):
    """A request as received; header names in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def target(self) -> str:
        """Path and query."""
        return self.line.split(" ")[1]

    @property
    def form(self) -> dict[str, str]:
        """Fields of a form; of several with one name, the last."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def idempotency_key(request: HttpRequest) -> str:
    """Return the reference from the Idempotency-Key, or from the end of a look-up's path."""
    return request.headers.get("idempotency-key", request.target.rpartition("/")[2])


class MisbehavingHttp(MisbehavingServer):
    """Answers references that begin with "good" correctly, and all others with its misbehaviour.

    `reference_of`: finds the reference in a request. `good`: the correct answer.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        good: Behaviour | None = None,
        reference_of: Callable[[HttpRequest], str] = idempotency_key,
    ) -> None:
        super().__init__(tls)
        self._good = good or GOOD
        self.behaviour = behaviour or self._good
        self.requests: list[HttpRequest] = []
        self._reference_of = reference_of

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            request = await read_request(reader)
            self.requests.append(request)
            reference = self._reference_of(request)
            self.taken[reference] += 1
            await (self._good if reference.startswith("good") else self.behaviour)(reader, writer)


async def read_request(reader: asyncio.StreamReader) -> HttpRequest:
    """Read the next request of a connection."""
    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    if "chunked" in headers.get("transfer-encoding", ""):
        return HttpRequest(line, headers, await _chunks(reader))
    return HttpRequest(line, headers, await reader.readexactly(int(headers.get("content-length", 0))))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).partition(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


def answer(status: int, body: bytes | str = b"", *lines: str, close: bool = False) -> Behaviour:
    """Return an answer with a correct length."""
    content = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status} Word\r\nContent-Length: {len(content)}\r\n"
    return raw((head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode() + content, close=close)


def raw(*parts: bytes, close: bool = False) -> Behaviour:
    """Return raw bytes, each part in a packet of its own as far as possible."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if close:
            writer.close()
            await writer.wait_closed()

    return behave


GOOD = answer(200, '{"id": "evidence"}')


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()  # until the other side gives up


async def reset_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


def endless(head: bytes, drop: bytes, pause: float = 0) -> Behaviour:
    """Send `head`, then `drop` for ever."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(pause)

    return behave


def huge(status: int, body: bytes) -> Behaviour:
    """Send a valid body padded to 50 MB with blanks before its last character."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start, end = body[:-1], body[-1:]
        writer.write(b"HTTP/1.1 %d Word\r\nContent-Length: %d\r\n\r\n" % (status, 50_000_000))
        writer.write(start)
        for size in [100_000] * 499 + [100_000 - len(start) - 1]:
            writer.write(b" " * size)
            await writer.drain()
        writer.write(end)

    return behave
