"""Chooses the running leaves that give way to classes and sponsors that wait (campaigns/engine/claiming/slices.py)."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from campaigns.engine.lifecycle import sql_list
from campaigns.engine.turns.order import (
    AHEAD_SECONDS,
    LARGE,
    OF_TURN,
    SMALL,
    STATE,
    Competitor,
    VendorClasses,
    has_job,
    waiting_once,
)
from campaigns.engine.turns.reserve import lower_most
from campaigns.models.states import RUNNING
from vendors.mail_classes import MailClass
from vendors.models import Mailcaster

LOOK_SECONDS = 1.0  # of a leaf, before it gives way to a higher class, or to a sponsor without a leaf
LEAST_SLICE_SECONDS = 2.0  # however many sponsors wait: each turn costs some statements, and calls must end
ROUND_SECONDS = 1.5  # in which each sponsor has a turn where a limit binds, so that half a minute shows the weights
LEAST_PORTION_SECONDS, LEAST_PORTION = 0.4, 4.0  # of a mailcaster, and units in the mean, however many sponsors wait
# For each of these vendors with work of several sponsors or classes: its state; those that wait, [sponsor, weight,
# given, has a small job that may go now, has a child or a parent, class]; its running leaves, [job, sponsor, weight,
# given, rate, kind of its mailcaster, seconds since a living sender started it, class]; the kinds of its idle
# mailcasters; how many of those for small jobs the lower classes may have (reserve.py).
WATCH = f"""
SELECT a.vendor, {STATE.format(vendor="a.vendor")},
    (SELECT json_agg(json_build_array(w.sponsor, coalesce(n.weight, 1), coalesce(t.given, 0),
            {has_job("a.vendor", SMALL, "NULL")},
            {has_job("a.vendor", SMALL, "NOT NULL")} OR {has_job("a.vendor", LARGE, "NULL")}, w.mail_class))
        FROM unnest(s.classes, s.sponsors) AS w(mail_class, sponsor)
            {OF_TURN.format(vendor="a.vendor", of="w", sponsor="sponsor")}),
    (SELECT json_agg(json_build_array(r.id, r.sponsor_id, coalesce(n.weight, 1), coalesce(t.given, 0),
            coalesce(t.rate, 0), m.kind, CASE WHEN r.status = 'SENDING'
                    AND r.heartbeat_at > clock_timestamp() - %(alive)s * interval '1 second'
                THEN extract(epoch FROM clock_timestamp() - r.status_at) ELSE 0 END, r.mail_class) ORDER BY r.id)
        FROM campaigns_job r JOIN vendors_mailcaster m ON m.id = r.mailcaster_id
            {OF_TURN.format(vendor="a.vendor", of="r", sponsor="sponsor_id")}
        WHERE r.vendor_id = a.vendor AND r.status IN {sql_list(RUNNING)}),
    ARRAY(SELECT DISTINCT m.kind FROM vendors_mailcaster m WHERE m.vendor_id = a.vendor AND m.enabled AND NOT EXISTS (
        SELECT FROM campaigns_job b WHERE b.mailcaster_id = m.id AND b.status IN {sql_list(RUNNING)})),
    l.lower_most
FROM unnest(%(vendors)s::bigint[]) AS a(vendor) CROSS JOIN LATERAL (
    {waiting_once("a.vendor")} SELECT array_agg(mail_class) AS classes, array_agg(sponsor) AS sponsors FROM waits
) s CROSS JOIN LATERAL (SELECT {lower_most("a.vendor")} AS lower_most) l
WHERE EXISTS (
    SELECT FROM campaigns_job r WHERE r.vendor_id = a.vendor AND r.status IN {sql_list(RUNNING)}
        AND (NOT (cardinality(s.sponsors) = 1 AND r.sponsor_id = s.sponsors[1] AND r.mail_class = s.classes[1])
            OR l.lower_most IS NOT NULL))
"""


class Leaf(NamedTuple):
    """A running leaf. age: seconds since a sender started it. is_spent: it has had its portion (`Portions`)."""

    job: int
    sponsor: int
    weight: int
    given: float
    rate: float
    kind: str
    age: float
    mail_class: int = MailClass.BULK
    is_spent: bool = False


class Waiter(NamedTuple):
    """A sponsor with waiting jobs of a class that may be sent now: small ones, or children and parents."""

    sponsor: int
    weight: int
    given: float
    has_small: bool
    has_large: bool
    mail_class: int = MailClass.BULK

    def may_use_kind(self, kind: str) -> bool:
        """Return True if mailcasters of this kind take one of its jobs."""
        small = self.has_small and kind != Mailcaster.Kind.LARGE_ONLY
        return small or (self.has_large and kind != Mailcaster.Kind.SMALL_ONLY)


class _Look:
    """The running leaves of a vendor while those that give way are chosen."""

    def __init__(
        self, classes: VendorClasses, waiters: Sequence[Waiter], leaves: Sequence[Leaf], seconds: float
    ) -> None:
        self.classes, self.leaves, self.seconds, self.leavers = classes, leaves, seconds, set[int]()
        self.running = Counter((leaf.mail_class, leaf.sponsor) for leaf in leaves)
        self.of_class = Counter(leaf.mail_class for leaf in leaves)
        rates: dict[int, float] = {}
        for leaf in leaves:
            rates[leaf.mail_class] = max(leaf.rate, rates.get(leaf.mail_class, 0.0))
        self._ahead = {mail_class: AHEAD_SECONDS * rate or 1.0 for mail_class, rate in rates.items()}
        self._known = {(leaf.mail_class, leaf.sponsor): (leaf.weight, leaf.given) for leaf in leaves}
        self._known |= {(one.mail_class, one.sponsor): (one.weight, one.given) for one in waiters}
        self._slices = {one: self._slice_of(one, waiters) for one in self.of_class}

    def _slice_of(self, mail_class: int, waiters: Sequence[Waiter]) -> float:
        """Return seconds, such that each sponsor of the class has its turn within a time slice if possible."""
        without = sum(one.mail_class == mail_class and not self.has_leaf(one) for one in waiters)
        fair = self.seconds * self.of_class[mail_class] / max(1, without)
        return min(self.seconds, max(LEAST_SLICE_SECONDS, fair))

    def has_leaf(self, one: Waiter) -> bool:
        return self.running[one.mail_class, one.sponsor] > 0

    def key(self, one: Leaf | Waiter, fewer: int = 0) -> tuple[bool, float]:
        """Return the place of its sponsor within the class. fewer: number of leaves that the sponsor would lose."""
        whose = one.mail_class, one.sponsor
        weight, given = self._known[whose]
        start = max(given, self.classes.class_clock(one.mail_class))
        ahead = self._ahead.get(one.mail_class, 1.0)
        return Competitor(one.sponsor, weight, start, self.running[whose] - fewer).key(ahead)

    def is_class_due(self, one: Waiter) -> bool:
        return self.classes.is_floor_due(one.mail_class, self.of_class[one.mail_class])

    def gives_way(self, leaf: Leaf, one: Waiter) -> bool:
        """Tell whether this leaf may give way to that sponsor's job."""
        if leaf.job in self.leavers or not one.may_use_kind(leaf.kind):
            return False
        if leaf.mail_class == one.mail_class:
            is_spare = self.running[leaf.mail_class, leaf.sponsor] > 1 and not self.has_leaf(one)
            enough = min(self.seconds, LOOK_SECONDS) if is_spare else self._slices[leaf.mail_class]
            is_other = leaf.sponsor != one.sponsor and (leaf.is_spent or leaf.age >= enough)
            return is_other and self.key(leaf, fewer=1) > self.key(one)
        if self.classes.keeps_leaf(leaf.mail_class, self.of_class[leaf.mail_class]):
            return False
        if leaf.mail_class > one.mail_class:
            return leaf.age >= min(self.seconds, LOOK_SECONDS)
        return leaf.age >= self.seconds and self.is_class_due(one)

    def note_leaver(self, leaf: Leaf, one: Waiter) -> None:
        self.leavers.add(leaf.job)
        for sign, (mail_class, sponsor) in ((-1, (leaf.mail_class, leaf.sponsor)), (1, (one.mail_class, one.sponsor))):
            self.running[mail_class, sponsor] += sign
            self.of_class[mail_class] += sign

    def give_place(self, leaves: Sequence[Leaf], one: Waiter) -> None:
        """Let that sponsor's job have the place of one of these leaves, if there is one for it."""
        if able := [leaf for leaf in leaves if self.gives_way(leaf, one)]:
            self.note_leaver(
                max(able, key=lambda leaf: (leaf.mail_class, self.key(leaf, fewer=1), leaf.age, leaf.job)), one
            )


class Portions:
    """The units that leaves of a vendor are given, by its last look, before they give way to sponsors behind theirs.

    A portion ends a quantum of virtual time after the sponsor's own one, or after the least of those that wait without
    a leaf. In a quantum each sponsor that has work is given its share of ROUND_SECONDS. most_units: that the vendor's
    limits allow in ROUND_SECONDS. A rate may be higher, as a sponsor's first ones had the whole window.
    """

    def __init__(
        self, classes: VendorClasses, waiters: Sequence[Waiter], leaves: Sequence[Leaf], most_units: float = math.inf
    ) -> None:
        self._classes, self._most_units = classes, most_units
        self._running = Counter((leaf.mail_class, leaf.sponsor) for leaf in leaves)
        both: Sequence[Leaf | Waiter] = [*leaves, *waiters]
        self._known = {(one.mail_class, one.sponsor): (one.weight, one.given) for one in both}
        self._waiting = [one for one in waiters if not self._running[one.mail_class, one.sponsor]]
        self._quanta = {one.mail_class: self._quantum_of(one.mail_class, leaves) for one in self._waiting}

    def _quantum_of(self, mail_class: int, leaves: Sequence[Leaf]) -> float:
        weights = [weight for (of, _), (weight, _) in self._known.items() if of == mail_class]
        its = [leaf for leaf in leaves if leaf.mail_class == mail_class]
        seconds = max(ROUND_SECONDS, LEAST_PORTION_SECONDS * len(weights) / max(1, len(its)))
        most_rate = self._most_units / ROUND_SECONDS
        rate = min(sum(leaf.rate for leaf in its), most_rate) or (most_rate if most_rate < math.inf else 0.0)
        return max(seconds * rate, LEAST_PORTION * len(weights)) / sum(weights)

    def clock(self, mail_class: int) -> float:
        """Return the least virtual time of those that wait or run, but for newcomers. These start there."""
        clock = self._classes.class_clock(mail_class)
        starts = (given for (of, _), (_, given) in self._known.items() if of == mail_class and given >= clock)
        return min(starts, default=clock)

    def of(self, mail_class: int, sponsor: int) -> int | None:
        """Return the next portion of each leaf of a sponsor, at least a unit, or None if no other one waits for it."""
        clock = self._classes.class_clock(mail_class)
        rivals = [one for one in self._waiting if one.mail_class == mail_class and one.sponsor != sponsor]
        if not rivals:
            return None
        weight, given = self._known.get((mail_class, sponsor), (1, 0.0))
        mine, least = (max(clock, start) for start in (given, min(one.given for one in rivals)))
        units = (max(mine, least) - mine + self._quanta[mail_class]) * weight
        return max(1, math.ceil(units / max(1, self._running[mail_class, sponsor])))


URGENT_LETTER = Waiter(0, 1, 0.0, has_small=True, has_large=False, mail_class=MailClass.URGENT)


def choose_leavers(
    classes: VendorClasses,
    waiters: Sequence[Waiter],
    leaves: Sequence[Leaf],
    idle: Iterable[str],
    seconds: float,
    lower_most: int | None = None,
) -> set[int]:
    """Return the running leaves of a vendor that give way now. Pure, so all processes agree.

    Each waiting sponsor that no idle mailcaster takes gets the place of a leaf: of a lower class, or of a sponsor ahead
    in its own class. The sponsor farthest ahead gives up its oldest leaf that has had its time slice or its portion. A
    sponsor counts as ahead only if it would still be ahead without that leaf; a sponsor without a leaf is behind all
    with two. A lower class gets the place of a leaf of a higher one when its floor is due. seconds: the time slice. It
    is shorter while more sponsors wait than leaves run. lower_most: mailcasters for small jobs that the lower classes
    may have; they take no further one, and give up what they have beyond.
    """
    look, kinds = _Look(classes, waiters, leaves, seconds), set(idle)
    of_lower = [leaf for leaf in leaves if leaf.mail_class > MailClass.URGENT and URGENT_LETTER.may_use_kind(leaf.kind)]
    over = 0 if lower_most is None else len(of_lower) - lower_most
    for_lower = kinds if lower_most is None or over < 0 else kinds & {Mailcaster.Kind.LARGE_ONLY}
    for one in sorted(
        waiters, key=lambda one: (not look.is_class_due(one), one.mail_class, look.key(one), one.sponsor)
    ):
        if any(one.may_use_kind(kind) for kind in (kinds if one.mail_class == MailClass.URGENT else for_lower)):
            continue
        look.give_place(leaves, one)
    for _ in range(over - sum(leaf.job in look.leavers for leaf in of_lower)):
        look.give_place(of_lower, URGENT_LETTER)
    return look.leavers
