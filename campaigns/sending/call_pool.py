"""The connections of one sender: who is in a call, what came back, and the writing down of it.

A message takes up room from its claim until its result is stored, so that a kill leaves at most `size` in doubt.
A slow answer holds up its own place only.

Equal refusals at the start of a job: they speak of us, not of so many recipients one after the other.

Counted from the job's first answer until the vendor accepts one of its messages, over all of its senders. What a person
has resumed after is not counted again.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from campaigns import failpoints
from campaigns.claiming.claims import LeasedJob, PermittedCall, letters_in_turn
from campaigns.sending.recording import CallResult
from vendors.adapters.base import Letter
from vendors.adapters.transport import Deadlines
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

OURS = frozenset({"template", "too_dear", "unsendable"})  # refused before the call
OF_ONE = re.compile(r"5\.[12]\.")  # RFC 3463: the recipient's address or mailbox

SO_FAR = """
SELECT j.accepted > 0, o.error_code, coalesce(o.error_sub_type, '')
FROM campaigns_job j LEFT JOIN LATERAL (
    SELECT error_code, error_sub_type FROM campaigns_opsmessage
    WHERE j.accepted = 0 AND id >= j.first_message AND id < j.first_message + j.size AND job_id = j.id
        AND error_code IS NOT NULL AND delivered_at > coalesce(j.refusals_from, '-infinity')
    ORDER BY delivered_at DESC, id DESC LIMIT %(most)s
) o ON true WHERE j.id = %(job)s
"""


class EqualRefusals:
    """Of one job. most: so many in a row are too many; 0: any number is borne. over: nothing is counted any more.

    waiting: good answers of which it is not decided yet whether they speak for the vendor's health after all.
    """

    def __init__(self, most: int) -> None:
        self._most, self.over = most, not most
        self._last: Refused | None = None
        self._length = self.waiting = 0

    async def read(self, connection: Any, job_id: int) -> None:
        """What the job's earlier senders heard."""
        if self.over:
            return
        cursor = await connection.execute(SO_FAR, {"job": job_id, "most": self._most})
        for accepted, code, sub_type in reversed(await cursor.fetchall()):
            self.over = self.over or accepted
            if code is not None:
                self.note(Refused(code, sub_type))

    @property
    def too_many(self) -> bool:
        return not self.over and self._length >= self._most

    def note(self, outcome: Outcome) -> bool:
        """Does this answer belong to a row of equal refusals?"""
        if isinstance(outcome, Accepted):
            self.over = True
        if self.over or not isinstance(outcome, Refused) or outcome.code in OURS or OF_ONE.match(outcome.sub_type):
            return False
        if outcome != self._last:
            self._last, self._length = outcome, 0
        self._length += 1
        return True

    def said(self) -> NotSent:
        """What that many of them mean."""
        assert self._last is not None
        words = f"{self._last.code} {self._last.sub_type}".strip()
        reason = f"{self._length} messages in a row were refused with the same words: {words}: check the account"
        return NotSent(reason, scope="credential", pause=True)


log = logging.getLogger(__name__)

Write = Callable[[list[CallResult], list[str]], Awaitable[None]]


Said = NotSent | InDoubt


def heavier(one: Said | None, other: Said) -> Said:
    """Of two things that a vendor said to everybody, the one that holds longer: a pause, a stated wait, any."""

    def weight(said: Said) -> tuple[bool, float]:
        wait = said.retry_after if isinstance(said, NotSent) else None
        return said.pause, -1.0 if wait is None else wait

    return other if one is None or weight(other) >= weight(one) else one


class CallPool:
    """Runs the calls. `write(answers, places)` stores what came of them, in batches.

    A place whose letter was not called after all counts as used, as it does in the ledger.
    """

    def __init__(self, work: LeasedJob, write: Write) -> None:
        self.size = work.adapter.concurrency * work.adapter.capabilities.batch_max
        self.taken = 0
        self._busy = 0  # connections in a call
        self.refusal: Said | None = None  # the vendor could not be called, or asked everybody to wait
        self.good = 0  # answers since then
        self.not_sent = 0  # messages that went back to waiting, and may go at once
        self.put_off = 0  # those that have to wait for a time of their own
        self.refusals = EqualRefusals(settings.EQUAL_REFUSALS)
        self.well = self.ill = 0  # answers that speak for or against the vendor's health, not told yet
        self.trouble = ""  # what the last one against it said, without to whom it was
        self._work, self._write = work, write
        self._deadlines = Deadlines(work.adapter.deadline)
        self._tickets: asyncio.Queue[PermittedCall] = asyncio.Queue()
        self._answers: list[CallResult] = []
        self._places: list[str] = []
        self._answered, self._freed = asyncio.Event(), asyncio.Event()

    @property
    def free(self) -> int:
        """For no more than can be called at once: beside a round that is not full, places would grow too old."""
        adapter = self._work.adapter
        idle = (adapter.concurrency - self._busy) * adapter.capabilities.batch_max
        return min(self.size - self.taken, max(0, idle - self._tickets.qsize()))

    def enter(self, tickets: list[PermittedCall]) -> None:
        self.taken += len(tickets)
        for ticket in tickets:
            self._tickets.put_nowait(ticket)

    async def wait(self, seconds: float) -> None:
        """Until somebody leaves, at most `seconds`."""
        self._freed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._freed.wait()
        except TimeoutError:
            pass

    async def serve(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record())
            for _ in range(self._work.adapter.concurrency):
                group.create_task(self._calls())

    async def _calls(self) -> None:
        tickets, most = self._tickets, self._work.adapter.capabilities.batch_max
        while True:
            batch = [await tickets.get()]
            while len(batch) < most and not tickets.empty():
                batch.append(tickets.get_nowait())
            self._busy += 1
            await self._call(batch)
            self._busy -= 1

    async def _call(self, batch: list[PermittedCall]) -> None:
        letters: list[Letter] = []
        called: list[PermittedCall] = []
        made = [one.letter for one in batch if one.letter] if batch[0].letter else []  # all are, or none
        made = made or await letters_in_turn(self._work, [one.message for one in batch])
        now = time.monotonic()
        for ticket, letter in zip(batch, made, strict=True):
            if isinstance(letter, Letter) and now <= ticket.latest:
                letters.append(letter)
                called.append(ticket)
            elif isinstance(letter, Letter):
                self._leave(ticket, NotSent("its place was too old to start a call"), called=False)
            else:
                self._leave(ticket, letter, called=False)
        if not called:
            return
        for ticket, outcome in zip(called, await self._outcomes(letters), strict=True):
            self._leave(ticket, outcome, called=True)

    async def _outcomes(self, letters: list[Letter]) -> list[Outcome]:
        adapter = self._work.adapter
        try:
            with self._deadlines:
                failpoints.here("before_call")
                outcomes = await adapter.send(letters)
                failpoints.here("after_call")
                return outcomes
        except TimeoutError:
            return [InDoubt("no answer before the deadline")] * len(letters)
        except Exception as error:  # an adapter's mistake must not be taken for an answer
            log.exception("the adapter failed in a call")
            return [InDoubt(f"{type(error).__name__} in the adapter")] * len(letters)

    def _leave(self, ticket: PermittedCall, outcome: Outcome, *, called: bool) -> None:
        self._places.extend(ticket.places)
        self._answers.append((ticket.message.id, outcome))
        if called:
            self._count(outcome, ticket.message.recipient)
        if isinstance(outcome, NotSent):
            self._not_sent(outcome, called=called)
        elif called and isinstance(outcome, InDoubt) and outcome.pause:
            self.refusal = heavier(self.refusal, outcome)
        elif called:
            self.good += 1
        self._answered.set()

    def _not_sent(self, outcome: NotSent, *, called: bool) -> None:
        if outcome.puts_off:
            self.put_off += 1
            return
        self.not_sent += 1
        if called and (outcome.pause or outcome.scope == "credential" or outcome.retry_after is None):
            self.refusal = heavier(self.refusal, outcome)

    def settle_health(self) -> None:
        """No more answers come in: what is not decided yet speaks for the vendor."""
        self.well += self.refusals.waiting
        self.refusals.waiting = 0

    def _count(self, outcome: Outcome, recipient: str) -> None:
        good = self._work.adapter.is_good(outcome)
        if not self.refusals.over and self.refusals.note(outcome):
            self.refusals.waiting += good is True
            good = None if good else good
            if self.refusals.too_many:
                self.ill += self.refusals.waiting
                self.refusals.waiting = 0
                self.refusal = heavier(self.refusal, self.refusals.said())
        elif self.refusals.waiting and isinstance(outcome, Accepted):
            self.settle_health()
        self.well += good is True
        self.ill += good is False
        if good is False and isinstance(outcome, NotSent | InDoubt):
            self.trouble = _without(recipient, outcome.reason)

    async def _record(self) -> None:
        while True:
            await self._answered.wait()
            self._answered.clear()
            answers, self._answers = self._answers, []
            places, self._places = self._places, []
            await self._write(answers, places)
            self.taken -= len(answers)
            self._freed.set()


def _without(recipient: str, words: str) -> str:
    """Vendors' words often repeat the address, or what stands before its @."""
    for told in (recipient, recipient.partition("@")[0]):
        if len(told) > 2:
            words = re.sub(re.escape(told), "…", words, flags=re.IGNORECASE)
    return words
