"""Whose turn it is at a vendor: start-time fair queueing over the units that sponsors were given there.

Rows of SponsorTurn hold the virtual times, so all processes agree, and a restarted one too. A sponsor's virtual time
grows by the units of its calls, divided by its weight. The vendor's clock is the virtual time of the sponsor that had
the last turn, or was charged last while no other one waited. A sponsor that comes back from a pause starts there, so it
has saved nothing up. Whoever waits is never behind the clock.

A mailcaster takes the job of the sponsor with the least virtual time (`casting/mailcaster.py`). Only if several
sponsors wait does that read more than one probe of an index, or write. A sponsor with running leaves is taken to be
given one more slice of each, since senders store what was given only once a second (`charge`). What is charged late is
therefore what a process was granted within a second; a killed process never charges it.

A leaf whose sponsor is ahead of one that waits for a mailcaster gives way after a time slice (`choose_leavers`). All
processes decide from the same rows, so each sponsor that waits gets one leaf's place in a look.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection as django_connection

from campaigns.engine.lifecycle import sql_list
from campaigns.models.states import RUNNING, WAITING, S, Status
from vendors import shut
from vendors.models import Mailcaster

AHEAD_SECONDS = 5.0  # of a stream, which a running leaf is taken to be still charged

# For a job j, a vendor v and a credential l: calls may be made at that time, and a parent may be cut further.
CALLABLE = f"""j.paused_at IS NULL AND coalesce(j.wait_after > j.size - j.remaining, true) AND {shut.WHY} IS NULL
            AND coalesce(l.retry_after_until <= {{now}}, true) AND coalesce(l.rate_limited_until <= {{now}}, true)"""
UNCUT = "NOT (j.status = 'P_ASSIGNING' AND j.remaining = 0)"

# The sponsors with waiting jobs at vendor {vendor}, in order of their ids: one probe of an index for each of them.
_NEXT = f"""(SELECT j.sponsor_id FROM campaigns_job j WHERE j.vendor_id = {{vendor}} AND j.status IN {sql_list(WAITING)}
        AND j.parent_id IS {{parent}} AND j.sponsor_id > {{after}} ORDER BY j.sponsor_id LIMIT 1)"""
_EACH = f"""{{name}}(sponsor) AS (
        SELECT {_NEXT.replace("{after}", "0")}
        UNION ALL SELECT {_NEXT.replace("{after}", "{name}.sponsor")} FROM {{name}} WHERE {{name}}.sponsor IS NOT NULL
    )"""


def _waiting(vendor: str) -> str:
    parts = (_EACH.format(name=name, vendor=vendor, parent=parent) for name, parent in NAMES)
    return f"""WITH RECURSIVE {", ".join(parts)}, waits AS (
        SELECT sponsor FROM whole WHERE sponsor IS NOT NULL UNION SELECT sponsor FROM child WHERE sponsor IS NOT NULL
    )"""


NAMES = (("whole", "NULL"), ("child", "NOT NULL"))
# For a mailcaster m: [clock of the vendor, [[sponsor, weight, given, rate, running leaves] of each that waits]], or
# NULL if none or one waits.
COMPARED = f"""(
    {_waiting("m.vendor_id")}
    SELECT CASE WHEN (SELECT count(*) FROM waits) > 1 THEN (
        SELECT json_build_array(
            (SELECT coalesce(max(clock), 0) FROM campaigns_sponsorturn WHERE vendor_id = m.vendor_id),
            json_agg(json_build_array(w.sponsor, coalesce(t.weight, 1), coalesce(t.given, 0), coalesce(t.rate, 0),
                coalesce(r.leaves, 0))))
        FROM waits w LEFT JOIN campaigns_sponsorturn t ON t.vendor_id = m.vendor_id AND t.sponsor_id = w.sponsor
            LEFT JOIN (
                SELECT sponsor_id, count(*) AS leaves FROM campaigns_job
                WHERE vendor_id = m.vendor_id AND status IN {sql_list(RUNNING)} GROUP BY 1
            ) r ON r.sponsor_id = w.sponsor
    ) END)"""
# Note a turn: its sponsor starts at the vendor's clock, and the clock goes to the least virtual time that waits.
TAKE_TURN = """INSERT INTO campaigns_sponsorturn AS t (vendor_id, sponsor_id, given, clock)
    SELECT %(vendor)s, p.sponsor, p.start, p.clock FROM picked p
    ON CONFLICT (vendor_id, sponsor_id) DO UPDATE
        SET given = greatest(t.given, excluded.given), clock = greatest(t.clock, excluded.clock)"""


@dataclass(frozen=True, slots=True)
class Competitor:
    """A sponsor at a vendor. start: its virtual time, at least the vendor's clock; leaves: running ones."""

    sponsor: int
    weight: int
    start: float
    leaves: int = 0

    def key(self, ahead: float) -> float:
        """Return its place in the order. ahead: units that a running leaf will still be charged."""
        return self.start + self.leaves * ahead / self.weight


class Turn(NamedTuple):
    """A sponsor in the order of turns. start: its virtual time; clock: the vendor's, once it is its turn."""

    sponsor: int
    start: float
    clock: float


def order_turns(compared: Sequence[Any]) -> list[Turn]:
    """Return the sponsors of COMPARED, the one whose turn it is first.

    A later one with running leaves may have less virtual time than an earlier one; the clock does not pass it.
    """
    clock, rows = compared
    ahead = AHEAD_SECONDS * max(row[3] for row in rows) or 1.0
    waiting = [
        Competitor(sponsor, weight, float(max(given, clock)), leaves) for sponsor, weight, given, _, leaves in rows
    ]
    waiting.sort(key=lambda one: (one.key(ahead), one.sponsor))
    turns, least = list[Turn](), float("inf")
    for one in reversed(waiting):
        turns.append(Turn(one.sponsor, one.start, min(one.start, least)))
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


def _has(vendor: str, statuses: Iterable[Status], parent: str) -> str:
    return f"""EXISTS (SELECT FROM campaigns_job j WHERE j.vendor_id = {vendor} AND j.sponsor_id = w.sponsor
        AND j.status IN {sql_list(statuses)} AND j.parent_id IS {parent} AND {_MAY_GO})"""


_SMALL, _PARENTS = (S.DISPATCHED, S.RECOVERING), (S.P_ASSIGNING, S.P_QUEUED)
# Whether no other sponsor has a job at the vendor of row t that waits and may go. It ends at the first one.
_RIVALS = ", ".join(_EACH.format(name=name, vendor="t.vendor_id", parent=parent) for name, parent in NAMES)
UNOPPOSED = f"""NOT EXISTS (
        WITH RECURSIVE {_RIVALS}
        SELECT FROM (SELECT sponsor FROM whole UNION ALL SELECT sponsor FROM child) w
        WHERE w.sponsor <> t.sponsor_id AND ({_has("t.vendor_id", WAITING, "NULL")}
            OR {_has("t.vendor_id", _SMALL, "NOT NULL")}))"""
_GIVEN = """greatest(t.given, (SELECT max(clock) FROM campaigns_sponsorturn c WHERE c.vendor_id = t.vendor_id))
            + excluded.given / t.weight"""
# Rows in the order of their key, as two processes charge the same sponsors.
CHARGE = f"""
INSERT INTO campaigns_sponsorturn AS t (vendor_id, sponsor_id, given, clock, rate)
SELECT vendor, sponsor, units, 0, rate
FROM unnest(%(vendors)s::bigint[], %(sponsors)s::bigint[], %(units)s::float8[], %(rates)s::float8[])
    AS a(vendor, sponsor, units, rate)
ORDER BY 1, 2
ON CONFLICT (vendor_id, sponsor_id) DO UPDATE SET given = {_GIVEN}, rate = (3 * t.rate + excluded.rate) / 4,
    clock = CASE WHEN {UNOPPOSED} THEN {_GIVEN} ELSE t.clock END
"""


# Of each of these vendors at which several sponsors have work: its clock; the sponsors that wait, [sponsor, weight,
# given, has a small job that may go now, has a child or a parent]; its running leaves, [job, sponsor, weight, given,
# rate, kind of its mailcaster, seconds since a sender that is alive started it]; the kinds of its idle mailcasters.
WATCH = f"""
SELECT s.vendor, (SELECT coalesce(max(clock), 0) FROM campaigns_sponsorturn WHERE vendor_id = s.vendor),
    (SELECT json_agg(json_build_array(w.sponsor, coalesce(t.weight, 1), coalesce(t.given, 0),
            {_has("s.vendor", _SMALL, "NULL")},
            {_has("s.vendor", _SMALL, "NOT NULL")} OR {_has("s.vendor", _PARENTS, "NULL")}))
        FROM unnest(s.sponsors) AS w(sponsor)
            LEFT JOIN campaigns_sponsorturn t ON t.vendor_id = s.vendor AND t.sponsor_id = w.sponsor),
    (SELECT json_agg(json_build_array(r.id, r.sponsor_id, coalesce(t.weight, 1), coalesce(t.given, 0),
            coalesce(t.rate, 0), m.kind, CASE WHEN r.status = 'SENDING'
                    AND r.heartbeat_at > clock_timestamp() - %(alive)s * interval '1 second'
                THEN extract(epoch FROM clock_timestamp() - r.status_at) ELSE 0 END) ORDER BY r.id)
        FROM campaigns_job r JOIN vendors_mailcaster m ON m.id = r.mailcaster_id
            LEFT JOIN campaigns_sponsorturn t ON t.vendor_id = s.vendor AND t.sponsor_id = r.sponsor_id
        WHERE r.vendor_id = s.vendor AND r.status IN {sql_list(RUNNING)}),
    ARRAY(SELECT DISTINCT m.kind FROM vendors_mailcaster m WHERE m.vendor_id = s.vendor AND m.enabled AND NOT EXISTS (
        SELECT FROM campaigns_job b WHERE b.mailcaster_id = m.id AND b.status IN {sql_list(RUNNING)}))
FROM (
    SELECT a.vendor, ({_waiting("a.vendor")} SELECT array_agg(sponsor) FROM waits) AS sponsors
    FROM unnest(%(vendors)s::bigint[]) AS a(vendor)
) s
WHERE s.sponsors IS NOT NULL AND EXISTS (
    SELECT FROM campaigns_job r WHERE r.vendor_id = s.vendor AND r.status IN {sql_list(RUNNING)}
        AND r.sponsor_id <> ALL(CASE WHEN cardinality(s.sponsors) = 1 THEN s.sponsors ELSE '{{}}' END))
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


class Waiter(NamedTuple):
    """A sponsor with waiting jobs that may be sent now: small ones, or children and parents."""

    sponsor: int
    weight: int
    given: float
    has_small: bool
    has_large: bool

    def may_use(self, kind: str) -> bool:
        """Tell whether a mailcaster of this kind takes one of its jobs."""
        small = self.has_small and kind != Mailcaster.Kind.LARGE_ONLY
        return small or (self.has_large and kind != Mailcaster.Kind.SMALL_ONLY)


def choose_leavers(
    clock: float, waiters: Sequence[Waiter], leaves: Sequence[Leaf], idle: Iterable[str], seconds: float
) -> set[int]:
    """Return the running leaves of a vendor that give way now. Pure, so all processes agree.

    Each sponsor that waits, no idle mailcaster takes, and is behind another one gets the place of a leaf of the one
    that is ahead most: of its oldest leaf that has had its time slice. It is behind only if the other one would still
    be ahead without that leaf. seconds: the time slice.
    """
    running = Counter(leaf.sponsor for leaf in leaves)
    ahead = AHEAD_SECONDS * max((leaf.rate for leaf in leaves), default=0.0) or 1.0
    known = {leaf.sponsor: (leaf.weight, leaf.given) for leaf in leaves}
    known |= {one.sponsor: (one.weight, one.given) for one in waiters}

    def key(sponsor: int, fewer: int = 0) -> float:
        weight, given = known[sponsor]
        return Competitor(sponsor, weight, max(given, clock), running[sponsor] - fewer).key(ahead)

    kinds, leavers = set(idle), set[int]()
    for one in sorted(waiters, key=lambda one: (key(one.sponsor), one.sponsor)):
        if any(one.may_use(kind) for kind in kinds):
            continue
        able = [
            leaf for leaf in leaves
            if leaf.job not in leavers and leaf.sponsor != one.sponsor and leaf.age >= seconds
            and one.may_use(leaf.kind) and key(leaf.sponsor, fewer=1) > key(one.sponsor)
        ]  # fmt: skip
        if able:
            leaves_now = max(able, key=lambda leaf: (key(leaf.sponsor), leaf.age, leaf.job))
            leavers.add(leaves_now.job)
            running[leaves_now.sponsor] -= 1
            running[one.sponsor] += 1
    return leavers


class UnitsGiven:
    """What the streams of a process were given since it was charged last, by vendor and sponsor."""

    def __init__(self) -> None:
        self._units: dict[tuple[int, int], int] = {}

    def add(self, vendor_id: int, sponsor_id: int, units: int) -> None:
        key = vendor_id, sponsor_id
        self._units[key] = self._units.get(key, 0) + units

    def take(self, streams: Mapping[tuple[int, int], int], seconds: float) -> dict[str, Any] | None:
        """Return the parameters of CHARGE and forget them, or None if nothing was given.

        streams: how many the process has of each; seconds: since the last charge.
        """
        units, self._units = self._units, {}
        if not units:
            return None
        rates = [number / max(1, streams.get(key, 0)) / max(seconds, 0.1) for key, number in units.items()]
        vendors, sponsors = zip(*units, strict=True)
        return {
            "vendors": list(vendors), "sponsors": list(sponsors), "units": list(map(float, units.values())),
            "rates": rates,
        }  # fmt: skip

    def put_back(self, charged: Mapping[str, Any]) -> None:
        """Remember again what could not be charged."""
        for vendor, sponsor, units in zip(charged["vendors"], charged["sponsors"], charged["units"], strict=True):
            self.add(vendor, sponsor, int(units))


def charge(vendor_id: int, sponsor_id: int, units: int, rate: float = 0.0) -> None:
    """Charge a sponsor over Django's connection, as senders do over theirs once a second."""
    with django_connection.cursor() as cursor:
        cursor.execute(
            CHARGE,
            {"vendors": [vendor_id], "sponsors": [sponsor_id], "units": [float(units)], "rates": [rate]},
        )
