"""Bare loops to compare the sender with: the same calls to the same vendor, without database, limit or record.

`python -m benchmarks.yardsticks [calls]`. The calls are prepared before the clock starts. The rows are measured in
turns, because the machine's speed drifts, and the median of the rounds is shown. The row of aiohttp needs
requirements-bench.in.
"""

import asyncio
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import uvloop
from rich.console import Console

from benchmarks.sandbox import CONNECTIONS, ROUNDS, call, send_all
from tests.sandbox import running

CALLS = 20_000
JSON = {"Content-Type": "application/json"}
Run = Callable[[str], Coroutine[Any, Any, int]]


def bare_httptools(calls: int) -> Run:
    """Return a function that sends this many letters to an address and returns the number answered well."""
    requests = [call(number) for number in range(calls)]
    return lambda url: send_all(url, requests)


def bare_aiohttp(calls: int) -> Run:
    """Return the same function with aiohttp."""
    import aiohttp

    bodies = [call(number).partition(b"\r\n\r\n")[2] for number in range(calls)]
    ready = [({"Idempotency-Key": orjson.loads(body)["reference"]} | JSON, body) for body in bodies]

    async def caller(session: aiohttp.ClientSession, url: str) -> int:
        good = 0
        while ready:
            headers, body = ready.pop()
            async with session.post(url, data=body, headers=headers) as answer:
                good += "id" in orjson.loads(await answer.read())
        return good

    async def send(url: str) -> int:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS)) as session:
            return sum(await asyncio.gather(*(caller(session, url) for _ in range(CONNECTIONS))))

    return send


def measure(loop: Callable[[int], Run], calls: int) -> float:
    """Return calls a second, checked against the vendor's books."""
    with running() as vendor:
        send = loop(calls)
        began = time.perf_counter()
        good = uvloop.run(send(f"{vendor.url}/letters"))
        took = time.perf_counter() - began
        if not good == vendor.ledger()["accepted"] == calls:
            raise SystemExit(f"{calls} calls, {good} answered well, in the books: {vendor.ledger()}")
    return calls / took


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else CALLS
    console = Console()
    loops = [bare_httptools]
    if importlib.util.find_spec("aiohttp"):
        loops.append(bare_aiohttp)
    else:
        console.print("no row of aiohttp: it is not installed (requirements-bench.in)")
    rates: dict[Callable[[int], Run], list[float]] = {loop: [] for loop in loops}
    for _ in range(ROUNDS):
        for loop in loops:
            rates[loop].append(measure(loop, calls))
    for loop, measured in rates.items():
        low, high = min(measured), max(measured)
        console.print(f"{loop.__name__:16} {statistics.median(measured):9,.0f} calls/s ({low:,.0f}..{high:,.0f})")


if __name__ == "__main__":
    main()
