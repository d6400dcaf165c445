"""Claims where receiving domains wait or have limits: messages of others overtake those that have to wait.

The claimer reads ids and addresses ahead of the calls, sorts them by receiver and claims by id. So a receiver that
waits holds up no other. Each message that it has read is claimed at most once in a pass, because its id leaves the
queue with the claim and nothing is read twice. A vendor whose receivers neither wait nor have limits never comes here.

Receivers with limits have windows of their own in the throttle, of the same kind as the vendor's. Their permits are
asked for first, for all receivers at once; then the vendor's, for as many messages. A message is called with both. What
is left over goes back.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, pairwise
from typing import Any, NamedTuple

from campaigns.engine.claiming.claims import Claimed, OpenClaim, PermittedCall
from campaigns.engine.claiming.contexts import SendContext
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.engine.claiming.limits import Need
from vendors.limits.values import AcquireResult, Grant, Never, Paused, Scope, Wait
from vendors.receivers import OTHERS, domain_of, group_of, known_groups, waiting_part

READ_AT_ONCE = 1_000
HELD_MOST = 20_000  # ids that wait in the memory of a stream; behind them nobody overtakes
PROBE_EVERY = 1.0  # seconds between the calls of a stream to a receiver whose wait is over, until it accepts one
FULL_LEAST = 0.05  # seconds; calls under way may end at once, but asking all the time frees no place
FULL_MOST = 60.0  # seconds until a receiver whose limit is 0 is looked at again
HELD_LONGER = 10.0  # seconds that a receiver's permit is held longer than the vendor's, which is asked for later
RUNS_MOST = 60  # ranges of ids in the note of a grant

ADDRESSES = """
SELECT m.id, m.recipient FROM campaigns_message m
WHERE m.id >= %(after)s AND m.id < %(end)s AND m.dequeued_at IS NULL
    AND (m.call_after IS NULL OR m.call_after <= clock_timestamp())
ORDER BY m.id LIMIT %(most)s
"""
STILL_WAITING = """
SELECT m.id FROM campaigns_message m
WHERE m.id = ANY(%(ids)s) AND m.dequeued_at IS NULL AND (m.call_after IS NULL OR m.call_after <= clock_timestamp())
"""


class Queued(NamedTuple):
    """A message that was read ahead. receiver: what waits together with it; group: what has limits together with it."""

    id: int
    receiver: str
    group: str


Acquire = Callable[[str, int], Awaitable[AcquireResult]]
"""Asks for so many permits of a receiver's own window."""


class ByReceiver:
    """A claimer for one pass over a job. position: none before it is queued or unread. lasts: seconds of a call."""

    def __init__(self, cursor: int, end: int, lasts: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._read_to, self._end, self._lasts, self._clock = cursor, end, lasts, clock
        self._queues: dict[str, deque[Queued]] = {}  # by receiver that is told apart; "": all others
        self._opens: Mapping[str, float] = {}  # seconds of the clock at which a receiver's wait ends
        self._probed: dict[str, float] = {}
        self._next: list[Queued] = []
        self._asked: dict[int, Queued] = {}
        self._doubtful = False  # some that are queued may wait no more
        self._held: frozenset[str] = frozenset()  # groups of receivers that a person has to let go on
        self._passed: dict[str, int] = {}  # the first message passed over for each of them
        self._limits: Mapping[str, Any] = {}  # as Scope.receivers
        self._full: dict[str, float] = {}  # seconds of the clock before which a receiver's window has no place
        self._granted: dict[str, Grant] = {}
        self._places: dict[str, list[str]] = {}  # of these grants, unused so far

    @property
    def position(self) -> int:
        heads = [queue[0].id for queue in self._queues.values() if queue]
        return min((*heads, *self._passed.values()), default=self._read_to)

    @property
    def queued(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def is_ready(self) -> bool:
        """Whether one of the queued messages may be called now."""
        return bool(self._next)

    @property
    def passed(self) -> list[str]:
        """The groups of receivers whose messages were passed over."""
        return sorted(self._passed)

    @property
    def asks_for_pass(self) -> bool:
        """Whether messages were passed over that nothing holds any more. Only a new pass finds them."""
        return not self._passed.keys() <= self._held

    def see(self, context: SendContext) -> None:
        """Take over the receivers that wait, those whose wait is over but that have accepted nothing since, and holds.

        A hold may last for days and for any number of messages, so they are passed over and not kept.
        """
        opens = {name: context.monotonic_of(until) for name, until in context.receivers.items()}
        limits = context.scope.receivers
        apart = opens.keys() != self._opens.keys() or limits.keys() != self._limits.keys()
        apart = apart or not context.held <= self._held
        if limits != self._limits:
            self._full = {}
        self._opens, self._limits, self._held = opens, limits, context.held
        if apart:
            found = sorted(one for queue in self._queues.values() for one in queue)
            self._queues = {}
            self._queue(found)

    def opens_at(self) -> tuple[str, float] | None:
        """Return the receiver that may be called next, and when (seconds of the clock); None: nobody is queued."""
        times = [(self._opening(name), name) for name, queue in self._queues.items() if queue]
        if not times:
            return None
        at, name = min(times)
        return name, at

    async def look_ahead(self, connection: Any, scope: Scope, cursor: int, most: int) -> None:
        """Read on until `most` messages may be called, or the end is reached, or too many are held."""
        if self._doubtful:
            await self._drop_ended(connection)
        self._next = self._callable(most)
        while len(self._next) < most and self._read_to < self._end and self.queued < HELD_MOST:
            params = {"after": self._read_to, "end": self._end, "most": max(most, READ_AT_ONCE)}
            rows = await (await connection.execute(ADDRESSES, params)).fetchall()
            self._read_to = rows[-1][0] + 1 if len(rows) == params["most"] else self._end
            self._queue(_queued(id, domain_of(recipient)) for id, recipient in rows)
            self._next = self._callable(most)

    async def take_permits(self, acquire: Acquire) -> AcquireResult | None:
        """Ask for permits of receivers with limits, and keep only messages that have one or need none.

        Returns Lost or Skewed if a window cannot be used; then nothing is claimed.
        """
        self._places, self._granted = {}, {}  # those of before a rebuild are no permits any more
        wanted = Counter(one.group for one in self._next if one.group in self._limits)
        answers = await asyncio.gather(*(acquire(group, units) for group, units in wanted.items()))
        failed: AcquireResult | None = None
        for group, answer in zip(wanted, answers, strict=True):
            match answer:
                case Grant():
                    self._granted[group], self._places[group] = answer, answer.places()
                    if answer.more_after:
                        self._full[group] = self._clock() + max(answer.more_after, FULL_LEAST)
                case Wait(seconds):
                    self._full[group] = self._clock() + max(seconds, FULL_LEAST)
                case Paused() | Never():
                    self._full[group] = self._clock() + FULL_MOST
                case _:
                    failed = answer
        left = {group: len(self._places.get(group, ())) for group in wanted}
        chosen = []
        for one in self._next:
            if one.group in left:
                left[one.group] -= 1
                if left[one.group] < 0:
                    continue
            chosen.append(one)
        self._next = [] if failed else chosen
        return failed

    def unused(self) -> dict[str, list[str]]:
        """Return the receivers' permits under which nothing is called, and forget them."""
        unused, self._places, self._granted = self._places, {}, {}
        return {group: places for group, places in unused.items() if places}

    def need(self, most: int) -> Need:
        self._next = self._next[:most]
        return Need(len(self._next), 1)

    def fitting(self, units: int) -> tuple[int, dict[int, int] | None]:
        self._asked = {one.id: one for one in self._next[:units]}
        return len(self._asked), dict.fromkeys(self._asked, 1)

    def receivers(self) -> Mapping[str, int] | None:
        return Counter(one.group for one in self._asked.values() if one.group in self._limits) or None

    def calls(self, claimed: Claimed, permits: Sequence[str], latest: float) -> list[PermittedCall]:
        if claimed.claim is None:
            self._doubtful = True
            return []
        now = self._clock()
        for id, one in self._asked.items():  # the first of their queues; one that was not claimed waits no more
            name = self._name(one)
            assert self._queues[name][0].id == id, "claims take the first of each queue"
            self._queues[name].popleft()
            if name in self._opens:
                self._probed[name] = now
        asked, self._next, self._asked = self._asked, [], {}
        pairs = zip(claimed.messages, permits, strict=False)
        return [self._call(asked[one.id].group, one, claimed.claim, permit, latest) for one, permit in pairs]

    def _call(self, group: str, message: ClaimedMessage, claim: OpenClaim, permit: str, latest: float) -> PermittedCall:
        if group not in self._granted:
            return PermittedCall(message, claim, (permit,), latest)
        latest = min(latest, self._granted[group].deadline - self._lasts)
        return PermittedCall(message, claim, (permit,), latest, None, group, self._places[group].pop())

    def next_cursor(self, calls: Sequence[PermittedCall], end: int) -> int:
        return self.position

    def note(self, cursor: int, end: int, want: int) -> str:
        """Return the ids as ranges, each with its negative length: all of a range may be called, none besides."""
        return " ".join(f"{first} {last + 1} {first - last - 1}" for first, last in _runs(self._next))

    def _name(self, one: Queued) -> str:
        if one.receiver in self._opens:
            return one.receiver
        return one.group if one.group in self._limits else ""

    def _queue(self, found: Iterable[Queued]) -> None:
        for one in found:
            if self._held and (group := held_by(one.receiver, self._held)):
                self._passed[group] = min(one.id, self._passed.get(group, one.id))
            else:
                self._queues.setdefault(self._name(one), deque()).append(one)

    def _opening(self, name: str) -> float:
        if not name:
            return 0.0
        probe = self._probed.get(name, -PROBE_EVERY) + PROBE_EVERY if name in self._opens else 0.0
        return max(self._opens.get(name, 0.0), probe, self._full.get(self._queues[name][0].group, 0.0))

    def _callable(self, most: int) -> list[Queued]:
        """Return the first messages whose receivers may be called, one of each receiver that is probed."""
        now = self._clock()
        queues = [
            islice(queue, 1 if name in self._opens else most)
            for name, queue in self._queues.items()
            if queue and self._opening(name) <= now
        ]
        return list(islice(merge(*queues), most))

    async def _drop_ended(self, connection: Any) -> None:
        """Drop queued messages that wait no more, such as those that a delivery report has ended."""
        ids = [one.id for queue in self._queues.values() for one in queue]
        rows = await (await connection.execute(STILL_WAITING, {"ids": ids})).fetchall()
        left = {id for (id,) in rows}
        self._queues = {name: deque(one for one in queue if one.id in left) for name, queue in self._queues.items()}
        self._doubtful = False


def held_by(receiver: str, held: Collection[str]) -> str:
    """Return the group by which a receiver is held, or "". receiver: as of `waiting_part`."""
    group = receiver if receiver in known_groups() else OTHERS
    return group if group in held else ""


def _queued(id: int, domain: str) -> Queued:
    return Queued(id, waiting_part(domain), group_of(domain))


def _runs(chosen: Sequence[Queued]) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive ids; beyond RUNS_MOST the last one covers all the rest."""
    if not chosen:
        return
    first, number = chosen[0].id, 1
    for one, other in pairwise(chosen):
        if other.id != one.id + 1 and number < RUNS_MOST:
            yield first, one.id
            first, number = other.id, number + 1
    yield first, chosen[-1].id
