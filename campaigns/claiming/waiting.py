"""Streams that wait for permits and a claim in one queue, until when nothing can be granted, and who waits for whom."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from campaigns.claiming.claims import Claimed, Claimer, ToClaim
from campaigns.claiming.contexts import FIND_OUT
from campaigns.claiming.letters import Lease
from campaigns.threads import happens
from vendors.limits.values import Lost, Never, Paused, Scope, Skewed, Wait

# Other processes wait for the same opening: none of them shall always be the first one, nor all of them ask just before
# a call in flight has ended, which is when it may open at the earliest.
SPREAD = 0.01  # of the time until then
BLIND = 2 * FIND_OUT  # seconds after which all are asked for anyway: another process may have given permits back


@dataclass(frozen=True, slots=True)
class WantedClaim:
    """What a stream asks for. served: when it was last given permits, in seconds of time.monotonic.

    most: how many messages it can call; it is called when its round begins. allowed: called just before the claim;
    False: nothing is claimed for it. The others are those of claims.ToClaim.
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

    def asked(self, permits: int) -> ToClaim:
        most, units = self.claimer.fitting(permits)
        return ToClaim(self.lease, self.cursor, self.end, most, self.closes, units, self.destination)


class Permitted(NamedTuple):
    """What was claimed, and a permit for each unit of it. deadline: of the grant."""

    lease: Lease
    claimed: Claimed
    permits: Sequence[str]
    deadline: float


class NotGranted(NamedTuple):
    """Why there are no permits. until: a stream that does not want to wait may be taken again then."""

    why: Wait | Paused | Never | Lost | Skewed
    until: datetime | None = None


Answer = Permitted | NotGranted


@dataclass(slots=True, eq=False)
class Waiting:
    """A stream in the queue. until: in seconds of time.monotonic; then it looks again whether it is to go on."""

    ask: WantedClaim
    answer: "asyncio.Future[Answer]"
    until: float

    def tell(self, came: Answer | Exception) -> None:
        if self.answer.cancelled():
            return
        if isinstance(came, Exception):
            self.answer.set_exception(came)
        else:
            self.answer.set_result(came)


@dataclass(slots=True)
class Group:
    """Streams for which the same must hold when the claim commits: `terms`, as claims.CLAIM names them.

    turns: by which name the throttle knows who waits for several permits at once; empty: nobody here does.
    rounds: how many are on their way; gathering: one of them is about to take those that wait. opens: before that
    nothing is granted, in seconds of time.monotonic; sooner: it has changed.
    """

    scope: Scope
    hold: float
    terms: dict[str, Any]
    turns: str
    waiting: list[Waiting] = field(default_factory=list)
    rounds: int = 0
    gathering: bool = False
    opens: float = 0.0
    sooner: asyncio.Event = field(default_factory=asyncio.Event)

    def closed_for(self, seconds: float) -> None:
        """The throttle grants nothing for so long."""
        self.opens = time.monotonic() + min(seconds, BLIND) * random.uniform(1, 1 + SPREAD)

    def open(self) -> None:
        """Something may be granted now."""
        self.opens = 0.0
        self.sooner.set()

    async def opening(self) -> None:
        while (left := self.opens - time.monotonic()) > 0:
            self.sooner.clear()
            await happens(self.sooner, max(left, 0.001))

    def queue_again(self, waiting: Waiting) -> None:
        """It was given nothing: it stays in the queue unless it is to look after itself."""
        try:
            stays = time.monotonic() < waiting.until and waiting.ask.allowed()
        except Exception as error:
            waiting.tell(error)
        else:
            if not stays:
                waiting.tell(NotGranted(Wait(0.0)))
            elif not waiting.answer.cancelled():
                self.waiting.append(waiting)

    def let_go(self, waiting: Waiting) -> None:
        """Ends its waiting, unless a round is on its way for it."""
        if waiting in self.waiting:
            self.waiting.remove(waiting)
            waiting.tell(NotGranted(Wait(0.0)))


class GroupCommit:
    """Streams of a process that wait a moment for each other: one commit stores the answers of all, one claims for all.

    A stream takes part that calls over more than half of its connections, quickly. If the others have waited for it
    in vain, it takes no part until nothing of it is in flight: a call that hangs holds them up once.
    """

    def __init__(self) -> None:
        self._calling, self._storing = set[object](), set[object]()
        self._answered, self._stored = asyncio.Event(), asyncio.Event()
        self._tell()

    def begin(self, stream: object) -> None:
        """Its calls start; nothing of it was in flight."""
        self._calling.add(stream)
        self._answered.clear()
        self._stored.clear()

    def answered(self, stream: object) -> None:
        """All its calls are answered."""
        if stream in self._calling:
            self._calling.remove(stream)
            self._storing.add(stream)
            self._tell()

    def end(self, stream: object) -> None:
        """Nothing of it is in flight any more, or the stream has ended."""
        self._calling.discard(stream)
        self._storing.discard(stream)
        self._tell()

    async def all_answered(self, seconds: float) -> None:
        """Waits until no call is on its way, at most so long."""
        if not self._answered.is_set() and not await happens(self._answered, seconds):
            self._calling.clear()
            self._tell()

    async def all_stored(self, seconds: float) -> None:
        """Waits until nothing is in flight, at most so long."""
        if not self._stored.is_set() and not await happens(self._stored, seconds):
            self._calling.clear()
            self._storing.clear()
            self._tell()

    def _tell(self) -> None:
        if not self._calling:
            self._answered.set()
            if not self._storing:
                self._stored.set()
