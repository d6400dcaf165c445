"""Claims where receiving domains wait or have limits: messages of others overtake those that have to wait.

The claimer reads ids and addresses ahead of the calls, sorts them by receiver and claims by id. So a receiver that
waits holds up no other. Each message that it has read is claimed at most once in a pass, because its id leaves the
queue with the claim and nothing is read twice. A vendor without waiting receivers never comes here.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, pairwise
from typing import Any, NamedTuple

from campaigns.engine.claiming.claims import Claimed, PermittedCall
from campaigns.engine.claiming.contexts import SendContext
from campaigns.engine.claiming.limits import Need
from vendors.limits.values import Scope
from vendors.receivers import OTHERS, domain_of, known_groups, waiting_part

READ_AT_ONCE = 1_000
HELD_MOST = 20_000  # ids that wait in the memory of a stream; behind them nobody overtakes
PROBE_EVERY = 1.0  # seconds between the calls of a stream to a receiver whose wait is over, until it accepts one
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
    """A message that was read ahead, with its receiver."""

    id: int
    receiver: str


class ByReceiver:
    """A claimer for one pass over a job. position: no message before it is queued, or unread."""

    def __init__(self, cursor: int, end: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._read_to, self._end, self._clock = cursor, end, clock
        self._queues: dict[str, deque[Queued]] = {}  # by receiver that is told apart; "": all others
        self._opens: Mapping[str, float] = {}  # seconds of the clock at which a receiver's wait ends
        self._probed: dict[str, float] = {}
        self._next: list[Queued] = []
        self._asked: dict[int, str] = {}
        self._doubtful = False  # some that are queued may wait no more
        self._held: frozenset[str] = frozenset()  # groups of receivers that a person has to let go on
        self._passed: dict[str, int] = {}  # the first message passed over for each of them

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
        apart = opens.keys() != self._opens.keys() or not context.held <= self._held
        self._opens, self._held = opens, context.held
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
            self._queue(Queued(id, waiting_part(domain_of(recipient))) for id, recipient in rows)
            self._next = self._callable(most)

    def need(self, most: int) -> Need:
        self._next = self._next[:most]
        return Need(len(self._next), 1)

    def fitting(self, units: int) -> tuple[int, dict[int, int] | None]:
        self._asked = {one.id: self._name(one) for one in self._next[:units]}
        return len(self._asked), dict.fromkeys(self._asked, 1)

    def calls(self, claimed: Claimed, permits: Sequence[str], latest: float) -> list[PermittedCall]:
        if claimed.claim is None:
            self._doubtful = True
            return []
        now = self._clock()
        for id, name in self._asked.items():  # the first of their queues; one that was not claimed waits no more
            assert self._queues[name][0].id == id, "claims take the first of each queue"
            self._queues[name].popleft()
            if name:
                self._probed[name] = now
        self._next, self._asked, claim = [], {}, claimed.claim
        pairs = zip(claimed.messages, permits, strict=False)
        return [PermittedCall(one, claim, (permit,), latest) for one, permit in pairs]

    def next_cursor(self, calls: Sequence[PermittedCall], end: int) -> int:
        return self.position

    def note(self, cursor: int, end: int, want: int) -> str:
        """Return the ids as ranges, each with its negative length: all of a range may be called, none besides."""
        return " ".join(f"{first} {last + 1} {first - last - 1}" for first, last in _runs(self._next))

    def _name(self, one: Queued) -> str:
        return one.receiver if one.receiver in self._opens else ""

    def _queue(self, found: Iterable[Queued]) -> None:
        for one in found:
            if self._held and (group := held_by(one.receiver, self._held)):
                self._passed[group] = min(one.id, self._passed.get(group, one.id))
            else:
                self._queues.setdefault(self._name(one), deque()).append(one)

    def _opening(self, name: str) -> float:
        if not name:
            return 0.0
        return max(
            self._opens.get(name, 0.0), self._probed.get(name, 0.0) + PROBE_EVERY if name in self._probed else 0.0
        )

    def _callable(self, most: int) -> list[Queued]:
        """Return the first messages whose receivers may be called, one of each receiver that is probed."""
        now = self._clock()
        queues = [
            islice(queue, 1 if name else most)
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
