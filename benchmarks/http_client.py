"""The cost of a call with our HTTP client, and with aiohttp (decision 4).

`python -m benchmarks.http_client [calls] [rounds]`. Both make the same calls in turns in one process: the same event
loop, vendor (another process), bodies, headers, 32 kept connections, and bytes read of each answer. Both run at their
best: requests are prepared before the clock starts, and answers are not parsed. aiohttp has its parser in C, and no
cookies, automatic headers, decompression or timeout; ours always has a timeout.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import orjson
import uvloop

from benchmarks.results import keep
from benchmarks.sandbox import call
from benchmarks.stage import console, in_turns, numbers, ratio
from tests.sandbox import running
from vendors.adapters.http_client import Client, header

if TYPE_CHECKING:
    import aiohttp

CALLS, ROUNDS, CONNECTIONS = 20_000, 5, 32
OURS, AIOHTTP = "mailhub's client", "aiohttp"
Times = tuple[float, float]
Run = Callable[[str, list[bytes]], Coroutine[Any, Any, Times]]


def bodies(calls: int) -> list[bytes]:
    return [call(number).partition(b"\r\n\r\n")[2] for number in range(calls)]


def headers(body: bytes) -> dict[str, str]:
    return {"Content-Type": "application/json", "Idempotency-Key": orjson.loads(body)["reference"]}


async def timed(caller: Callable[[], Coroutine[Any, Any, None]]) -> Times:
    """Return seconds until all callers have emptied their shared list, and the processor seconds of this process."""
    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(CONNECTIONS)))
    return time.perf_counter() - began, time.process_time() - used


async def ours(url: str, letters: list[bytes]) -> Times:
    ready = [(b"".join(header(*line) for line in headers(body).items()), body) for body in letters]
    client = Client(url, connections=CONNECTIONS, deadline=30)
    head = client.head("POST", "/letters")

    async def caller() -> None:
        while ready:
            lines, body = ready.pop()
            answer = await client.call(head, lines, body)
            assert answer.status == 200
            assert answer.body

    try:
        return await timed(caller)
    finally:
        await client.close()


async def with_aiohttp(url: str, letters: list[bytes]) -> Times:
    import aiohttp
    from yarl import URL

    ready = [(headers(body), body) for body in letters]
    target = URL(f"{url}/letters")

    async def caller() -> None:
        while ready:
            lines, body = ready.pop()
            async with session.post(target, data=body, headers=lines, allow_redirects=False) as answer:
                assert answer.status == 200
                assert await answer.read()

    async with session_of(aiohttp) as session:
        return await timed(caller)


def session_of(library: Any) -> "aiohttp.ClientSession":
    return library.ClientSession(
        connector=library.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60),
        cookie_jar=library.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        auto_decompress=False,
        timeout=library.ClientTimeout(total=None),
    )


class Meter:
    """Measures one client: a round's rate, and the processor time beside it."""

    def __init__(self, run: Run, calls: int) -> None:
        self._run = run
        self._calls = calls
        self.microseconds: list[float] = []

    def rate(self) -> float:
        """Return calls a second, checked against the vendor's books."""
        with running() as vendor:
            took, used = uvloop.run(self._run(vendor.url, bodies(self._calls)))
            assert vendor.ledger()["accepted"] == self._calls
        self.microseconds.append(1_000_000 * used / self._calls)
        return self._calls / took


def main() -> None:
    calls, rounds = numbers(CALLS, ROUNDS)
    meters = {OURS: Meter(ours, calls), AIOHTTP: Meter(with_aiohttp, calls)}
    rates = in_turns({name: meter.rate for name, meter in meters.items()}, rounds)
    costs = {name: meter.microseconds for name, meter in meters.items()}
    keep(f"HTTP calls over {CONNECTIONS} connections, by client", "calls/s", rates)
    keep("Processor time of an HTTP call, by client", "us", costs)
    for name in meters:
        rate, cost = statistics.median(rates[name]), statistics.median(costs[name])
        console.print(f"{name}: {rate:,.0f} calls/s, {cost:.1f} us of processor time a call")
    console.print(
        f"{OURS} / {AIOHTTP}: {ratio(rates[OURS], rates[AIOHTTP]):.2f} x the calls a second, "
        f"{ratio(costs[OURS], costs[AIOHTTP]):.2f} x the processor time"
    )
    console.print(f"load of the machine now: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
