"""Claims for vendors with receiving domains that wait or have limits: other domains' messages overtake theirs.

The claimer reads ids and addresses ahead of the calls, sorts them by receiver and claims by id. So a receiver that
waits delays no other. Each message is claimed at most once in a pass: its id leaves the queue with the claim, and no
message is read twice. A vendor whose receivers neither wait nor have limits never comes here.

Receivers with limits have windows of their own in the throttle, of the same kind as the vendor's. One question asks for
places in all of them: a message gets its places everywhere or nowhere. The claimer asks again for messages left over
when their receiver has room. Where letters differ in cost, the next ones are made and priced first.
"""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, pairwise
from typing import Any, NamedTuple

from campaigns.engine.claiming.claims import Claimed, PermittedCall, ToClaim
from campaigns.engine.claiming.contexts import SendContext
from campaigns.engine.claiming.letters import ClaimedMessage
from campaigns.engine.claiming.limits import Need
from campaigns.engine.claiming.pricing import Priced, Pricing, refuse_too_dear
from vendors.limits.values import AcquireResult, Grant, ReceiversFull, Scope
from vendors.receivers import OTHERS, domain_of, group_of, known_groups, own_domains, waiting_part

READ_AT_ONCE = 1_000
HELD_MOST = 20_000  # ids that wait in the memory of a stream; behind them nobody overtakes
PROBE_EVERY = 1.0  # seconds between the calls of a stream to a receiver whose wait is over, until it accepts one
FULL_LEAST = 0.05  # seconds; calls under way may end any moment, but constant asking frees no place
FULL_MOST = 60.0  # seconds until a receiver whose limit is 0 is looked at again
RUNS_MOST = 60  # ranges of ids in the note of a grant

ADDRESSES = """
SELECT m.id, m.recipient FROM campaigns_message m
WHERE m.id >= %(after)s AND m.id < %(end)s AND m.dequeued_at IS NULL
    AND (m.call_after IS NULL OR m.call_after <= clock_timestamp())
ORDER BY m.id LIMIT %(most)s
"""
STILL_WAITING = """
SELECT m.id, m.recipient FROM campaigns_message m
WHERE m.id = ANY(%(ids)s) AND m.dequeued_at IS NULL AND (m.call_after IS NULL OR m.call_after <= clock_timestamp())
"""
NEXT = """
SELECT m.id, m.uuid || '-' || m.resend_no, m.recipient, m.params
FROM unnest(%(ids)s::bigint[]) AS u(id)
    CROSS JOIN LATERAL (SELECT * FROM campaigns_message WHERE id = u.id OFFSET 0) m
WHERE m.dequeued_at IS NULL AND (m.call_after IS NULL OR m.call_after <= clock_timestamp()) ORDER BY m.id
"""


class Queued(NamedTuple):
    """A message read ahead. Those with the same `receiver` wait together; those with the same `group` share limits."""

    id: int
    receiver: str
    group: str


class ByReceiver:
    """A claimer for one pass over a job. position: none before it is queued or unread.

    pricing: of letters that differ in cost; None: each costs one unit.
    """

    def __init__(
        self, cursor: int, end: int, pricing: Pricing | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read_to, self._end, self._pricing, self._clock = cursor, end, pricing, clock
        self._queues: dict[str, deque[Queued]] = {}  # by each receiver told apart; "": all others
        self._opens: Mapping[str, float] = {}  # seconds of the clock at which a receiver's wait ends
        self._waits: Mapping[str, float] = {}  # as the last context had them
        self._whole = True  # no other receivers wait
        self._probed: dict[str, float] = {}
        self._next: list[Queued] = []
        self._asked: dict[int, Queued] = {}
        self._doubtful = False  # some queued ones may wait no more, or may have changed their groups
        self._domains = own_domains()
        self._held: frozenset[str] = frozenset()  # groups of receivers that a person has to let go on
        self._passed: dict[str, int] = {}  # the first message passed over for each of them
        self._limits: Mapping[str, Any] = {}  # as Scope.receivers
        self._full: dict[str, float] = {}  # seconds of the clock until a receiver's window may have a place
        self._stopped: frozenset[str] = frozenset()  # receivers with a limit of 0
        self._weighed: dict[int, Priced] = {}  # of the messages that may be called next, regardless of limits
        self._priced: dict[int, Priced] = {}  # the same under the limits of now
        self._granted: Mapping[str, int] = {}  # by receiver: units of the last grant
        self._uses: dict[int, range] = {}  # by message: which of the permits it holds

    @property
    def read_position(self) -> int:
        heads = [queue[0].id for queue in self._queues.values() if queue]
        return min((*heads, *self._passed.values()), default=self._read_to)

    @property
    def count_queued(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def is_ready(self) -> bool:
        """Whether one of the queued messages may be called now."""
        return bool(self._next)

    @property
    def passed_groups(self) -> list[str]:
        """The groups of receivers whose messages were passed over."""
        return sorted(self._passed)

    @property
    def asks_for_pass(self) -> bool:
        """Whether messages were passed over that nothing holds any more. Only a new pass finds them."""
        return not self._passed.keys() <= self._held

    def note_context(self, context: SendContext) -> None:
        """Take over the receivers that wait, those that have accepted nothing since their wait ended, and the holds.

        A hold may last for days and for any number of messages, so they are passed over and not kept. If more receivers
        wait than the context names, all others without a group are called like a single receiver after its wait.
        """
        self._doubtful |= own_domains() is not self._domains
        self._domains, opens = own_domains(), self._opens
        if context.receivers is not self._waits:
            self._waits, self._whole = context.receivers, context.receivers_known
            opens = {name: context.monotonic_of(until) for name, until in context.receivers.items()}
            if not self._whole:
                opens[OTHERS] = 0.0
        limits = context.scope.receivers
        apart = opens.keys() != self._opens.keys() or limits.keys() != self._limits.keys()
        apart = apart or not context.held <= self._held
        if limits != self._limits:
            self._full = {}
            self._stopped = frozenset(name for name in limits if context.scope.smallest_of(name) == 0)
        self._opens, self._limits, self._held = opens, limits, context.held
        if apart:
            found = sorted(one for queue in self._queues.values() for one in queue)
            self._queues = {}
            self._add_to_queues(found)

    def find_next_receiver(self) -> tuple[str, float] | None:
        """Return the receiver that may be called next, and when (seconds of the clock); None: nobody is queued."""
        times = [(self._queue_opening(name), name) for name, queue in self._queues.items() if queue]
        if not times:
            return None
        at, name = min(times)
        return name, at

    async def read_ahead(self, connection: Any, scope: Scope, cursor: int, most: int) -> None:
        """Read on until `most` messages may be called, or the end is reached, or too many are held."""
        if self._doubtful:
            await self._drop_ended(connection)
        self._next = self._callable_messages(most)
        while len(self._next) < most and self._read_to < self._end and self.count_queued < HELD_MOST:
            params = {"after": self._read_to, "end": self._end, "most": max(most, READ_AT_ONCE)}
            rows = await (await connection.execute(ADDRESSES, params)).fetchall()
            self._read_to = rows[-1][0] + 1 if len(rows) == params["most"] else self._end
            self._add_to_queues(_make_queued(id, domain_of(recipient)) for id, recipient in rows)
            self._next = self._callable_messages(most)
        if self._pricing is not None:
            await self._price_next(connection, scope, self._pricing, most)

    def need(self, most: int) -> Need:
        """Return the cost of the next messages. Those before the first one with a cost need no permit."""
        self._next, self._granted = self._next[:most], {}
        letters = [(one.group if one.group in self._limits else "", self._cost_of_one(one)) for one in self._next]
        least = letters[0][1] if letters else 0
        if not least or not any(receiver for receiver, _ in letters):
            return Need(sum(cost for _, cost in letters), least)
        return Need(sum(cost for _, cost in letters), min(cost for _, cost in letters if cost), letters)

    def note_answer(self, answer: AcquireResult) -> None:
        if isinstance(answer, Grant | ReceiversFull):
            now = self._clock()
            self._full |= {name: now + max(seconds, FULL_LEAST) for name, seconds in answer.full.items()}
        if isinstance(answer, Grant):
            self._granted = answer.receivers

    def fit_messages(self, units: int) -> tuple[int, dict[int, int] | None]:
        """Choose as the throttle has: see Throttle.acquire."""
        places, full, used = dict(self._granted), set[str](), 0
        self._asked, self._uses = {}, {}
        for one in self._next:
            cost = self._cost_of_one(one)
            if one.group in self._limits:
                if one.group in full or cost > places.get(one.group, 0):
                    full.add(one.group)
                    continue
                places[one.group] = places.get(one.group, 0) - cost
            if used + cost > units:
                break
            self._asked[one.id], self._uses[one.id] = one, range(used, used + cost)
            used += cost
        return len(self._asked), {id: len(uses) for id, uses in self._uses.items()}

    def allot_permits(
        self, asked: ToClaim, messages: Sequence[ClaimedMessage], permits: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return each message's own permits: those of a receiver count in its windows."""
        used = [number for message in messages for number in self._uses[message.id]]
        unused = sorted({*range(len(permits))}.difference(used))
        return [permits[number] for number in used], [permits[number] for number in unused]

    def receivers(self) -> Mapping[str, int] | None:
        """Return the units of each receiver with limits, also of those without any: the ledger is sure of them then."""
        if not self._limits:
            return None
        units = Counter(dict.fromkeys(self._limits, 0))
        for one in self._asked.values():
            if one.group in self._limits:
                units[one.group] += len(self._uses[one.id])
        return units

    def calls(self, claimed: Claimed, permits: Sequence[str], latest: float) -> list[PermittedCall]:
        if claimed.claim is None:
            self._doubtful = True
            return []
        now, gone = self._clock(), defaultdict[str, int](int)
        for one in self._asked.values():  # the first of their queues; an unclaimed one waits no more
            gone[self._queue_name(one)] += 1
        for name, number in gone.items():
            for _ in range(number):
                assert self._queues[name].popleft().id in self._asked, "claims take the first of each queue"
            if name in self._opens:
                self._probed[name] = now
        asked, self._next, self._asked = self._asked, [], {}
        names, calls = iter(permits), []
        for message in claimed.messages:
            group, priced = asked[message.id].group, self._priced.get(message.id)
            uses = tuple(islice(names, len(self._uses[message.id])))
            limited = group if group in self._limits else ""
            letter = priced.letter if priced else None
            calls.append(PermittedCall(message, claimed.claim, uses, latest, letter, limited))
        return calls

    def cursor_after(self, calls: Sequence[PermittedCall], end: int) -> int:
        return self.read_position

    def note(self, cursor: int, end: int, want: int) -> str:
        """Return the ids to claim as ranges without gaps: first id, id after the last, and the negative length."""
        return " ".join(f"{first} {last + 1} {first - last - 1}" for first, last in _consecutive_runs(self._next))

    def _queue_name(self, one: Queued) -> str:
        if one.receiver in self._opens:
            return one.receiver
        if one.group in self._limits or (one.group == OTHERS and not self._whole):
            return one.group
        return ""

    def _add_to_queues(self, found: Iterable[Queued]) -> None:
        for one in found:
            if self._held and (group := held_by(one.receiver, self._held)):
                self._passed[group] = min(one.id, self._passed.get(group, one.id))
            else:
                self._queues.setdefault(self._queue_name(one), deque()).append(one)

    def _queue_opening(self, name: str) -> float:
        if not name:
            return 0.0
        probe = self._probed.get(name, -PROBE_EVERY) + PROBE_EVERY if name in self._opens else 0.0
        group = self._queues[name][0].group
        full = self._clock() + FULL_MOST if group in self._stopped else self._full.get(group, 0.0)
        return max(self._opens.get(name, 0.0), probe, full)

    def _callable_messages(self, most: int) -> list[Queued]:
        """Return the first messages to receivers that may be called; only one for each probed receiver."""
        now = self._clock()
        queues = [
            islice(queue, 1 if name in self._opens else most)
            for name, queue in self._queues.items()
            if queue and self._queue_opening(name) <= now
        ]
        return list(islice(merge(*queues), most))

    async def _drop_ended(self, connection: Any) -> None:
        """Sort the queued messages anew, without those that wait no more: a delivery report may have ended them."""
        ids = [one.id for queue in self._queues.values() for one in queue]
        rows = await (await connection.execute(STILL_WAITING, {"ids": ids})).fetchall()
        self._queues, self._doubtful = {}, False
        self._add_to_queues(_make_queued(id, domain_of(recipient)) for id, recipient in sorted(rows))

    def _keep_queued(self, left: Collection[int]) -> None:
        self._queues = {name: deque(one for one in queue if one.id in left) for name, queue in self._queues.items()}

    async def _price_next(self, connection: Any, scope: Scope, pricing: Pricing, most: int) -> None:
        """Make and price the letters that may be called next, and drop messages that wait no more."""
        known = self._weighed
        ids = [one.id for one in self._next if one.id not in known]
        rows = await (await connection.execute(NEXT, {"ids": ids})).fetchall() if ids else []
        if ended := {*ids} - {row[0] for row in rows}:
            self._keep_queued({one.id for queue in self._queues.values() for one in queue} - ended)
            self._next = self._callable_messages(most)
        fresh = await pricing.price_letters([ClaimedMessage._make(row) for row in rows])
        known = known | {priced.message.id: priced for priced in fresh}
        self._weighed, self._priced, chosen = {}, {}, []
        for one in self._next:
            if one.id not in known:
                break  # the priced ones go first
            self._weighed[one.id] = known[one.id]
            self._priced[one.id] = refuse_too_dear(known[one.id], scope.dearest_for(one.group))
            chosen.append(one)
        self._next = chosen

    def _cost_of_one(self, one: Queued) -> int:
        return self._priced[one.id].units if self._pricing else 1


def held_by(receiver: str, held: Collection[str]) -> str:
    """Return the group that holds a receiver back, or "". receiver: as of `waiting_part`."""
    group = receiver if receiver in known_groups() else OTHERS
    return group if group in held else ""


def _make_queued(id: int, domain: str) -> Queued:
    return Queued(id, waiting_part(domain), group_of(domain))


def _consecutive_runs(chosen: Sequence[Queued]) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive ids; beyond RUNS_MOST the last one covers all the rest."""
    if not chosen:
        return
    first, number = chosen[0].id, 1
    for one, other in pairwise(chosen):
        if other.id != one.id + 1 and number < RUNS_MOST:
            yield first, one.id
            first, number = other.id, number + 1
    yield first, chosen[-1].id
