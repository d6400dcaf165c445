"""Processor time of a mail and of a message in the adapters alone: no database, throttle or worker.

`python -m benchmarks.adapters [letters] [rounds]`. Receivers are other processes: Postfix's smtp-sink and
benchmarks.sink. The kernel's part is in the figures; smtp-source -d shows how much that is for a bare dialogue.
"""

import asyncio
import resource
import statistics
import time
from typing import TYPE_CHECKING

import uvloop

from benchmarks import sink, smtp_sink
from benchmarks.results import keep
from benchmarks.smtp import BARE, ROUND, letters, settings, size
from benchmarks.stage import console, in_turns, numbers
from vendors.adapters import dkim
from vendors.adapters.base import Letter, Origin
from vendors.adapters.http import Http
from vendors.adapters.smtp import Smtp
from vendors.outcomes import Accepted

if TYPE_CHECKING:
    from vendors.adapters.base import Adapter

SMTP_CONNECTIONS, HTTP_CONNECTIONS = 8, 32  # as shipped
HTML = "<p>Dear NAME, your statement is <a href='https://example.org/statement'>ready</a>.</p>\n" * 40
TITLE = "Processor time of a mail or message in its adapter"


def news(count: int, key: dkim.DkimKey | None = None) -> list[Letter]:
    """Return mails with HTML, text and links to unsubscribe, as campaigns with a sender identity have them."""
    origin = Origin("us@example.org", "Velma Corporation", "help@example.org", dkim=key)

    def headers(of: str) -> tuple[tuple[str, str], ...]:
        links = f"<https://example.org/u/{of}/0123456789abcdef>, <mailto:unsubscribe+{of}@example.org>"
        return ("List-Unsubscribe", links), ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")

    return [
        plain._replace(
            body=HTML.replace("NAME", plain.recipient),
            html=True,
            text=plain.body,
            headers=headers(plain.reference),
            origin=origin,
            return_path=f"b+{plain.reference}@example.org",
        )
        for plain in letters(count)
    ]


async def send_all(adapter: "Adapter", ready: list[Letter], connections: int) -> float:
    """Return the seconds of processor time until all are accepted."""
    most = adapter.capabilities.batch_max

    async def caller() -> None:
        while ready:
            batch = [ready.pop() for _ in range(min(most, len(ready)))]
            assert all(isinstance(outcome, Accepted) for outcome in await adapter.send(batch))

    await adapter.open()
    try:
        began = time.process_time()
        await asyncio.gather(*(caller() for _ in range(connections)))
        return time.process_time() - began
    finally:
        await adapter.close()


def over_smtp(port: int, ready: list[Letter], batch: int = 1) -> float:
    """Return the microseconds of a mail."""
    count = len(ready)
    adapter = Smtp({**settings(port, batch), "concurrency": SMTP_CONNECTIONS}, {})
    return 1_000_000 * uvloop.run(send_all(adapter, ready, SMTP_CONNECTIONS)) / count


def over_http(receiver: sink.Sink, ready: list[Letter]) -> float:
    """Return the microseconds of a message."""
    count, name = len(ready), "adapters"
    took = uvloop.run(send_all(Http({"url": receiver.url(name)}, {}), ready, HTTP_CONNECTIONS))
    receiver.facts(name, count)
    receiver.forget(name)
    return 1_000_000 * took / count


def bare(relay: smtp_sink.SmtpSink, mails: int) -> float:
    """Return the microseconds of a mail of smtp-source -d."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    smtp_sink.source(relay, mails, size())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1_000_000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / mails


def main() -> None:
    count, rounds = numbers(5_000, 5)
    key = dkim.DkimKey("example.org", "mh1", dkim.new_private_key())
    with sink.running() as receiver, smtp_sink.running() as relay:
        rows = {"HTTP": lambda: over_http(receiver, letters(count))}
        if relay is not None:
            port = relay.port
            rows |= {
                "SMTP": lambda: over_smtp(port, letters(count)),
                f"SMTP, rounds of {ROUND}": lambda: over_smtp(port, letters(count), ROUND),
                "SMTP, HTML with text": lambda: over_smtp(port, news(count)),
                f"SMTP, HTML with text, rounds of {ROUND}": lambda: over_smtp(port, news(count), ROUND),
                "SMTP, HTML with text, signed": lambda: over_smtp(port, news(count, key)),
                BARE: lambda: bare(relay, count),
            }
        costs = in_turns(rows, rounds)
    keep(TITLE, "us", costs)
    for name, each in costs.items():
        console.print(f"{name}: {statistics.median(each):.1f} us ({min(each):.1f} to {max(each):.1f})")


if __name__ == "__main__":
    main()
