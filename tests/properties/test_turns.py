"""Turns and slices over a model of the rows: no sponsor waits longer than its bound, and shares go by weights.

The model has mailcasters, sponsors with weights, and a vendor whose limit is shared equally by the leaves that run. A
step is a second: senders charge, leaves give way, free mailcasters choose. Lists arrive, are stopped, and senders are
killed, whose last second is never charged.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.engine.turns import Leaf, Waiter, choose_leavers, order_turns

SLICE = 5.0
KIND = "small-priority"


@dataclass
class Sponsor:
    """backlog: units to send; given, clock, rate: as in its row. waits: seconds with work and without a leaf."""

    weight: int
    backlog: float = 0.0
    given: float = 0.0
    clock: float = 0.0
    rate: float = 0.0
    waits: int = 0
    sent: float = 0.0


@dataclass
class Model:
    sponsors: dict[int, Sponsor]
    casters: int
    rate: float
    running: dict[int, tuple[int, int]] = field(default_factory=dict)  # by leaf: its sponsor, and since when
    now: int = 0
    leaves: int = 0

    @property
    def clock(self) -> float:
        return max(one.clock for one in self.sponsors.values())

    def waiting(self) -> list[int]:
        """A list can be cut into as many leaves as there are mailcasters."""
        held = Counter(sponsor for sponsor, _ in self.running.values())
        return [key for key, one in self.sponsors.items() if one.backlog > held[key]]

    def step(self, killed: bool = False) -> None:
        self.now += 1
        self.serve(killed)
        self.give_way()
        self.choose()
        held = {sponsor for sponsor, _ in self.running.values()}
        for key, one in self.sponsors.items():
            one.waits = one.waits + 1 if one.backlog > 0 and key not in held else 0

    def serve(self, killed: bool) -> None:
        each, waiting = self.rate / max(1, len(self.running)), set(self.waiting())
        for leaf, (key, _) in list(self.running.items()):
            one = self.sponsors[key]
            units = min(each, one.backlog)
            one.backlog -= units
            one.sent += units
            if not killed:
                one.given = max(one.given, self.clock) + units / one.weight
                one.rate = (3 * one.rate + units) / 4
                if waiting <= {key}:
                    one.clock = max(one.clock, one.given)
            if killed or one.backlog <= 0:
                del self.running[leaf]

    def give_way(self) -> None:
        free = [KIND] if len(self.running) < self.casters else []
        leaves = [
            Leaf(leaf, key, (one := self.sponsors[key]).weight, one.given, one.rate, KIND, float(self.now - since))
            for leaf, (key, since) in sorted(self.running.items())
        ]
        waiters = [
            Waiter(key, self.sponsors[key].weight, self.sponsors[key].given, True, True) for key in self.waiting()
        ]
        for leaf in choose_leavers(self.clock, waiters, leaves, free, SLICE):
            del self.running[leaf]

    def choose(self) -> None:
        while len(self.running) < self.casters and (waiting := self.waiting()):
            held = Counter(sponsor for sponsor, _ in self.running.values())
            rows = [[key, (one := self.sponsors[key]).weight, one.given, one.rate, held[key]] for key in waiting]
            chosen, start, clock = order_turns([self.clock, rows])[0]
            if len(waiting) > 1:
                one = self.sponsors[chosen]
                one.given, one.clock = max(one.given, start), max(one.clock, clock)
            self.leaves += 1
            self.running[self.leaves] = chosen, self.now

    def bound(self, key: int) -> float:
        """Seconds after which a sponsor with work has a leaf: each other one has turns by its weight before it."""
        mine = self.sponsors[key].weight
        turns = sum(math.ceil(one.weight / mine) + 2 for other, one in self.sponsors.items() if other != key)
        return (SLICE + 2) * (turns / self.casters + 2)


WEIGHTS = st.lists(st.integers(1, 10), min_size=2, max_size=8)
EVENTS = st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from(["list", "list", "list", "stop", "kill"]), st.integers(0, 7),
              st.sampled_from([1, 200, 6_000, 1_000_000])),
    min_size=1, max_size=30,
)  # fmt: skip


@given(WEIGHTS, st.integers(1, 7), st.sampled_from([0.1, 5.0, 60.0, 5000.0]), EVENTS)
@settings(max_examples=100, deadline=None)
def test_no_sponsor_with_work_waits_longer_than_its_bound(
    weights: list[int], casters: int, rate: float, events: list[tuple[int, str, int, int]]
) -> None:
    model = Model({key: Sponsor(weight) for key, weight in enumerate(weights)}, casters, rate)
    for seconds, what, who, units in events:
        one = model.sponsors[who % len(weights)]
        if what == "list":
            one.backlog += units
        elif what == "stop":
            one.backlog = 0.0
            model.running = {leaf: of for leaf, of in model.running.items() if of[0] != who % len(weights)}
        for second in range(seconds):
            model.step(killed=what == "kill" and second == 0)
            for key, one in model.sponsors.items():
                assert one.waits <= model.bound(key), f"sponsor {key} waits for {one.waits} s at {model.now} s"


@given(WEIGHTS, st.integers(1, 7), st.sampled_from([5.0, 60.0, 5000.0]), st.lists(st.integers(0, 10_000), max_size=8))
@settings(max_examples=30, deadline=None)
def test_sponsors_with_endless_lists_get_shares_by_their_weights(
    weights: list[int], casters: int, rate: float, alone: list[int]
) -> None:
    """Whatever some of them were given before, alone."""
    model = Model({key: Sponsor(weight) for key, weight in enumerate(weights)}, min(casters, len(weights)), rate)
    for key, units in enumerate(alone[: len(weights)]):
        model.sponsors[key].backlog = units
        for _ in range(10):
            model.step()
        model.sponsors[key].backlog = 0.0
        model.running.clear()
    for one in model.sponsors.values():
        one.backlog, one.sent = 1e12, 0.0
    rounds = 40 * sum(weights)
    for _ in range(rounds):
        model.step()
    sent = sum(one.sent for one in model.sponsors.values())
    for one in model.sponsors.values():
        fair = sent * one.weight / sum(weights)
        assert abs(one.sent - fair) <= 0.25 * fair + 7 * SLICE * rate
