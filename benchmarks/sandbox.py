"""Calls a second that the sandbox vendor itself takes, to show that other benchmarks do not measure the vendor.

`python -m benchmarks.sandbox [calls]`. One process makes one call at a time on each of 100 kept connections, in a loop
of its own that does nothing else. Caller and vendor share the machine, so there are two figures: calls a second as the
caller sees them, and calls for each second of the vendor's processor time, the capacity of one core. At the end the
vendor's books must agree with the caller's count.
"""

import asyncio
import resource
import sys
import time
from typing import cast
from urllib.parse import urlsplit

import httptools
import orjson
import uvloop
from rich.console import Console

from tests.sandbox import Sandbox, running

CALLS = 50_000
CONNECTIONS = 100
ROUNDS = 3


class Caller(asyncio.Protocol):
    """One connection: the next call leaves once the previous answer is complete."""

    def __init__(self, calls: list[bytes], ended: asyncio.Future[int]) -> None:
        self._calls = calls
        self._ended = ended
        self._good = 0
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._good += self._parser.get_status_code() == 200
        self._next()

    def _next(self) -> None:
        if self._calls:
            self._transport.write(self._calls.pop())
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set_result(self._good)


def call(number: int) -> bytes:
    letter = {
        "reference": f"00000000-0000-4000-8000-{number:012}-0",
        "recipient": f"person{number}@example.org",
        "subject": "Your statement for March",
        "body": "Dear customer, " + "your statement is ready. " * 8,
        "params": {"name": "Ann"},
    }
    body = orjson.dumps(letter)
    head = f"Host: vendor\r\nContent-Type: application/json\r\nIdempotency-Key: {letter['reference']}\r\n"
    return f"POST /letters HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def send_all(url: str, calls: list[bytes]) -> int:
    """Return the number of calls answered with 200."""
    loop = asyncio.get_running_loop()
    address = urlsplit(url)
    ends = [loop.create_future() for _ in range(CONNECTIONS)]
    for end in ends:
        await loop.create_connection(lambda end=end: Caller(calls, end), address.hostname, address.port)
    return sum(await asyncio.gather(*ends))


def measure(vendor: Sandbox, calls: int) -> tuple[float, float]:
    """Return calls a second, and calls for each second of the vendor's processor time, including its start."""
    ready = [call(number) for number in range(calls)]
    began = time.perf_counter()
    good = uvloop.run(send_all(vendor.url, ready))
    took = time.perf_counter() - began
    ledger = vendor.ledger()
    if not good == ledger["accepted"] == calls or ledger["duplicates"]:
        raise SystemExit(f"{calls} calls, {good} answered well, in the books: {ledger}")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    vendor.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return calls / took, calls / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else CALLS
    console = Console()
    console.print(f"{calls:,} calls over {CONNECTIONS} connections, {ROUNDS} rounds, each with a new vendor")
    for dedupe in (False, True):
        for _ in range(ROUNDS):
            with running(dedupe=dedupe) as vendor:
                seen, core = measure(vendor, calls)
            kind = "with" if dedupe else "without"
            console.print(f"{kind:>8} deduplication: {seen:9,.0f} calls/s, {core:9,.0f} per core of the vendor")


if __name__ == "__main__":
    main()
