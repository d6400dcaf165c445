"""How much a sender may claim: what its connections can call at once, in rounds or one by one."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from django.utils import timezone

from campaigns import ground_truth
from campaigns.attachments import AttachmentCache
from campaigns.claiming import letters
from campaigns.claiming.claims import ClaimedMessage, OpenClaim, PermittedCall
from campaigns.claiming.pricing import ByCost
from campaigns.connections import SharedRows
from campaigns.models import CampaignFile, Message, StoredFile
from campaigns.sending.call_pool import CALL_SIZE, CallPool
from tests import calling
from tests.faults.sending import login, taken
from vendors.adapters.base import Attachment, Capabilities, Letter
from vendors.limits.values import Scope
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
    message = ClaimedMessage(number, f"{number}-0", "ann@example.org", {})
    return PermittedCall(message, OpenClaim(1, timezone.now(), 6), (f"place:{number}",), float("inf"))


async def beside_a_round_that_is_not_full() -> None:
    slow = Slow(concurrency=2, batch=5)
    job: Any = SimpleNamespace(adapter=slow, letter=lambda m: Letter(m.reference, m.recipient, "", ""))
    stored: list[int] = []

    async def write(answers: list[Any], permits: list[str]) -> None:
        stored.extend(call.message.id for call, _ in answers)

    pool = CallPool(job, write)
    assert pool.free == pool.size == 10
    serving = asyncio.create_task(pool.run())
    pool.submit([ticket(0)], {})
    assert pool.free == 9, "nobody has begun"
    async with asyncio.timeout(60):
        await slow.began.wait()
    assert slow.rounds == [1] and pool.free == 5, "only the other connection can call at once"
    pool.submit([ticket(number) for number in range(1, 6)], {})
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


async def large_letters() -> None:
    slow = Slow(concurrency=1, batch=6)
    slow.over.set()
    sizes = [CALL_SIZE // 4, CALL_SIZE // 4, CALL_SIZE // 2, 2 * CALL_SIZE, 10, 10]
    files = [(Attachment("a.pdf", "application/pdf", bytes(size)),) for size in sizes]
    job: Any = SimpleNamespace(
        adapter=slow, letter=lambda m: Letter(m.reference, m.recipient, "", "", attachments=files[m.id])
    )
    stored: list[int] = []

    async def write(answers: list[Any], permits: list[str]) -> None:
        stored.extend(call.message.id for call, _ in answers)

    pool = CallPool(job, write)
    serving = asyncio.create_task(pool.run())
    pool.submit([ticket(number) for number in range(6)], {})
    async with asyncio.timeout(60):
        while pool.in_flight:
            await pool.wait(60)
    assert slow.rounds == [2, 1, 1, 2] and stored == list(range(6))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_letters_that_are_too_large_together_go_out_in_several_calls() -> None:
    uvloop.run(large_letters())


@pytest.mark.django_db(transaction=True)
def test_a_letter_that_was_priced_and_is_found_to_be_accepted_keeps_no_other_from_being_claimed() -> None:
    """Its acceptance is learned from a delivery report, after its letter was made and before it is claimed."""
    job = taken(2, login("http://127.0.0.1:9", unit="segment"))
    type(job.campaign).objects.filter(pk=job.campaign_id).update(body="x" * 200)  # two segments
    lease = calling.started(job)
    loaded = letters.load(lease)

    async def one_after_the_other(rows: Any) -> list[list[int]]:
        by_cost, found = ByCost(loaded), []
        for number in range(2):
            await by_cost.look_ahead(rows, Scope(job.vendor_id, job.credential_id, 0), job.first_message, 1)
            need = by_cost.need(1)
            assert need.want == 2
            if number == 0:
                await ground_truth.accept(rows, [(job.first_message, "v-1", 0)])
            most, units = by_cost.fitting(need.want)
            claimed = await calling.claim(rows, job, lease, most, units=units)
            found.append([call.message.id for call in by_cost.calls(claimed, ["1", "2"], float("inf"))])
            assert not claimed.nothing_waits
        return found

    assert calling.by_sender(one_after_the_other) == [[], [job.first_message + 1]]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("gone", [False, True])
def test_a_letter_is_priced_with_its_files_and_waits_without_them(gone: bool) -> None:
    job = taken(1, login("http://127.0.0.1:9"))
    type(job.vendor).objects.filter(pk=job.vendor_id).update(
        adapter="smtp", settings={"host": "127.0.0.1", "tls": "none", "unit_kb": 10}
    )
    StoredFile.objects.create(sha256=b"x" * 32, size=30_000, content=b"x" * 30_000, asked_at=timezone.now())
    carried = {"name": "report.pdf", "content_type": "application/pdf", "to_all": not gone}
    CampaignFile.objects.create(campaign=job.campaign, file_id=b"x" * 32, **carried)
    fields = {"has_files": True, "file_fields": ["file"] if gone else []}
    type(job.campaign).objects.filter(pk=job.campaign_id).update(**fields)
    Message.objects.filter(pk=job.first_message).update(params={"file": "another.pdf"})
    loaded = letters.load(calling.started(job))

    async def look(rows: Any) -> list[Any]:
        cache = SharedRows(1)
        by_cost = ByCost(loaded, AttachmentCache(cache))
        await by_cost.look_ahead(rows, Scope(job.vendor_id, job.credential_id, 0), job.first_message, 1)
        await cache.close(float("inf"))
        need = by_cost.need(1)
        return [need.want, next(iter(by_cost._ahead)).letter]

    want, letter = calling.by_sender(look)
    if gone:
        assert want == 0 and letter.code == "unsendable"
    else:
        assert want == 5 and letter.attachments == (), "40,000 bytes in base64 and the texts begin the fifth ten"
