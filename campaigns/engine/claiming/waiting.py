"""The queue of streams that wait for permits and a claim."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from campaigns.engine.claiming.claims import Claimed, Claimer, ToClaim
from campaigns.engine.claiming.contexts import FIND_OUT
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.threads import wait_for_event
from vendors.limits.values import Lost, Never, Paused, ReceiversFull, Scope, Skewed, SponsorShare, Wait

# Other processes wait for the same opening. A random delay keeps any one of them from always being first. It also keeps
# them from asking just before a call in flight has ended, the earliest moment at which the window can open.
SPREAD = 0.01  # share of the remaining time
BLIND = 2 * FIND_OUT  # seconds after which a group asks anyway, as another process may have returned permits


def _nothing_more(asked: int) -> int:
    return 0


def _unnoted() -> None:
    pass


@dataclass(frozen=True, slots=True)
class WantedClaim:
    """The request of a stream. served: the time of its last permits (seconds of time.monotonic).

    most: returns how many messages it can call; called at the start of its round. more: how many it could call next,
    given how many it asks for now. note_bound: called when a limit makes it wait. allowed: called just before the
    claim; if it returns False, nothing is claimed for the stream. probe: the number of the probe that the stream has
    taken of a braked credential (vendors/condition/brake.py). The other fields are those of claims.ToClaim.
    """

    lease: Lease
    cursor: int
    end: int
    closes: datetime | None
    claimer: Claimer
    served: float
    most: Callable[[], int]
    allowed: Callable[[], bool]
    destination: int | None = None
    probe: int | None = None
    more: Callable[[int], int] = _nothing_more
    note_bound: Callable[[], None] = _unnoted

    def make_to_claim(self, permits: int) -> ToClaim:
        most, units = self.claimer.fit_messages(permits)
        receivers = self.claimer.receivers()
        return ToClaim(self.lease, self.cursor, self.end, most, self.closes, units, self.destination, receivers)


class Permitted(NamedTuple):
    """The claimed messages, with a permit for each of their units. deadline: of the grant."""

    lease: Lease
    claimed: Claimed
    permits: Sequence[str]
    deadline: float


class NotGranted(NamedTuple):
    """The reason for not granting permits. until: when to take up again a stream that does not want to wait."""

    why: Wait | ReceiversFull | Paused | Never | Lost | Skewed
    until: datetime | None = None


Answer = Permitted | NotGranted


@dataclass(slots=True, eq=False)
class Waiting:
    """A stream in the queue. until: the moment to leave and check its own state (seconds of time.monotonic)."""

    ask: WantedClaim
    share: SponsorShare
    answer: "asyncio.Future[Answer]"
    until: float

    def tell_result(self, came: Answer | Exception) -> None:
        if self.answer.cancelled():
            return
        if isinstance(came, Exception):
            self.answer.set_exception(came)
        else:
            self.answer.set_result(came)


@dataclass(slots=True)
class Group:
    """Streams that need the same `terms` to hold when their claim commits. The keys are parameters of claims.CLAIM.

    name: the same one for each group of these terms in the process. turns: the name under which the throttle knows who
    waits for several permits together; empty if nobody here does. floor: percent of the permits for each lower class.
    rounds: the number under way; gathering: one of them is about to take the waiting streams. opens: nothing is granted
    before then (seconds of time.monotonic); sooner: set when that changes.
    """

    scope: Scope
    hold: float
    terms: dict[str, Any]
    name: str
    turns: str
    floor: int
    waiting: list[Waiting] = field(default_factory=list)
    rounds: int = 0
    gathering: bool = False
    opens: float = 0.0
    sooner: asyncio.Event = field(default_factory=asyncio.Event)

    def take_streams(self, most: int) -> list[Waiting]:
        """Take this many streams out of the queue: the first one of each sponsor before the second of any.

        A sponsor's streams come in the order of their last permit, the oldest first.
        """
        self.waiting.sort(key=lambda one: one.ask.served)
        if len(self.waiting) > most:
            before, places = Counter[SponsorShare](), list[int]()
            for one in self.waiting:
                places.append(before[one.share])
                before[one.share] += 1
            order = sorted(range(len(places)), key=places.__getitem__)
            self.waiting = [self.waiting[number] for number in order]
        together = self.waiting[:most]
        del self.waiting[:most]
        return together

    def closed_for(self, seconds: float) -> None:
        """Record that the throttle grants nothing for this long."""
        self.opens = time.monotonic() + min(seconds, BLIND) * random.uniform(1, 1 + SPREAD)

    def open_group(self) -> None:
        """Record that permits may be granted now."""
        self.opens = 0.0
        self.sooner.set()

    async def wait_until_open(self) -> None:
        while (left := self.opens - time.monotonic()) > 0:
            self.sooner.clear()
            await wait_for_event(self.sooner, max(left, 0.001))

    def queue_again(self, waiting: Waiting) -> None:
        """Requeue a stream that received nothing, unless its time is over or it no longer may claim."""
        try:
            stays = time.monotonic() < waiting.until and waiting.ask.allowed()
        except Exception as error:
            waiting.tell_result(error)
        else:
            if not stays:
                waiting.tell_result(NotGranted(Wait(0.0)))
            elif not waiting.answer.cancelled():
                self.waiting.append(waiting)

    def end_wait(self, waiting: Waiting) -> None:
        """End the stream's wait, unless a round is under way for it."""
        if waiting in self.waiting:
            self.waiting.remove(waiting)
            waiting.tell_result(NotGranted(Wait(0.0)))
