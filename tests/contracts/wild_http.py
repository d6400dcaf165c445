"""An HTTP vendor that misbehaves, and the table of its misbehaviours (faults 34 to 40)."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import Awaitable, Callable

from tests.contracts.wild import Case, Wild, reset
from vendors.outcomes import Accepted, InDoubt, NotSent, Refused

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SHORT = {"timeout": "0.3"}
"""For calls that only the deadline ends."""
DEDUPES = {"dedupe": "true"}


class WildHttp(Wild):
    """Answers references that begin with "good" as it should, and every other one with its misbehaviour."""

    def __init__(self, behaviour: Behaviour | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.behaviour = behaviour or good
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            line, headers, body = await _request(reader)
            self.requests.append((line, headers, body))
            reference = headers.get("idempotency-key", line.split()[1].rpartition("/")[2])
            self.taken[reference] += 1
            await (good if reference.startswith("good") else self.behaviour)(reader, writer)


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
    return line, headers, await reader.readexactly(int(headers.get("content-length", 0)))


def answer(status: int, body: bytes | str = b"", *lines: str, close: bool = False) -> Behaviour:
    """An answer with a right length."""
    content = body.encode() if isinstance(body, str) else body
    head = f"HTTP/1.1 {status} Word\r\nContent-Length: {len(content)}\r\n"
    return raw((head + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode() + content, close=close)


def raw(*parts: bytes, close: bool = False) -> Behaviour:
    """Bytes as they are, each part a packet of its own as far as that can be arranged."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if close:
            writer.close()
            await writer.wait_closed()

    return behave


good = answer(200, '{"id": "evidence"}')
good_and_close = answer(200, '{"id": "evidence"}', close=True)


async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()  # until the other side gives up


async def reset_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    reset(writer)


def endless(head: bytes, drop: bytes, pause: float = 0) -> Behaviour:
    """`head`, then `drop` for ever."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(pause)

    return behave


def huge(status: int, start: bytes) -> Behaviour:
    """50 MB of right JSON, which would be understood if it were read to its end."""

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d Word\r\nContent-Length: %d\r\n\r\n" % (status, 50_000_000))
        writer.write(start)
        for size in [100_000] * 499 + [100_000 - len(start) - 1]:
            writer.write(b" " * size)
            await writer.drain()
        writer.write(b"}")

    return behave


def _deep(levels: int) -> str:
    return "[" * levels + "]" * levels


_BOMB = gzip.compress(b'{"id": "x"}' + b" " * 10_000_000)


def paused(reason: str) -> NotSent:
    return NotSent(reason, scope="credential", pause=True)


DOUBT = (InDoubt,)
CASES = [
    Case("a 200 with an id", answer(200, '{"id": "v-1"}'), Accepted("v-1")),
    Case("a 202 with a numeric id", answer(202, '{"id": 17}'), Accepted("17")),
    Case("a 200 in chunks", raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                b'4\r\n{"id\r\n', b'7\r\n": "v"}\r\n0\r\n\r\n'), Accepted("v")),
    Case("a 200 whose end is the end of the connection", raw(b'HTTP/1.0 200 OK\r\n\r\n{"id": "v"}', close=True),
         Accepted("v")),
    Case("a 100 and a 103 before the answer",
         raw(b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 3\r\n\r\n",
             b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"id": "v"}'), Accepted("v")),
    Case("two answers to one request",
         raw(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"id": "v"}'
             b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"id": "w"}'), Accepted("v")),
    Case("a 409 on our key with the id", answer(409, '{"id": "first"}'), Accepted("first"), DEDUPES),
    Case("a 409 on our key without an id", answer(409, '{"message": "duplicate"}'), DOUBT, DEDUPES),
    Case("a 409 with an id from a vendor that promises no dedupe", answer(409, '{"id": "whose"}'), DOUBT),
    Case("an empty 200", answer(200), DOUBT),
    Case("a 204", raw(b"HTTP/1.1 204 No Content\r\n\r\n"), DOUBT),
    Case("a 200 with HTML", answer(200, "<html>Welcome</html>", "Content-Type: text/html"), DOUBT),
    Case("a 200 with garbage", answer(200, bytes(range(256))), DOUBT),
    Case("a 200 with NaN as id", answer(200, '{"id": NaN}'), DOUBT),
    Case("a 200 with a list as id", answer(200, '{"id": ["v"]}'), DOUBT),
    Case("a 200 with true as id", answer(200, '{"id": true}'), DOUBT),
    Case("a 200 with null as id", answer(200, '{"id": null}'), DOUBT),
    Case("a 200 with an empty id", answer(200, '{"id": "  "}'), DOUBT),
    Case("a 200 with an id that is too long", answer(200, json.dumps({"id": "v" * 256})), DOUBT),
    Case("a 200 with a NUL in the id", answer(200, '{"id": "a\\u0000b"}'), DOUBT),
    Case("a 200 with a list", answer(200, '[{"id": "v"}]'), DOUBT),
    Case("a 200 that is nested 100,000 deep", answer(200, _deep(100_000)), DOUBT),
    Case("a 200 in a wrong charset", answer(200, '{"id": "ü"}'.encode("latin-1")), DOUBT),
    Case("a 200 with a packed bomb", answer(200, _BOMB, "Content-Encoding: gzip"), DOUBT),
    Case("a 200 of 50 MB", huge(200, b'{"id": "v"'), DOUBT),
    Case("a 422 of 50 MB", huge(422, b'{"code": "v"'), Refused("http_422")),
    Case("endless headers", endless(b"HTTP/1.1 200 OK\r\n", b"X-More: and more\r\n" * 500), DOUBT),
    Case("one endless header", endless(b"HTTP/1.1 200 OK\r\nX-More: ", b"and more" * 2000), DOUBT),
    Case("endless 100s", endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500), DOUBT),
    Case("a 200 that is cut", raw(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"id": "v"}', close=True), DOUBT),
    Case("a 200 in chunks that is cut",
         raw(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{"id": "v"}\r\n', close=True), DOUBT),
    Case("a 400 that is cut", raw(b"HTTP/1.1 400 No\r\nContent-Length: 99\r\n\r\n{", close=True), Refused("http_400")),
    Case("a head that is cut", raw(b"HTTP/1.1 200 OK\r\nContent-Le", close=True), DOUBT),
    Case("an end without an answer", raw(close=True), DOUBT),
    Case("a reset after the request", reset_at_once, DOUBT),
    Case("no answer at all", hang, DOUBT, limits=SHORT),
    Case("an answer byte by byte", endless(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b" ", 0.02), DOUBT,
         limits=SHORT),
    Case("a head byte by byte", endless(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a", 0.02), DOUBT, limits=SHORT),
    Case("not HTTP", raw(b"220 relay.example ESMTP\r\n"), DOUBT),
    Case("two different lengths",
         raw(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\nContent-Length: 3\r\n\r\n{"id": "v"}'), DOUBT),
    Case("another protocol", raw(b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), DOUBT),
    Case("an unknown status", answer(799, '{"id": "v"}'), DOUBT),
    Case("a 400 with a reason", answer(400, '{"code": "bounce", "sub_type": "mailbox_unknown"}'),
         Refused("bounce", "mailbox_unknown")),
    Case("a 413 with HTML", answer(413, "<html>", close=True), Refused("http_413")),
    Case("a 422 with strange reasons", answer(422, '{"code": {"a": 1}, "sub_type": "' + "x" * 300 + '"}'),
         Refused("http_422")),
    Case("a 408", answer(408), DOUBT),
    Case("a 425", answer(425), NotSent("http 425", retry_after=30.0)),
    *(Case(f"a {status}", answer(status), paused(f"http {status}: login or account refused"))
      for status in (401, 402, 403, 407)),
    *(Case(f"a {status}", answer(status, '{"code": "not_found"}'),
           paused(f"http {status}: the address takes no messages")) for status in (404, 405, 406, 410, 415, 421, 426)),
    *(Case(f"a {status} to elsewhere", answer(status, b"", "Location: http://127.0.0.1:9/"),
           paused(f"http {status}: not processed; redirects are not followed")) for status in (307, 308)),
    *(Case(f"a {status} to elsewhere, which may follow a message that was taken", answer(status, '{"id": "v"}',
           "Location: http://127.0.0.1:9/"), InDoubt(f"http {status}: redirects are not followed", pause=True))
      for status in (300, 301, 302, 303, 304, 305, 306)),
    Case("a 303 that is cut", raw(b"HTTP/1.1 303 See\r\nContent-Length: 99\r\n\r\n{", close=True),
         InDoubt("http 303: redirects are not followed", pause=True)),
    Case("a 308 that is cut", raw(b"HTTP/1.1 308 See\r\nContent-Length: 99\r\n\r\n{", close=True),
         paused("http 308: not processed; redirects are not followed")),
    Case("a 404 that is cut", raw(b"HTTP/1.1 404 No\r\nContent-Length: 99\r\n\r\n{", close=True),
         paused("http 404: the address takes no messages")),
    Case("a 409 that is cut", raw(b'HTTP/1.1 409 No\r\nContent-Length: 99\r\n\r\n{"id": "v"}', close=True), DOUBT,
         DEDUPES),
    *(Case(f"a 429 with Retry-After {value}", answer(429, b"", *([f"Retry-After: {value}"] if value else [])),
           NotSent("http 429: too fast for the vendor", retry_after=seconds, scope="credential"))
      for value, seconds in (("7", 7.0), ("0", 0.0), ("-5", 30.0), ("abc", 30.0), ("", 30.0), ("999999999", 3600.0),
                             ("Fri, 31 Dec 2999 23:59:59 GMT", 3600.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 30.0))),
    *(Case(f"a {status}", answer(status), DOUBT) for status in (500, 502, 503, 504)),
    Case("a 500 with an id", answer(500, '{"id": "v"}'), DOUBT),
    Case("a 503 that the contract calls safe", answer(599, b"", "Retry-After: 3"),
         NotSent("http 599", retry_after=3.0, scope="credential")),
]  # fmt: skip
