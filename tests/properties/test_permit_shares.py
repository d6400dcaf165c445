"""Permits among sponsors, over the real script on a virtual clock.

Processes ask for streams of sponsors with weights, come back when they are told, some late, and die. Lists arrive and
end, weights are edited. It counts what everybody gets and how long a place was free while somebody waited.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from django.conf import settings as project
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from tests.virtual import HOLD, VirtualVendor
from tests.windows import worst_window
from vendors.limits.values import Grant, SharedAsk, SponsorShare, Wait

pytestmark = pytest.mark.slow("many")
SPREAD = 0.01  # as campaigns/engine/claiming/waiting.py
LATE = 0.03  # seconds that a process may come late, less than a part is kept
CALLS = 0.02  # seconds that a call takes
COUNTED = 12  # seconds, and so many windows: one may fall into them for one sponsor and not for another
SETTLED = 2.0  # seconds after an event before shares are counted


@dataclass
class Sponsor:
    """backlog: units to send. waits: since when it wants something and got nothing; longest: such a wait."""

    weight: int
    backlog: float = 0.0
    got: int = 0
    waits: float | None = None
    longest: float = 0.0


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
    """A vendor with a limit of so many units in a second."""

    def __init__(self, redis: Redis, limit: int, sponsors: list[Sponsor], processes: list[Process], seed: int) -> None:
        self.vendor = VirtualVendor(redis, reach=1)
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

    _taken = 0  # places of calls that are under way

    def _ask(self, process: Process) -> None:
        self.asks += 1
        wants = {
            key: min(most - process.busy[key], int(self.sponsors[key].backlog))
            for key, most in process.connections.items()
        }
        shares = {SponsorShare(key, self.sponsors[key].weight): want for key, want in wants.items() if want > 0}
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
        answer = self.vendor.throttle.acquire(self.scope, total, HOLD, asker=SharedAsk(process.name, shares, more))
        assert isinstance(answer, Grant | Wait), answer
        wait = answer.seconds if isinstance(answer, Wait) else answer.more_after
        if isinstance(answer, Grant):
            self._use(process, answer)
        if wait:
            process.opens = (
                self.now + wait * (1 + self.random.uniform(0, SPREAD)) + self.random.uniform(0, process.late)
            )
            self._at(process.opens, process)

    def _use(self, process: Process, grant: Grant) -> None:
        places = grant.places()
        assert sum(grant.parts.values()) == grant.units
        for share, part in grant.parts.items():
            one = self.sponsors[share.sponsor]
            if not part:
                continue
            one.longest = max(one.longest, self.now - (self.now if one.waits is None else one.waits))
            one.waits, one.got, one.backlog = None, one.got + part, one.backlog - part
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
        for process in self.processes:
            if key in process.connections:
                process.opens = self.now
                self._at(self.now, process)


@pytest.fixture(scope="module")
def redis() -> Iterator[Redis]:
    with Redis.from_url(project.REDIS_URL) as client:
        yield client


QUIET = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
WEIGHTS = st.lists(st.integers(1, 10), min_size=2, max_size=5)


@settings(QUIET, max_examples=25)
@given(
    weights=WEIGHTS, limit=st.sampled_from([20, 60, 200]), several=st.lists(st.integers(1, 3), min_size=5, max_size=5),
    together=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_sponsors_with_endless_lists_get_shares_by_their_weights_and_no_place_is_left_free(
    redis: Redis, weights: list[int], limit: int, several: list[int], together: bool, seed: int
) -> None:
    """Whatever the number of their processes, and after an edit of a weight in between."""
    sponsors = [Sponsor(weight, 1e9) for weight in weights]
    if together:
        processes = [Process(f"p{n}", dict.fromkeys(range(len(weights)), limit), LATE) for n in range(3)]
    else:
        processes = [
            Process(f"p{key}.{n}", {key: limit}, LATE) for key in range(len(weights)) for n in range(several[key])
        ]
    shared = SharedVendor(redis, limit, sponsors, processes, seed)
    for key, weight in ((0, weights[0]), (0, 11 - weights[0])):
        sponsors[key].weight = weight
        shared.live(SETTLED)
        before, idle = [one.got for one in sponsors], shared.idle
        shared.live(COUNTED)
        got = [one.got - former for one, former in zip(sponsors, before, strict=True)]
        for one, units in zip(sponsors, got, strict=True):
            fair = sum(got) * one.weight / sum(other.weight for other in sponsors)
            assert abs(units - fair) <= 0.02 * fair + fair / COUNTED + 2, (got, [other.weight for other in sponsors])
        assert shared.idle - idle <= 0.03 * COUNTED * limit
    assert worst_window(shared.calls, 1) <= limit
    shared.vendor.clear()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.3, 1.0, 2.5]), st.integers(0, 4), st.sampled_from(["list", "list", "die", "edit"]),
        st.sampled_from([1, 1, 30, 1000]),
    ),
    min_size=3, max_size=12,
)  # fmt: skip


@settings(QUIET, max_examples=40)
@given(
    weights=WEIGHTS, limit=st.sampled_from([5, 20, 60]), connections=st.sampled_from([1, 8, 64]), events=EVENTS,
    seed=st.integers(0, 99),
)  # fmt: skip
def test_no_sponsor_waits_longer_than_its_bound_whoever_comes_and_dies(
    redis: Redis, weights: list[int], limit: int, connections: int, events: list[tuple[float, int, str, int]], seed: int
) -> None:
    sponsors = [Sponsor(weight) for weight in weights]
    processes = [
        Process(f"p{key}.{n}", {key: connections}, LATE) for key in range(len(weights)) for n in range(1 + key % 2)
    ]
    processes.append(Process("all", dict.fromkeys(range(len(weights)), connections), LATE))
    shared = SharedVendor(redis, limit, sponsors, processes, seed)
    for seconds, which, what, units in events:
        key = which % len(weights)
        if what == "list":
            shared.hand_in(key, units)
        elif what == "edit":
            sponsors[key].weight = 1 + units % 7
        else:
            processes[which % (len(processes) - 1)].is_alive = False  # the last one goes on
        shared.live(seconds)
    shared.live(10)
    for one in sponsors:
        waits = max(one.longest, shared.now - one.waits if one.waits is not None and one.backlog >= 1 else 0.0)
        others = sum(other.weight for other in sponsors)
        assert waits <= 2.5 + 2 * others / one.weight / limit, [vars(other) for other in sponsors]
    assert worst_window(shared.calls, 1) <= limit
    assert shared.idle <= 0.05 * limit * shared.now + 0.2 * limit * sum(what == "die" for _, _, what, _ in events)
    shared.vendor.clear()
