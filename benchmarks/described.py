"""The cost of a description: letters by the adapter `described`, and the same letters by `http`.

`python -m benchmarks.described [letters] [rounds]`. Both send the same letters in turns, in one process, to the sandbox
vendor in another, over 32 kept connections; the description does the same as `http`. The vendor's books must agree with
our count. A form, which the sandbox does not take, is composed but not sent.
"""

import asyncio
import os
import statistics
import time
from typing import Any

import uvloop

from benchmarks.http_client import CONNECTIONS
from benchmarks.results import keep
from benchmarks.stage import console, in_turns, numbers, ratio
from tests.sandbox import running
from vendors.adapters import load
from vendors.adapters.base import Letter
from vendors.described.adapter import Described
from vendors.outcomes import Accepted

LETTERS, ROUNDS = 20_000, 7
HTTP, DESCRIBED = "http", "described"
DESCRIPTION = """[vendor]
name = "the sandbox vendor"
channel = "print"
documents = "docs/reference/adapters.md"
[request]
url = "http://127.0.0.1/letters"
[request.headers]
Idempotency-Key = "{reference}"
[request.content]
reference = "{reference}"
recipient = "{recipient}"
subject = "{subject}"
body = "{body}"
params = "{params}"
[answer]
id = "id"
"""


def letter(number: int) -> Letter:
    return Letter(
        f"00000000-0000-4000-8000-{number:012}-0",
        f"person{number}@example.org",
        "Your statement for March",
        "Dear customer, " + "your statement is ready. " * 8,
        {"name": "Ann"},
    )


class AdapterMeter:
    """Measures one adapter: a round's rate, and the processor time of a letter beside it."""

    def __init__(self, adapter: str, letters: int) -> None:
        self._adapter = adapter
        self._letters = letters
        self.microseconds: list[float] = []

    def rate(self) -> float:
        with running() as vendor:
            took, used = uvloop.run(self._send(vendor.url))
            assert vendor.ledger()["accepted"] == self._letters
        self.microseconds.append(1_000_000 * used / self._letters)
        return self._letters / took

    async def _send(self, url: str) -> tuple[float, float]:
        own = {"url": f"{url}/letters"} if self._adapter == HTTP else {"description": DESCRIPTION, "server": url}
        adapter = load(self._adapter)(own | {"concurrency": str(CONNECTIONS)}, {})
        await adapter.open()
        waiting: list[Any] = [letter(number) for number in range(self._letters)]

        async def caller() -> None:
            while waiting:
                [outcome] = await adapter.send([waiting.pop()])
                assert isinstance(outcome, Accepted), outcome

        began, used = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller() for _ in range(CONNECTIONS)))
        took = time.perf_counter() - began, time.process_time() - used
        await adapter.close()
        return took


def form_microseconds(letters: int) -> float:
    """Return microseconds to compose a form for an SMS by Twilio's description, without sending it."""
    made = Described({"description": "twilio", "account": "AC" + "0" * 32, "from": "+15005550001"}, {})
    waiting = [letter(number) for number in range(letters)]
    began = time.process_time()
    for one in waiting:
        made.make_body(one)
    return 1_000_000 * (time.process_time() - began) / letters


def main() -> None:
    letters, rounds = numbers(LETTERS, ROUNDS)
    meters = {name: AdapterMeter(name, letters) for name in (HTTP, DESCRIBED)}
    rates = in_turns({name: meter.rate for name, meter in meters.items()}, rounds)
    costs = {name: meter.microseconds for name, meter in meters.items()}
    keep(f"Letters over {CONNECTIONS} connections, by adapter", "letters/s", rates)
    keep("Processor time of a letter, by adapter", "us", costs)
    for name in meters:
        rate, cost = statistics.median(rates[name]), statistics.median(costs[name])
        console.print(f"{name}: {rate:,.0f} letters/s, {cost:.1f} us of processor time a letter")
    console.print(
        f"described / http: {ratio(rates[DESCRIBED], rates[HTTP]):.2f} x the letters a second, "
        f"{ratio(costs[DESCRIBED], costs[HTTP]):.2f} x the processor time"
    )
    console.print(f"a form for Twilio is made in {form_microseconds(letters):.1f} us")
    console.print(f"load of the machine now: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
