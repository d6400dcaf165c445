"""Turns and slices over a model of the rows: no sponsor waits longer than its bound, and shares go by weights.

The model has mailcasters, sponsors with weights, and a vendor whose limit is shared by the weights of the sponsors with
leaves. In each step senders charge, leaves give way, free mailcasters choose. Lists of three classes arrive, are
stopped, and senders are killed, whose last step is never charged.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.engine.turns.leavers import Leaf, Portions, Waiter, choose_leavers
from campaigns.engine.turns.order import VendorClasses, order_turns
from vendors.mail_classes import MailClass

URGENT, USUAL, BULK = MailClass
SLICE = 5.0
KIND = "small-priority"


@dataclass
class Sponsor:
    """A sponsor in one class. backlog: units to send; given, clock, rate: as in its row.

    waits: seconds with work and without a leaf.
    """

    weight: int
    mail_class: int = BULK
    backlog: float = 0.0
    given: float = 0.0
    clock: float = 0.0
    rate: float = 0.0
    waits: float = 0.0
    sent: float = 0.0


@dataclass
class Model:
    """seconds: of a step; is_bound: the streams know that the limit binds, and have portions."""

    sponsors: dict[int, Sponsor]
    casters: int
    rate: float
    floor: int = 10
    seconds: float = 1.0
    is_bound: bool = False
    running: dict[int, tuple[int, float]] = field(default_factory=dict)  # by leaf: its sponsor, and since when
    portions: dict[int, float | None] = field(default_factory=dict)  # by leaf
    seen: Portions | None = None
    credits: dict[int, tuple[float, float]] = field(default_factory=dict)
    now: float = 0.0
    leaves: int = 0
    needed: int = 0  # mailcasters for urgent letters (campaigns/engine/turns/reserve.py)

    @property
    def lower_most(self) -> int | None:
        floor = math.ceil(self.casters * self.floor / 100)
        return max(1, floor, self.casters - self.needed) if self.needed else None

    def eligible(self) -> list[int]:
        """Those whose jobs a free mailcaster takes."""
        waiting = self.waiting()
        lower = sum(self.sponsors[key].mail_class > URGENT for key, _ in self.running.values())
        if self.lower_most is None or lower < self.lower_most:
            return waiting
        return [key for key in waiting if self.sponsors[key].mail_class == URGENT]

    def clock(self, mail_class: int) -> float:
        return max((one.clock for one in self.sponsors.values() if one.mail_class == mail_class), default=0.0)

    @property
    def classes(self) -> VendorClasses:
        clocks = {mail_class: self.clock(mail_class) for mail_class in MailClass}
        running = Counter(self.sponsors[key].mail_class for key, _ in self.running.values())
        return VendorClasses(self.floor, self.casters, clocks, dict(self.credits), dict(running))

    def waiting(self) -> list[int]:
        """A list can be cut into as many leaves as there are mailcasters."""
        held = Counter(sponsor for sponsor, _ in self.running.values())
        return [key for key, one in self.sponsors.items() if one.backlog > held[key]]

    def step(self, killed: bool = False) -> None:
        self.now += self.seconds
        self.serve(killed)
        self.give_way()
        self.choose()
        held = {sponsor for sponsor, _ in self.running.values()}
        for key, one in self.sponsors.items():
            one.waits = one.waits + self.seconds if one.backlog > 0 and key not in held else 0

    def serve(self, killed: bool) -> None:
        held, waiting = Counter(key for key, _ in self.running.values()), set(self.waiting())
        weights = sum(self.sponsors[key].weight for key in held)
        some = self.rate * self.seconds
        charged: Counter[int] = Counter()
        for leaf, (key, _) in list(self.running.items()):
            one = self.sponsors[key]
            portion = self.portions[leaf]
            units = min(
                some * one.weight / weights / held[key], one.backlog, one.backlog if portion is None else portion
            )
            self.portions[leaf] = None if portion is None else portion - units
            one.backlog -= units
            one.sent += units
            if not killed:
                charged[one.mail_class] += units
                one.given = max(one.given, self.clock(one.mail_class)) + units / one.weight
                one.clock = max(one.clock, self.seen.clock(one.mail_class) if self.seen else 0.0)
                one.rate = (3 * one.rate + units / self.seconds) / 4 if one.rate else units / self.seconds
                if not {other for other in waiting if self.sponsors[other].mail_class == one.mail_class} - {key}:
                    one.clock = max(one.clock, one.given)
            if killed or one.backlog <= 0:
                del self.running[leaf]
        if total := sum(charged.values()):
            share = total * self.floor / 100
            for lower in (USUAL, BULK):
                credit, _ = self.credits.get(lower, (0.0, 0.0))
                credit = min(5 * share, credit + share - charged[lower])
                self.credits[lower] = max(credit, -max(10 * share, total)), 5 * share

    def give_way(self) -> None:
        free = [KIND] if len(self.running) < self.casters else []
        leaves = [
            Leaf(leaf, key, (one := self.sponsors[key]).weight, one.given, one.rate, KIND, self.now - since,
                one.mail_class, self.is_spent(leaf))
            for leaf, (key, since) in sorted(self.running.items())
        ]  # fmt: skip
        waiters = [
            Waiter(key, (one := self.sponsors[key]).weight, one.given, True, True, one.mail_class)
            for key in self.waiting()
        ]
        self.seen = Portions(self.classes, waiters, leaves) if self.is_bound else None
        for leaf in choose_leavers(self.classes, waiters, leaves, free, SLICE, self.lower_most):
            del self.running[leaf]
        for leaf, (key, _) in self.running.items():
            if self.portions[leaf] is None or self.is_spent(leaf):
                self.portions[leaf] = self.portion_of(key)

    def is_spent(self, leaf: int) -> bool:
        portion = self.portions[leaf]
        return portion is not None and portion < 1

    def portion_of(self, key: int) -> float | None:
        return self.seen.of(self.sponsors[key].mail_class, key) if self.seen else None

    def choose(self) -> None:
        while len(self.running) < self.casters and (waiting := self.eligible()):
            held = Counter(sponsor for sponsor, _ in self.running.values())
            rows = [
                [(one := self.sponsors[key]).mail_class, key, one.weight, one.given, one.rate, held[key]]
                for key in waiting
            ]
            known = self.classes
            state = [known.floor, known.casters, known.clocks, known.credits, known.leaves]
            turn = order_turns([state, rows])[0]
            self.check_order(turn.mail_class, waiting)
            if len(waiting) > 1:
                one = self.sponsors[turn.sponsor]
                one.given, one.clock = max(one.given, turn.start), max(one.clock, turn.clock)
            self.leaves += 1
            self.running[self.leaves] = turn.sponsor, self.now
            self.portions[self.leaves] = self.portion_of(turn.sponsor)

    def check_order(self, chosen: int, waiting: list[int]) -> None:
        """A lower class is chosen before a higher one only if it has something left of its floor."""
        if chosen > min(self.sponsors[key].mail_class for key in waiting):
            assert self.floor and self.credits.get(chosen, (0.0, 0.0))[0] > 0

    def bound(self, key: int) -> float:
        """Seconds after which a sponsor with work has a leaf: each other one has turns by its weight before it.

        Those of a lower class wait besides until their floor is due, and then have one leaf in ten seconds.
        """
        mine = self.sponsors[key]
        others = [one for other, one in self.sponsors.items() if other != key and one.mail_class == mine.mail_class]
        turns = sum(math.ceil(one.weight / mine.weight) + 2 for one in others)
        if mine.mail_class == URGENT:
            return (SLICE + 2) * (turns / self.casters + 2)
        return (2 * SLICE + 12) * (turns + 3) if self.floor else math.inf


CLASSES = st.lists(st.sampled_from(MailClass), min_size=8, max_size=8)
WEIGHTS = st.lists(st.integers(1, 10), min_size=2, max_size=8)
EVENTS = st.lists(
    st.tuples(st.integers(1, 20), st.sampled_from(["list", "list", "list", "stop", "kill"]), st.integers(0, 7),
              st.sampled_from([1, 200, 6_000, 1_000_000])),
    min_size=1, max_size=30,
)  # fmt: skip


@given(
    WEIGHTS, st.integers(1, 7), st.sampled_from([0.1, 5.0, 60.0, 5000.0]), EVENTS, CLASSES, st.sampled_from([0, 10]),
    st.sampled_from([0, 0, 1, 3, 100]),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_no_sponsor_with_work_waits_longer_than_its_bound(
    weights: list[int],
    casters: int,
    rate: float,
    events: list[tuple[int, str, int, int]],
    classes: list[MailClass],
    floor: int,
    needed: int,
) -> None:
    sponsors = {key: Sponsor(weight, classes[key]) for key, weight in enumerate(weights)}
    model = Model(sponsors, casters, rate, floor, needed=needed)
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


@given(WEIGHTS, st.integers(0, 3), st.sampled_from([5.0, 60.0, 5000.0]), st.integers(0, 30))
@settings(max_examples=30, deadline=None)
def test_with_a_mailcaster_for_each_sponsor_the_weights_hold_in_each_half_minute(
    weights: list[int], more: int, rate: float, alone: int
) -> None:
    """The first one was alone for a while, with all mailcasters."""
    model = Model({key: Sponsor(weight) for key, weight in enumerate(weights)}, len(weights) + more, rate)
    model.sponsors[0].backlog = 1e12
    for _ in range(alone):
        model.step()
    for one in model.sponsors.values():
        one.backlog = 1e12
    for _ in range(4):
        model.step()
        assert all(one.waits <= 2 for one in model.sponsors.values()), "nobody waits for a slice to end"
    for _ in range(4):
        before = {key: one.sent for key, one in model.sponsors.items()}
        for _ in range(30):
            model.step()
        for key, one in model.sponsors.items():
            fair = 30 * rate * one.weight / sum(weights)
            assert abs(one.sent - before[key] - fair) <= 0.05 * fair


@given(
    st.lists(st.integers(1, 10), min_size=4, max_size=12), st.integers(3, 6), st.sampled_from([20.0, 60.0]),
    st.integers(0, 50),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_with_fewer_mailcasters_the_weights_hold_in_each_half_minute_and_each_sponsor_has_its_turn(
    weights: list[int], casters: int, rate: float, later: int
) -> None:
    """They come one after the other, so the first ones were given much before."""
    sponsors = {key: Sponsor(weight) for key, weight in enumerate(weights)}
    model = Model(sponsors, casters, rate, seconds=0.1, is_bound=True)
    for one in sponsors.values():
        one.backlog = 1e12
        for _ in range(later):
            model.step()
    for _ in range(60):
        model.step()
    bounds = {key: 3 + 2 * sum(weights) / (one.weight * rate) for key, one in model.sponsors.items()}
    for _ in range(4):
        before = {key: one.sent for key, one in model.sponsors.items()}
        for _ in range(300):
            model.step()
            for key, one in model.sponsors.items():
                assert one.waits <= bounds[key], f"sponsor {key} of {weights} waits for {one.waits:.1f} s"
        total = sum(one.sent for one in model.sponsors.values()) - sum(before.values())
        assert total >= 0.9 * 30 * rate
        for key, one in model.sponsors.items():
            fair = total * one.weight / sum(weights)
            assert abs(one.sent - before[key] - fair) <= 0.05 * fair + 1, f"sponsor {key} of {weights}"


@given(st.integers(1, 7), st.sampled_from([5.0, 60.0, 5000.0]), st.sampled_from([5, 10, 25, 40]))
@settings(max_examples=20, deadline=None)
def test_a_lower_class_keeps_its_floor_while_urgent_mail_is_endless(casters: int, rate: float, floor: int) -> None:
    model = Model({0: Sponsor(1, URGENT), 1: Sponsor(1, BULK)}, casters, rate, floor)
    for one in model.sponsors.values():
        one.backlog = 1e12
    for _ in range(400):
        model.step()
    urgent, bulk = (one.sent for one in model.sponsors.values())
    assert 0.5 * floor <= 100 * bulk / (urgent + bulk) <= max(1.5 * floor, 100 / casters)
