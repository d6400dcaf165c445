"""A relay of moods: it answers for each recipient's domain as the test says, and keeps a book of all calls."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiosmtpd.controller import Controller

from tests import factories
from tests.ports import free_port
from tests.waiting import DEADLINE
from vendors.models import Credential

Mood = Callable[[str], str | None]
"""What it says to a recipient; None: it takes the mail."""


class Moody:
    """calls: (domain, when) of each RCPT; taken: the recipients whose mail it has; taken_at: with the time.

    latency: seconds until it has taken a mail.
    """

    def __init__(self, mood: Mood, latency: float = 0.0) -> None:
        self.mood, self.latency = mood, latency
        self.calls: list[tuple[str, float]] = []
        self.taken: list[str] = []
        self.taken_at: list[tuple[str, float]] = []

    async def handle_RCPT(self, _: Any, __: Any, envelope: Any, address: str, options: Any) -> str:
        self.calls.append((address.rpartition("@")[2], time.monotonic()))
        if said := self.mood(address):
            return said
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: Any, __: Any, envelope: Any) -> str:
        if self.latency:
            await asyncio.sleep(self.latency)
        self.taken += envelope.rcpt_tos
        self.taken_at += [(to, time.monotonic()) for to in envelope.rcpt_tos]
        return "250 taken"

    @property
    def called(self) -> Counter[str]:
        return Counter(domain for domain, _ in self.calls)

    @property
    def took(self) -> Counter[str]:
        return Counter(to.rpartition("@")[2] for to in self.taken)


@contextmanager
def moody_relay(mood: Mood) -> Iterator[tuple[Moody, int]]:
    made = Moody(mood)
    with serve_relay(made) as port:
        yield made, port


@contextmanager
def serve_relay(relay: object, **facts: Any) -> Iterator[int]:
    """The handler of aiosmtpd in a thread; its port. facts: of aiosmtpd's server."""
    controller = Controller(relay, hostname="127.0.0.1", port=free_port(), ready_timeout=DEADLINE, **facts)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


def account(port: int, concurrency: int = 4, more: dict[str, Any] | None = None, **fields: Any) -> Credential:
    """more: settings of the relay."""
    known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": concurrency}
    known |= more or {}
    return factories.credential(factories.vendor(adapter="smtp", settings=known, channel="email", **fields))
