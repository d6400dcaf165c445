"""The smallest receiver outside mailhub: it takes letters over HTTP, and counts.

`python -m benchmarks.sink` prints its port and runs until its standard input ends. POST /NAME takes a letter for the
vendor of that name, POST /NAME/after/SECONDS answers after a delay, GET /NAME reports the arrivals, DELETE /NAME
forgets them. Times are on the monotonic clock, which all processes of a machine share.
"""

import asyncio
import bisect
import contextlib
import http.client
import math
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
import orjson
import uvloop

ACCEPTED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{"id":"1"}'


@dataclass(slots=True)
class Arrivals:
    """The arrivals for one vendor. times: of each call, in order. recipients: of each call."""

    times: list[float] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        unique = len(set(self.recipients))
        return {
            "calls": len(self.times),
            "recipients": unique,
            "duplicates": len(self.times) - unique,
            "first": self.times[0] if self.times else None,
            "most": self.times[math.ceil(0.99 * len(self.times)) - 1] if self.times else None,
            "last": self.times[-1] if self.times else None,
            "fullest_second": fullest(self.times),
        }


def fullest(times: list[float], seconds: float = 1.0) -> int:
    """Return the most calls within any interval of this length."""
    return max((bisect.bisect_left(times, at + seconds) - n for n, at in enumerate(times)), default=0)


class Receiver(asyncio.Protocol):
    """One connection."""

    def __init__(self, books: dict[str, Arrivals]) -> None:
        self._books = books
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""
        self._path = b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self._parser.get_method()
        name, _, delay = self._path.decode()[1:].partition("/after/")
        if method == b"POST":
            arrived = self._books[name]
            arrived.times.append(time.monotonic())
            arrived.recipients.append(orjson.loads(self._body)["recipient"])
            if delay:
                asyncio.get_running_loop().call_later(float(delay), self._transport.write, ACCEPTED)
            else:
                self._transport.write(ACCEPTED)
        else:
            answer = self._tell(name, method)
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(answer)}\r\n\r\n"
            self._transport.write(head.encode() + answer)

    def _tell(self, query: str, method: bytes) -> bytes:
        name, _, what = query.partition("?")
        if method == b"DELETE":
            self._books.pop(name, None)
        arrived = self._books[name] if name in self._books else Arrivals()
        if what == "count":
            return orjson.dumps(len(arrived.times))
        if what == "each":
            return orjson.dumps(list(zip(arrived.recipients, arrived.times, strict=True)))
        return orjson.dumps(arrived.facts())


async def receive() -> None:
    books: dict[str, Arrivals] = defaultdict(Arrivals)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Receiver(books), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    over = asyncio.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(over.set)), daemon=True).start()
    await over.wait()


class Sink:
    """A running receiver, seen from the benchmark."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self.process = process
        self.port = port

    def url(self, name: str, after: float = 0.0) -> str:
        return f"http://127.0.0.1:{self.port}/{name}" + (f"/after/{after:g}" if after else "")

    def count(self, name: str) -> int:
        return cast(int, self._ask("GET", f"{name}?count"))

    def each(self, name: str) -> list[tuple[str, float]]:
        """Return recipient and time of each call, in order."""
        return cast("list[tuple[str, float]]", self._ask("GET", f"{name}?each"))

    def facts(self, name: str, messages: int) -> dict[str, Any]:
        """Return the arrivals with the times of the first, 99 %, and last. Raises unless each recipient came once."""
        facts = cast("dict[str, Any]", self._ask("GET", name))
        if not facts["calls"] == facts["recipients"] == messages:
            raise SystemExit(f"{messages:,} messages for {name}, but what arrived is {facts}")
        return facts

    def forget(self, name: str) -> None:
        self._ask("DELETE", name)

    def _ask(self, method: str, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, f"/{path}")
            return orjson.loads(connection.getresponse().read())


@contextlib.contextmanager
def running() -> Iterator[Sink]:
    command = [sys.executable, "-m", "benchmarks.sink"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Sink(process, int(process.stdout.readline()))
        finally:
            process.kill()


if __name__ == "__main__":
    uvloop.run(receive())
