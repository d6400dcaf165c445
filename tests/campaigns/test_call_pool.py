"""How much a sender may claim: what its connections can call at once, in rounds or one by one."""

import asyncio
from types import SimpleNamespace
from typing import Any

import uvloop

from campaigns.claiming.claims import ClaimedMessage, PermittedCall
from campaigns.sending.call_pool import CallPool
from vendors.adapters.base import Capabilities, Letter
from vendors.outcomes import Accepted


class Slow:
    """An adapter whose calls end when the test says so."""

    deadline = 300.0

    def __init__(self, concurrency: int, batch: int) -> None:
        self.concurrency, self.capabilities = concurrency, Capabilities(batch_max=batch)
        self.rounds: list[int] = []
        self.began, self.over = asyncio.Event(), asyncio.Event()

    async def send(self, letters: list[Letter]) -> list[Accepted]:
        self.rounds.append(len(letters))
        self.began.set()
        await self.over.wait()
        return [Accepted("1")] * len(letters)

    def is_good(self, outcome: Any) -> bool:
        return True


def ticket(number: int) -> PermittedCall:
    return PermittedCall(
        ClaimedMessage(number, f"{number}-0", "ann@example.org", {}), (f"place:{number}",), float("inf")
    )


async def beside_a_round_that_is_not_full() -> None:
    slow = Slow(concurrency=2, batch=5)
    job: Any = SimpleNamespace(adapter=slow, letter=lambda m: Letter(m.reference, m.recipient, "", ""))
    stored: list[int] = []

    async def write(answers: list[Any], permits: list[str]) -> None:
        stored.extend(id for id, _ in answers)

    pool = CallPool(job, write)
    assert pool.free == pool.size == 10
    serving = asyncio.create_task(pool.run())
    pool.submit([ticket(0)])
    assert pool.free == 9, "nobody has begun"
    async with asyncio.timeout(60):
        await slow.began.wait()
    assert slow.rounds == [1] and pool.free == 5, "only the other connection can call at once"
    pool.submit([ticket(number) for number in range(1, 6)])
    assert pool.free == 0
    slow.over.set()
    async with asyncio.timeout(60):
        while pool.in_flight:
            await pool.wait(60)
    assert sorted(stored) == list(range(6)) and slow.rounds == [1, 5] and pool.free == 10
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_beside_a_round_that_is_not_full_no_more_is_claimed_than_the_others_can_call_at_once() -> None:
    uvloop.run(beside_a_round_that_is_not_full())
