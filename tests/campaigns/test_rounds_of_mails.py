"""Mails in rounds through the whole sender, to a relay that breaks off in the middle again and again."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from campaigns.engine.claiming.claims import PermittedCall
from campaigns.engine.sending import stream
from campaigns.engine.sending.call_pool import CallPool, OngoingCall
from campaigns.models import Message
from tests import factories
from tests.faults.checker import sums
from tests.faults.sending import send_the_rest, taken
from vendors.testing.smtp_relay import MisbehavingSmtp, lose

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 600


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


def test_mails_that_follow_others_are_sent_once_also_where_a_connection_ends_or_one_cannot_be_sent(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claimed ahead. A connection takes three mails, and none can be made for each eleventh address."""
    monkeypatch.setattr(stream, "FRESH", 3600.0)  # claimed ahead however slow the database is
    monkeypatch.setattr(stream, "UNBOUND_AFTER", 0.0)
    settings.CLAIM_AHEAD_SECONDS = 100.0
    keep, added = CallPool.keep_added, list[PermittedCall]()
    monkeypatch.setattr(CallPool, "keep_added", lambda pool, call, to: added.append(call) or keep(pool, call, to))
    names = ["good\n" if n % 11 == 10 else "good" for n in range(MANY)]
    relayed = MisbehavingSmtp(pipelining=True)
    with relay(relayed) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 2}
        vendor = factories.vendor(adapter="smtp", settings={**known, "mails": 3}, limits=[(1_000_000, 1.0)])
        send_the_rest(taken([f"{name}-{n}@example.org" for n, name in enumerate(names)], factories.credential(vendor)))
    refused = names.count("good\n")
    assert len(added) > MANY // 3, "otherwise nothing is shown"
    assert set(relayed.taken.values()) == {1} and len(relayed.taken) == MANY - refused
    assert sums() == {"accepted": MANY - refused, "refused": refused}


def test_a_mail_that_was_added_and_may_not_begin_yet_waits_again(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose confirmation is late. Giving it back would end claims ahead for a while."""
    monkeypatch.setattr(stream, "FRESH", 3600.0)
    monkeypatch.setattr(stream, "UNBOUND_AFTER", 0.0)
    settings.CLAIM_AHEAD_SECONDS = 100.0
    given_back, late, asked, begins = list[str](), list[int](), count(1), OngoingCall.may_begin

    def may_begin(call: OngoingCall, number: int) -> bool:
        if number >= call._given and next(asked) % 10 == 0:
            late.append(number)
            return False
        return begins(call, number)

    monkeypatch.setattr(OngoingCall, "may_begin", may_begin)
    give_back = CallPool._give_call_back
    monkeypatch.setattr(CallPool, "_give_call_back", lambda *its: given_back.append(its[-1]) or give_back(*its))
    relayed = MisbehavingSmtp(pipelining=True)
    with relay(relayed) as port:
        known = {"host": "127.0.0.1", "port": port, "tls": "none", "sender": "us@example.org", "concurrency": 2}
        vendor = factories.vendor(adapter="smtp", settings=known, limits=[(1_000_000, 1.0)])
        send_the_rest(taken([f"good-{n}@example.org" for n in range(MANY)], factories.credential(vendor)))
    assert late, "otherwise nothing is shown"
    assert not given_back
    assert set(relayed.taken.values()) == {1} and len(relayed.taken) == MANY
    assert sums() == {"accepted": MANY}
