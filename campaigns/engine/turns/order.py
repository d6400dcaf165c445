"""The order in which classes and sponsors have their turns at a vendor, read with a mailcaster's look at its jobs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from campaigns.engine.lifecycle import sql_list
from campaigns.models.states import RUNNING, WAITING, S, Status
from vendors import shut
from vendors.mail_classes import FLOOR

AHEAD_SECONDS = 5.0  # of a stream, which a running leaf is taken to be still charged

# For a job j, a vendor v and a credential l: calls may be made at that time, and a parent may be cut further.
CALLABLE = f"""j.paused_at IS NULL AND coalesce(j.wait_after > j.size - j.remaining, true) AND {shut.WHY} IS NULL
            AND coalesce(l.retry_after_until <= {{now}}, true) AND coalesce(l.rate_limited_until <= {{now}}, true)"""
UNCUT = "NOT (j.status = 'P_ASSIGNING' AND j.remaining = 0)"

PARENTS = (("whole", "NULL"), ("child", "NOT NULL"))  # of jobs other than children, and of children
# The next class and sponsor with waiting jobs at a vendor, either children or others: one probe of an index.
_NEXT = f"""SELECT j.mail_class, j.sponsor_id AS sponsor FROM campaigns_job j
        WHERE j.vendor_id = {{vendor}} AND j.status IN {sql_list(WAITING)} AND j.parent_id IS {{parent}}
            AND (j.mail_class, j.sponsor_id) > ({{after}}) ORDER BY j.mail_class, j.sponsor_id LIMIT 1"""
_EACH = f"""{{name}}(mail_class, sponsor) AS (
        ({_NEXT.replace("{after}", "0, 0")})
        UNION ALL
        SELECT one.* FROM {{name}} w CROSS JOIN LATERAL ({_NEXT.replace("{after}", "w.mail_class, w.sponsor")}) one
    )"""


def waiting_once(vendor: str) -> str:
    """Return WITH for a table `waits`: the classes and sponsors with jobs that wait at the vendor."""
    parts = (_EACH.format(name=name, vendor=vendor, parent=parent) for name, parent in PARENTS)
    return f"WITH RECURSIVE {', '.join(parts)}, waits AS (SELECT * FROM whole UNION SELECT * FROM child)"


# For a vendor: [its floor, its mailcasters, clocks by class, credits by class, running leaves by class].
STATE = f"""json_build_array(
        (SELECT floor FROM vendors_vendor WHERE id = {{vendor}}),
        (SELECT count(*) FROM vendors_mailcaster WHERE vendor_id = {{vendor}} AND enabled),
        (SELECT json_object_agg(c.mail_class, c.clock) FROM (
            SELECT mail_class, max(clock) AS clock FROM campaigns_classturn WHERE vendor_id = {{vendor}} GROUP BY 1) c),
        (SELECT json_object_agg(k.mail_class, json_build_array(k.credit, k.most))
            FROM campaigns_classcredit k WHERE k.vendor_id = {{vendor}}),
        (SELECT json_object_agg(r.mail_class, r.leaves) FROM (
            SELECT mail_class, count(*) AS leaves FROM campaigns_job
            WHERE vendor_id = {{vendor}} AND status IN {sql_list(RUNNING)} GROUP BY 1) r))"""
OF_TURN = """LEFT JOIN campaigns_classturn t
                ON t.vendor_id = {vendor} AND t.mail_class = {of}.mail_class AND t.sponsor_id = {of}.{sponsor}
            LEFT JOIN campaigns_sponsorturn n ON n.vendor_id = {vendor} AND n.sponsor_id = {of}.{sponsor}"""
# For a mailcaster m: [state of the vendor, [[class, sponsor, weight, given, rate, running leaves] of each that waits]],
# or NULL if none or one waits.
COMPARED = f"""(
    {waiting_once("m.vendor_id")}
    SELECT CASE WHEN (SELECT count(*) FROM waits) > 1 THEN (
        SELECT json_build_array({STATE.format(vendor="m.vendor_id")},
            json_agg(json_build_array(w.mail_class, w.sponsor, coalesce(n.weight, 1), coalesce(t.given, 0),
                coalesce(t.rate, 0), coalesce(r.leaves, 0))))
        FROM waits w {OF_TURN.format(vendor="m.vendor_id", of="w", sponsor="sponsor")}
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


# For a job j: a mailcaster could take it now.
MAY_GO = f"""{UNCUT} AND (
        SELECT (coalesce(j.not_before <= clock_timestamp(), true) OR c.deadline <= clock_timestamp())
            AND (c.deadline <= clock_timestamp() OR {CALLABLE.format(now="clock_timestamp()")})
            AND NOT (l.exclusive AND EXISTS (
                SELECT FROM campaigns_job h WHERE h.credential_id = j.credential_id AND h.campaign_id <> j.campaign_id
                    AND (h.status IN ('ENQUEUED', 'SENDING', 'RECOVERING', 'SENT', 'P_ASSIGNING', 'P_ASSIGNED')
                        OR h.status IN ('DISPATCHED', 'STOPPED') AND h.started_at IS NOT NULL)))
        FROM campaigns_campaign c, vendors_credential l, vendors_vendor v
        WHERE c.id = j.campaign_id AND l.id = j.credential_id AND v.id = j.vendor_id)"""


SMALL, LARGE = (S.DISPATCHED, S.RECOVERING), (S.P_ASSIGNING, S.P_QUEUED)


def has_job(vendor: str, statuses: Iterable[Status], parent: str) -> str:
    """Return the SQL condition that a mailcaster could take such a job of a class and sponsor w. parent: [NOT] NULL."""
    return f"""EXISTS (SELECT FROM campaigns_job j WHERE j.vendor_id = {vendor} AND j.mail_class = w.mail_class
        AND j.sponsor_id = w.sponsor AND j.status IN {sql_list(statuses)} AND j.parent_id IS {parent} AND {MAY_GO})"""


@dataclass(frozen=True, slots=True)
class VendorClasses:
    """The classes of mail at a vendor.

    floor: percent of its rate for each lower class; casters: its mailcasters. clocks, leaves: virtual time and running
    leaves of each class. credits: the part of its floor still due to a lower class, and the most it saves up, in units.
    """

    floor: int = FLOOR
    casters: int = 1
    clocks: Mapping[int, float] = field(default_factory=dict)
    credits: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    leaves: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def read_state(cls, state: Sequence[Any]) -> "VendorClasses":
        """Return the classes of a STATE."""
        floor, casters, *maps = state
        clocks, credits, leaves = ({int(key): value for key, value in (one or {}).items()} for one in maps)
        return cls(floor, casters, clocks, credits, leaves)

    def class_clock(self, mail_class: int) -> float:
        return float(self.clocks.get(mail_class, 0.0))

    def is_floor_due(self, mail_class: int, leaves: int) -> bool:
        """Return True if a class comes first because of its floor. leaves: its running ones."""
        return bool(self._class_credit(mail_class)[0] > 0 and self.floor) and leaves < self._kept_leaves

    def keeps_leaf(self, mail_class: int, leaves: int) -> bool:
        """Return True if a leaf stays though a higher class waits. It stays a little longer than its class is due."""
        credit, most = self._class_credit(mail_class)
        return bool(credit > -most and self.floor) and leaves <= self._kept_leaves

    @property
    def _kept_leaves(self) -> int:
        return max(1, ceil(self.casters * self.floor / 100))

    def _class_credit(self, mail_class: int) -> tuple[float, float]:
        credit, most = self.credits.get(mail_class, (0.0, 0.0))
        return credit, most

    def order_classes(self, waiting: Iterable[int], leaves: Mapping[int, int]) -> list[int]:
        """Return these classes, the one whose turn it is first."""
        return sorted(set(waiting), key=lambda one: (not self.is_floor_due(one, leaves.get(one, 0)), one))


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
    classes = VendorClasses.read_state(state)
    return [
        turn
        for one in classes.order_classes((row[0] for row in rows), classes.leaves)
        for turn in _order_class(one, classes.class_clock(one), [row[1:] for row in rows if row[0] == one])
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
