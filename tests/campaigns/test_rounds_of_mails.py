"""Mails in rounds through the whole sender, to a relay that breaks off in the middle again and again."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from campaigns.models import Message
from tests import factories
from tests.faults.checker import sums
from tests.faults.sending import send_the_rest, taken
from vendors.testing.smtp_relay import MisbehavingSmtp, lose

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def relay(doing: MisbehavingSmtp) -> Iterator[int]:
    """A relay in a thread; its port."""
    loop, over, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()

    async def serve() -> None:
        async with doing:
            ready.set()
            await over.wait()

    def live() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    living = threading.Thread(target=live)
    living.start()
    ready.wait()
    try:
        yield doing.port
    finally:
        loop.call_soon_threadsafe(over.set)
        living.join()


@pytest.mark.parametrize("pipelining", [False, True])
def test_a_relay_that_breaks_off_gets_no_mail_twice_and_only_lost_replies_are_in_doubt(pipelining: bool) -> None:
    names = ["wild" if n % 9 == 4 else f"good-{n}" for n in range(60)]
    to = [f"{name}+{n}@example.org" for n, name in enumerate(names)]
    broken = MisbehavingSmtp({"dot": lose}, pipelining=pipelining)
    with relay(broken) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 2}
        vendor = factories.vendor(adapter="smtp", settings={**known, "batch": 5})
        send_the_rest(taken(to, factories.credential(vendor)))
    assert set(broken.taken.values()) == {1} and len(broken.taken) == 60
    lost = names.count("wild")
    assert sums() == {"accepted": 60 - lost, "in doubt": lost}
    doubted = Message.objects.filter(in_doubt_at__isnull=False).values_list("recipient", flat=True)
    assert Counter(name.partition("+")[0] for name in doubted) == {"wild": lost}
