"""Whose turn it is at a vendor: classes first, then start-time fair queueing over the units that sponsors were given.

Urgent mail goes before usual mail, and usual mail before bulk mail (vendors/mail_classes.py). A floor keeps the lower
classes alive: each one saves up a share of everything that the vendor is given (`ClassCredit`), and while it has credit
its jobs come first.

Rows of ClassTurn hold the virtual times within a class, so all processes agree, and a restarted one too. A sponsor's
virtual time grows by the units of its calls, divided by its weight. The clock of a class at a vendor is the virtual
time of the sponsor that had the last turn, or was charged last while no other one waited. A sponsor that comes back
from a pause starts there, so it has saved nothing up. Whoever waits is never behind the clock.

A mailcaster takes the job of a sponsor without a running leaf, and of those the one with the least virtual time
(`casting/mailcaster.py`). One leaf is enough for a sponsor's share of a limit, as permits go by weights
(`vendors/limits/shares.lua`). Only if several sponsors or classes wait does that read more than one probe of an index,
or write. A running leaf is taken to be given one more slice, since senders store what was given only once a second
(`charge`). What is charged late is therefore what a process was granted within a second; a killed process never
charges it.

A sponsor that waits gets the place of a leaf (`choose_leavers`): at the next look, of a lower class, or of a sponsor
that has another one; after a time slice, of a sponsor that is ahead. All processes decide from the same rows, so each
sponsor that waits gets one leaf's place in a look.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from django.db import connection as django_connection

from campaigns.engine.lifecycle import sql_list
from campaigns.models.states import RUNNING, WAITING, S, Status
from vendors import shut
from vendors.mail_classes import FLOOR, MailClass
from vendors.models import Mailcaster

AHEAD_SECONDS = 5.0  # of a stream, which a running leaf is taken to be still charged

# For a job j, a vendor v and a credential l: calls may be made at that time, and a parent may be cut further.
CALLABLE = f"""j.paused_at IS NULL AND coalesce(j.wait_after > j.size - j.remaining, true) AND {shut.WHY} IS NULL
            AND coalesce(l.retry_after_until <= {{now}}, true) AND coalesce(l.rate_limited_until <= {{now}}, true)"""
UNCUT = "NOT (j.status = 'P_ASSIGNING' AND j.remaining = 0)"

LOOK_SECONDS = 1.0  # of a leaf, before it gives way to a higher class, or to a sponsor that has no leaf
LEAST_SLICE_SECONDS = 2.0  # however many sponsors wait: each turn costs some statements, and calls must end
# The classes and sponsors with waiting jobs at vendor {vendor}, in order: one probe of an index for each of them.
_NEXT = f"""SELECT j.mail_class, j.sponsor_id AS sponsor FROM campaigns_job j
        WHERE j.vendor_id = {{vendor}} AND j.status IN {sql_list(WAITING)} AND j.parent_id IS {{parent}}
            AND (j.mail_class, j.sponsor_id) > ({{after}}) ORDER BY j.mail_class, j.sponsor_id LIMIT 1"""
_EACH = f"""{{name}}(mail_class, sponsor) AS (
        ({_NEXT.replace("{after}", "0, 0")})
        UNION ALL
        SELECT one.* FROM {{name}} w CROSS JOIN LATERAL ({_NEXT.replace("{after}", "w.mail_class, w.sponsor")}) one
    )"""


def _waiting(vendor: str) -> str:
    parts = (_EACH.format(name=name, vendor=vendor, parent=parent) for name, parent in NAMES)
    return f"""WITH RECURSIVE {", ".join(parts)}, waits AS (SELECT * FROM whole UNION SELECT * FROM child)"""


NAMES = (("whole", "NULL"), ("child", "NOT NULL"))
# Of a vendor: [its floor, its mailcasters, clocks by class, credits by class, running leaves by class].
_STATE = f"""json_build_array(
        (SELECT floor FROM vendors_vendor WHERE id = {{vendor}}),
        (SELECT count(*) FROM vendors_mailcaster WHERE vendor_id = {{vendor}} AND enabled),
        (SELECT json_object_agg(c.mail_class, c.clock) FROM (
            SELECT mail_class, max(clock) AS clock FROM campaigns_classturn WHERE vendor_id = {{vendor}} GROUP BY 1) c),
        (SELECT json_object_agg(k.mail_class, json_build_array(k.credit, k.most))
            FROM campaigns_classcredit k WHERE k.vendor_id = {{vendor}}),
        (SELECT json_object_agg(r.mail_class, r.leaves) FROM (
            SELECT mail_class, count(*) AS leaves FROM campaigns_job
            WHERE vendor_id = {{vendor}} AND status IN {sql_list(RUNNING)} GROUP BY 1) r))"""
_OF_TURN = """LEFT JOIN campaigns_classturn t
                ON t.vendor_id = {vendor} AND t.mail_class = {of}.mail_class AND t.sponsor_id = {of}.{sponsor}
            LEFT JOIN campaigns_sponsorturn n ON n.vendor_id = {vendor} AND n.sponsor_id = {of}.{sponsor}"""
# For a mailcaster m: [state of the vendor, [[class, sponsor, weight, given, rate, running leaves] of each that waits]],
# or NULL if none or one waits.
COMPARED = f"""(
    {_waiting("m.vendor_id")}
    SELECT CASE WHEN (SELECT count(*) FROM waits) > 1 THEN (
        SELECT json_build_array({_STATE.format(vendor="m.vendor_id")},
            json_agg(json_build_array(w.mail_class, w.sponsor, coalesce(n.weight, 1), coalesce(t.given, 0),
                coalesce(t.rate, 0), coalesce(r.leaves, 0))))
        FROM waits w {_OF_TURN.format(vendor="m.vendor_id", of="w", sponsor="sponsor")}
            LEFT JOIN (
                SELECT mail_class, sponsor_id, count(*) AS leaves FROM campaigns_job
                WHERE vendor_id = m.vendor_id AND status IN {sql_list(RUNNING)} GROUP BY 1, 2
            ) r ON r.mail_class = w.mail_class AND r.sponsor_id = w.sponsor
    ) END)"""
# Note a turn: its sponsor starts at the clock of the class, and the clock goes to the least virtual time that waits.
TAKE_TURN = """INSERT INTO campaigns_classturn AS t (vendor_id, mail_class, sponsor_id, given, clock)
    SELECT %(vendor)s, p.turn_class, p.sponsor, p.start, p.clock FROM picked p
    ON CONFLICT (vendor_id, mail_class, sponsor_id) DO UPDATE
        SET given = greatest(t.given, excluded.given), clock = greatest(t.clock, excluded.clock)"""


@dataclass(frozen=True, slots=True)
class VendorClasses:
    """The classes of mail at a vendor.

    floor: percent of its rate for each lower class; casters: its mailcasters. clocks, leaves: virtual time and running
    leaves of each class. credits: what a lower class may still be given of its floor, and the most it saves up, in
    units.
    """

    floor: int = FLOOR
    casters: int = 1
    clocks: Mapping[int, float] = field(default_factory=dict)
    credits: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    leaves: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, state: Sequence[Any]) -> "VendorClasses":
        """Return the classes of a _STATE."""
        floor, casters, *maps = state
        clocks, credits, leaves = ({int(key): value for key, value in (one or {}).items()} for one in maps)
        return cls(floor, casters, clocks, credits, leaves)

    def clock(self, mail_class: int) -> float:
        return float(self.clocks.get(mail_class, 0.0))

    def is_due(self, mail_class: int, leaves: int) -> bool:
        """Tell whether a class comes first because of its floor. leaves: its running ones."""
        return bool(self._credit(mail_class)[0] > 0 and self.floor) and leaves < self._kept_leaves

    def keeps_leaf(self, mail_class: int, leaves: int) -> bool:
        """Tell whether a leaf stays though a higher class waits. It stays a little longer than its class is due."""
        credit, most = self._credit(mail_class)
        return bool(credit > -most and self.floor) and leaves <= self._kept_leaves

    @property
    def _kept_leaves(self) -> int:
        return max(1, ceil(self.casters * self.floor / 100))

    def _credit(self, mail_class: int) -> tuple[float, float]:
        credit, most = self.credits.get(mail_class, (0.0, 0.0))
        return credit, most

    def order(self, waiting: Iterable[int], leaves: Mapping[int, int]) -> list[int]:
        """Return these classes, the one whose turn it is first."""
        return sorted(set(waiting), key=lambda one: (not self.is_due(one, leaves.get(one, 0)), one))


@dataclass(frozen=True, slots=True)
class Competitor:
    """A sponsor in a class at a vendor. start: its virtual time, at least the clock; leaves: running ones."""

    sponsor: int
    weight: int
    start: float
    leaves: int = 0

    def key(self, ahead: float) -> tuple[bool, float]:
        """Return its place in the order. ahead: units that a running leaf will still be charged."""
        return self.leaves > 0, self.start + self.leaves * ahead / self.weight


class Turn(NamedTuple):
    """A sponsor in the order of turns. start: its virtual time; clock: the one of the class, once it is its turn."""

    mail_class: int
    sponsor: int
    start: float
    clock: float


def order_turns(compared: Sequence[Any]) -> list[Turn]:
    """Return the classes and sponsors of COMPARED, the one whose turn it is first."""
    state, rows = compared
    classes = VendorClasses.read(state)
    return [
        turn
        for one in classes.order((row[0] for row in rows), classes.leaves)
        for turn in _order_class(one, classes.clock(one), [row[1:] for row in rows if row[0] == one])
    ]


def _order_class(mail_class: int, clock: float, rows: Sequence[Any]) -> list[Turn]:
    """Return the sponsors of a class in the order of their turns.

    A later one with running leaves may have less virtual time than an earlier one; the clock does not pass it.
    """
    ahead = AHEAD_SECONDS * max(row[3] for row in rows) or 1.0
    waiting = [
        Competitor(sponsor, weight, float(max(given, clock)), leaves) for sponsor, weight, given, _, leaves in rows
    ]
    waiting.sort(key=lambda one: (one.key(ahead), one.sponsor))
    turns, least = list[Turn](), float("inf")
    for one in reversed(waiting):
        turns.append(Turn(mail_class, one.sponsor, one.start, min(one.start, least)))
        if one.leaves:
            least = min(least, one.start)
    return turns[::-1]


# For a job j: a mailcaster could take it now.
_MAY_GO = f"""{UNCUT} AND (
        SELECT (coalesce(j.not_before <= clock_timestamp(), true) OR c.deadline <= clock_timestamp())
            AND (c.deadline <= clock_timestamp() OR {CALLABLE.format(now="clock_timestamp()")})
            AND NOT (l.exclusive AND EXISTS (
                SELECT FROM campaigns_job h WHERE h.credential_id = j.credential_id AND h.campaign_id <> j.campaign_id
                    AND (h.status IN ('ENQUEUED', 'SENDING', 'RECOVERING', 'SENT', 'P_ASSIGNING', 'P_ASSIGNED')
                        OR h.status IN ('DISPATCHED', 'STOPPED') AND h.started_at IS NOT NULL)))
        FROM campaigns_campaign c, vendors_credential l, vendors_vendor v
        WHERE c.id = j.campaign_id AND l.id = j.credential_id AND v.id = j.vendor_id)"""


def _has(vendor: str, statuses: Iterable[Status], parent: str, mail_class: str) -> str:
    return f"""EXISTS (SELECT FROM campaigns_job j WHERE j.vendor_id = {vendor} AND j.mail_class = {mail_class}
        AND j.sponsor_id = w.sponsor AND j.status IN {sql_list(statuses)} AND j.parent_id IS {parent} AND {_MAY_GO})"""


_SMALL, _PARENTS = (S.DISPATCHED, S.RECOVERING), (S.P_ASSIGNING, S.P_QUEUED)
_RIVAL = f"""(SELECT j.sponsor_id FROM campaigns_job j WHERE j.vendor_id = t.vendor_id AND j.mail_class = t.mail_class
        AND j.status IN {sql_list(WAITING)} AND j.parent_id IS {{parent}} AND j.sponsor_id > {{after}}
        ORDER BY j.sponsor_id LIMIT 1)"""
_RIVALS = ", ".join(
    f"""{name}(sponsor) AS (
        SELECT {_RIVAL.format(parent=parent, after="0")}
        UNION ALL
        SELECT {_RIVAL.format(parent=parent, after=f"{name}.sponsor")} FROM {name} WHERE {name}.sponsor IS NOT NULL
    )"""
    for name, parent in NAMES
)
# Whether no other sponsor has a job in the class of row t that waits and may go. It ends at the first one.
UNOPPOSED = f"""NOT EXISTS (
        WITH RECURSIVE {_RIVALS}
        SELECT FROM (SELECT sponsor FROM whole UNION ALL SELECT sponsor FROM child) w
        WHERE w.sponsor <> t.sponsor_id AND ({_has("t.vendor_id", WAITING, "NULL", "t.mail_class")}
            OR {_has("t.vendor_id", _SMALL, "NOT NULL", "t.mail_class")}))"""
_GIVEN = """greatest(t.given, (SELECT max(clock) FROM campaigns_classturn c
            WHERE c.vendor_id = t.vendor_id AND c.mail_class = t.mail_class)) + excluded.given"""
CREDIT_SECONDS = 5  # a class saves up its share of so many seconds
# Rows in the order of their keys, as two processes charge the same ones. A lower class owes at most what the vendor was
# given in a second, or twice what it may save up: then it waits for some seconds, and no longer.
CHARGE = f"""
WITH given AS (
    SELECT vendor, sponsor, mail_class, units, rate
    FROM unnest(%(vendors)s::bigint[], %(sponsors)s::bigint[], %(classes)s::smallint[], %(units)s::float8[],
        %(rates)s::float8[]) AS a(vendor, sponsor, mail_class, units, rate)
), credited AS (
    INSERT INTO campaigns_classcredit AS k (vendor_id, mail_class, credit, most, least)
    SELECT s.vendor, c.mail_class, s.share
            - coalesce((SELECT sum(g.units) FROM given g WHERE g.vendor = s.vendor AND g.mail_class = c.mail_class), 0),
        {CREDIT_SECONDS} * s.share, -greatest({2 * CREDIT_SECONDS} * s.share, s.units)
    FROM (
        SELECT g.vendor, sum(g.units) AS units, sum(g.units) * max(v.floor) / 100.0 AS share
        FROM given g JOIN vendors_vendor v ON v.id = g.vendor GROUP BY 1
    ) s CROSS JOIN unnest(ARRAY[{MailClass.USUAL.value}, {MailClass.BULK.value}]) AS c(mail_class)
    ORDER BY 1, 2
    ON CONFLICT (vendor_id, mail_class) DO UPDATE SET most = excluded.most, least = excluded.least,
        credit = greatest(excluded.least, least(excluded.most, k.credit + excluded.credit))
)
INSERT INTO campaigns_classturn AS t (vendor_id, mail_class, sponsor_id, given, clock, rate)
SELECT g.vendor, g.mail_class, g.sponsor, g.units / coalesce(n.weight, 1), 0, g.rate
FROM given g LEFT JOIN campaigns_sponsorturn n ON n.vendor_id = g.vendor AND n.sponsor_id = g.sponsor
ORDER BY 1, 2, 3
ON CONFLICT (vendor_id, mail_class, sponsor_id) DO UPDATE
SET given = {_GIVEN}, rate = (3 * t.rate + excluded.rate) / 4,
    clock = CASE WHEN {UNOPPOSED} THEN {_GIVEN} ELSE t.clock END
"""


# Of each of these vendors at which several sponsors or classes have work: its state; those that wait, [sponsor, weight,
# given, has a small job that may go now, has a child or a parent, class]; its running leaves, [job, sponsor, weight,
# given, rate, kind of its mailcaster, seconds since a sender that is alive started it, class]; the kinds of its idle
# mailcasters.
WATCH = f"""
SELECT a.vendor, {_STATE.format(vendor="a.vendor")},
    (SELECT json_agg(json_build_array(w.sponsor, coalesce(n.weight, 1), coalesce(t.given, 0),
            {_has("a.vendor", _SMALL, "NULL", "w.mail_class")},
            {_has("a.vendor", _SMALL, "NOT NULL", "w.mail_class")}
                OR {_has("a.vendor", _PARENTS, "NULL", "w.mail_class")}, w.mail_class))
        FROM unnest(s.classes, s.sponsors) AS w(mail_class, sponsor)
            {_OF_TURN.format(vendor="a.vendor", of="w", sponsor="sponsor")}),
    (SELECT json_agg(json_build_array(r.id, r.sponsor_id, coalesce(n.weight, 1), coalesce(t.given, 0),
            coalesce(t.rate, 0), m.kind, CASE WHEN r.status = 'SENDING'
                    AND r.heartbeat_at > clock_timestamp() - %(alive)s * interval '1 second'
                THEN extract(epoch FROM clock_timestamp() - r.status_at) ELSE 0 END, r.mail_class) ORDER BY r.id)
        FROM campaigns_job r JOIN vendors_mailcaster m ON m.id = r.mailcaster_id
            {_OF_TURN.format(vendor="a.vendor", of="r", sponsor="sponsor_id")}
        WHERE r.vendor_id = a.vendor AND r.status IN {sql_list(RUNNING)}),
    ARRAY(SELECT DISTINCT m.kind FROM vendors_mailcaster m WHERE m.vendor_id = a.vendor AND m.enabled AND NOT EXISTS (
        SELECT FROM campaigns_job b WHERE b.mailcaster_id = m.id AND b.status IN {sql_list(RUNNING)}))
FROM unnest(%(vendors)s::bigint[]) AS a(vendor) CROSS JOIN LATERAL (
    {_waiting("a.vendor")} SELECT array_agg(mail_class) AS classes, array_agg(sponsor) AS sponsors FROM waits
) s
WHERE s.sponsors IS NOT NULL AND EXISTS (
    SELECT FROM campaigns_job r WHERE r.vendor_id = a.vendor AND r.status IN {sql_list(RUNNING)}
        AND NOT (cardinality(s.sponsors) = 1 AND r.sponsor_id = s.sponsors[1] AND r.mail_class = s.classes[1]))
"""


class Leaf(NamedTuple):
    """A running leaf. age: seconds since a sender started it."""

    job: int
    sponsor: int
    weight: int
    given: float
    rate: float
    kind: str
    age: float
    mail_class: int = MailClass.BULK


class Waiter(NamedTuple):
    """A sponsor with waiting jobs of a class that may be sent now: small ones, or children and parents."""

    sponsor: int
    weight: int
    given: float
    has_small: bool
    has_large: bool
    mail_class: int = MailClass.BULK

    def may_use(self, kind: str) -> bool:
        """Tell whether a mailcaster of this kind takes one of its jobs."""
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
        """Return the place of its sponsor within the class. fewer: leaves that it would have less."""
        whose = one.mail_class, one.sponsor
        weight, given = self._known[whose]
        start = max(given, self.classes.clock(one.mail_class))
        ahead = self._ahead.get(one.mail_class, 1.0)
        return Competitor(one.sponsor, weight, start, self.running[whose] - fewer).key(ahead)

    def is_due(self, one: Waiter) -> bool:
        return self.classes.is_due(one.mail_class, self.of_class[one.mail_class])

    def gives_way(self, leaf: Leaf, one: Waiter) -> bool:
        """Tell whether this leaf may give way to that sponsor's job."""
        if leaf.job in self.leavers or not one.may_use(leaf.kind):
            return False
        if leaf.mail_class == one.mail_class:
            is_spare = self.running[leaf.mail_class, leaf.sponsor] > 1 and not self.has_leaf(one)
            enough = min(self.seconds, LOOK_SECONDS) if is_spare else self._slices[leaf.mail_class]
            is_other = leaf.sponsor != one.sponsor and leaf.age >= enough
            return is_other and self.key(leaf, fewer=1) > self.key(one)
        if self.classes.keeps_leaf(leaf.mail_class, self.of_class[leaf.mail_class]):
            return False
        if leaf.mail_class > one.mail_class:
            return leaf.age >= min(self.seconds, LOOK_SECONDS)
        return leaf.age >= self.seconds and self.is_due(one)

    def leave(self, leaf: Leaf, one: Waiter) -> None:
        self.leavers.add(leaf.job)
        for sign, (mail_class, sponsor) in ((-1, (leaf.mail_class, leaf.sponsor)), (1, (one.mail_class, one.sponsor))):
            self.running[mail_class, sponsor] += sign
            self.of_class[mail_class] += sign


def choose_leavers(
    classes: VendorClasses, waiters: Sequence[Waiter], leaves: Sequence[Leaf], idle: Iterable[str], seconds: float
) -> set[int]:
    """Return the running leaves of a vendor that give way now. Pure, so all processes agree.

    Each sponsor that waits, and no idle mailcaster takes, gets the place of a leaf of a lower class, or of one of its
    own class that is behind it: of the sponsor that is ahead most, the oldest leaf that has had its time slice. A
    sponsor is ahead only if it would still be without that leaf; one that has no leaf is behind all that have two. A
    lower class that is due gets the place of a leaf of a higher one. seconds: the time slice. It is shorter while more
    sponsors wait than leaves run.
    """
    look, kinds = _Look(classes, waiters, leaves, seconds), set(idle)
    for one in sorted(waiters, key=lambda one: (not look.is_due(one), one.mail_class, look.key(one), one.sponsor)):
        if any(one.may_use(kind) for kind in kinds):
            continue
        able = [leaf for leaf in leaves if look.gives_way(leaf, one)]
        if able:
            look.leave(max(able, key=lambda leaf: (leaf.mail_class, look.key(leaf, fewer=1), leaf.age, leaf.job)), one)
    return look.leavers


class UnitsGiven:
    """What the streams of a process were given since it was charged last, by vendor, sponsor and class."""

    def __init__(self) -> None:
        self._units: dict[tuple[int, int, int], int] = {}

    def add(self, vendor_id: int, sponsor_id: int, mail_class: int, units: int) -> None:
        key = vendor_id, sponsor_id, mail_class
        self._units[key] = self._units.get(key, 0) + units

    def take(self, streams: Mapping[tuple[int, int, int], int], seconds: float) -> dict[str, Any] | None:
        """Return the parameters of CHARGE and forget them, or None if nothing was given.

        streams: how many the process has of each; seconds: since the last charge.
        """
        units, self._units = self._units, {}
        if not units:
            return None
        rates = [number / max(1, streams.get(key, 0)) / max(seconds, 0.1) for key, number in units.items()]
        vendors, sponsors, classes = zip(*units, strict=True)
        return {
            "vendors": list(vendors), "sponsors": list(sponsors), "classes": list(map(int, classes)),
            "units": list(map(float, units.values())), "rates": rates,
        }  # fmt: skip

    def put_back(self, charged: Mapping[str, Any]) -> None:
        """Remember again what could not be charged."""
        names = ("vendors", "sponsors", "classes", "units")
        for vendor, sponsor, mail_class, units in zip(*(charged[name] for name in names), strict=True):
            self.add(vendor, sponsor, mail_class, int(units))


def charge(vendor_id: int, sponsor_id: int, units: int, rate: float = 0.0, mail_class: int = MailClass.BULK) -> None:
    """Charge a sponsor over Django's connection, as senders do over theirs once a second."""
    params = {"vendors": [vendor_id], "sponsors": [sponsor_id], "classes": [int(mail_class)]}
    with django_connection.cursor() as cursor:
        cursor.execute(CHARGE, {**params, "units": [float(units)], "rates": [rate]})
