"""A vendor shared by sponsors, over the real script of the throttle on a virtual clock.

Processes ask for streams of sponsors with weights and classes, come back at the time told, some late, and die. It
counts what everybody gets and how long a place was free while somebody waited.
"""

import heapq
import itertools
import random
from collections import Counter, deque
from dataclasses import dataclass, field

from redis import Redis

from tests.virtual import HOLD, VirtualVendor
from vendors.limits.values import Grant, SharedAsk, SponsorShare, Wait

SPREAD = 0.01  # as campaigns/engine/claiming/waiting.py
LATE = 0.03  # seconds that a process may come late, less than a part is kept
CALLS = 0.02  # seconds that a call takes


@dataclass
class Sponsor:
    """backlog: units to send. rank: its class. took: seconds that each unit waited that was handed in.

    waits: since when it wants something and got nothing; longest: such a wait.
    """

    weight: int
    backlog: float = 0.0
    rank: int = 0
    got: int = 0
    waits: float | None = None
    longest: float = 0.0
    handed: deque[float] = field(default_factory=deque)
    took: list[float] = field(default_factory=list)


@dataclass
class Process:
    """Asks for streams of these sponsors. connections: of each; busy: those with a call. wants: what it was refused."""

    name: str
    connections: dict[int, int]
    late: float
    busy: Counter[int] = field(default_factory=Counter)
    wants: Counter[int] = field(default_factory=Counter)
    opens: float = 0.0
    is_alive: bool = True


class SharedVendor:
    """A vendor with a limit of so many units in a second. floor: percent that lower ranks keep."""

    def __init__(
        self, redis: Redis, limit: int, sponsors: list[Sponsor], processes: list[Process], seed: int, floor: int = 0
    ) -> None:
        self.vendor, self.floor = VirtualVendor(redis, reach=1), floor
        self.limit, self.scope = limit, self.vendor.scope((limit, 1))
        self.sponsors, self.processes = dict(enumerate(sponsors)), processes
        self.random = random.Random(seed)
        self.began = self.vendor.clock.now
        self.calls = list[float]()
        self.idle = 0.0  # places that were free while somebody waited, times seconds
        self.asks = 0
        self._ends = list[float]()  # of places: when each comes free
        self._order = itertools.count()
        self._events = list[tuple[float, int, object]]()
        for process in processes:
            self._at(0.0, process)

    @property
    def now(self) -> float:
        return self.vendor.clock.now - self.began

    def _at(self, when: float, event: object) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def live(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            when, _, event = heapq.heappop(self._events)
            self._move_to(when)
            if isinstance(event, Process):
                if event.is_alive and when >= event.opens:
                    self._ask(event)
            else:
                assert callable(event)
                event()
        self._move_to(end)

    def _move_to(self, when: float) -> None:
        while self._ends and self._ends[0] <= when:
            self._count_idle(self._ends[0])
            heapq.heappop(self._ends)
        self._count_idle(when)

    def _count_idle(self, when: float) -> None:
        passed = when - self.now
        if passed > 0:
            wants = sum((process.wants for process in self.processes if process.is_alive), Counter[int]())
            wanted = sum(min(units, self.sponsors[key].backlog) for key, units in wants.items())
            self.idle += passed * min(wanted, self.limit - len(self._ends) - self._taken)
            self.vendor.clock.advance(passed)

    _taken = 0  # places of calls under way

    def _ask(self, process: Process) -> None:
        self.asks += 1
        wants = {
            key: min(most - process.busy[key], int(self.sponsors[key].backlog))
            for key, most in process.connections.items()
        }
        shares = {self._share_of(key): want for key, want in wants.items() if want > 0}
        process.wants = Counter({share.sponsor: want for share, want in shares.items()})
        if not shares:
            return
        for share in shares:
            one = self.sponsors[share.sponsor]
            one.waits = self.now if one.waits is None else one.waits
        total = sum(shares.values())
        more = {
            share: max(0, min(process.busy[share.sponsor] + want, int(self.sponsors[share.sponsor].backlog) - want))
            for share, want in shares.items()
        }
        asker = SharedAsk(process.name, shares, more, floor=self.floor)
        answer = self.vendor.throttle.acquire(self.scope, total, HOLD, asker=asker)
        assert isinstance(answer, Grant | Wait), answer
        wait = answer.seconds if isinstance(answer, Wait) else answer.more_after
        if isinstance(answer, Grant):
            self._use(process, answer)
        if wait:
            process.opens = (
                self.now + wait * (1 + self.random.uniform(0, SPREAD)) + self.random.uniform(0, process.late)
            )
            self._at(process.opens, process)

    def _share_of(self, key: int) -> SponsorShare:
        return SponsorShare(key, self.sponsors[key].weight, self.sponsors[key].rank)

    def _use(self, process: Process, grant: Grant) -> None:
        places = grant.places()
        assert sum(grant.parts.values()) == grant.units
        for share, part in grant.parts.items():
            one = self.sponsors[share.sponsor]
            if not part:
                continue
            one.longest = max(one.longest, self.now - (self.now if one.waits is None else one.waits))
            one.waits, one.got, one.backlog = None, one.got + part, one.backlog - part
            one.took += [self.now - one.handed.popleft() for _ in range(min(part, len(one.handed)))]
            process.busy[share.sponsor] += part
            process.wants[share.sponsor] -= part
            mine, places = places[:part], places[part:]
            self.calls += [self.now] * part
            self._taken += part
            self._at(self.now + CALLS, lambda mine=mine, share=share, process=process: self._end(process, share, mine))

    def _end(self, process: Process, share: SponsorShare, places: list[str]) -> None:
        self.vendor.throttle.done(self.scope, places)
        self._taken -= len(places)
        for _ in places:
            heapq.heappush(self._ends, self.now + 1)
        process.busy[share.sponsor] -= len(places)
        self._at(max(self.now, process.opens), process)

    def hand_in(self, key: int, units: int) -> None:
        self.sponsors[key].backlog += units
        self.sponsors[key].handed += [self.now] * units
        for process in self.processes:
            if key in process.connections:
                process.opens = self.now
                self._at(self.now, process)
