"""What stands in a vendor's queue, from the rows alone, in one statement however many vendors and jobs are asked for.

In line is what nothing but the window holds back: not what waits for a time of its own (put off, a send time, sending
hours), for the night, or for a paused login. Calls that are in flight have their places already.
"""

import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.db import connection

from campaigns.dispatch.nightly import LOOK_BACK, Run
from campaigns.failover import guard
from campaigns.lifecycle import PARENTS, S
from campaigns.models import Job
from vendors import redis_clients
from vendors.limits.values import Limit

NEAR = 1000  # jobs of a vendor in one state that are counted to say when one of them ends
QUEUED = (S.READY, S.DISPATCHED, S.RECOVERING, S.ENQUEUED, S.SENDING, S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED)
Sponsors = list[int] | None  # None: all


@dataclass(slots=True)
class LoginQueue:
    """A credential, its own limits, and its messages: those in line, those that wait for a time of their own."""

    id: int
    name: str
    paused: bool
    reason: str
    closed_until: datetime | None
    limits: tuple[Limit, ...] = ()
    waiting: int = 0
    in_line: int = 0

    @property
    def stopped(self) -> str:
        """Why nothing goes over it until a person acts; empty: it is open."""
        if self.paused:
            return f"credential {self.name} paused: {self.reason}".rstrip(": ")
        return f"credential {self.name}: a limit is 0" if any(not limit.units for limit in self.limits) else ""


@dataclass(slots=True)
class VendorQueue:
    """Of one vendor. kinds: of its enabled mailcasters; sending: its jobs that a sender is at.

    halted: why no call may start at any vendor; empty: it may.
    each: units that a message has cost at this vendor within the last hour, 1 where nobody knows.
    slots: of the workers that read its queue, None where Redis cannot tell; busy: how many of them are at work.
    waiting: messages not called yet; mine: those of them that the viewer may know of; in_line and put_off: see above;
    next_at: when the first of those put off may go; rendered: those for the night; closes_at: when the first sending
    hours of what is in line end.
    """

    vendor_id: int
    slug: str
    paused: bool
    reason: str
    logins: dict[int, LoginQueue]
    limits: tuple[Limit, ...]
    kinds: frozenset[str]
    nights: tuple[Run, ...]
    halted: str = ""
    each: float = 1.0
    sending: int = 0
    slots: int | None = None
    busy: int = 0
    jobs: int = 0
    waiting: int = 0
    mine: int = 0
    put_off: int = 0
    next_at: datetime | None = None
    rendered: int = 0
    closes_at: datetime | None = None
    places: "dict[int, QueuePosition]" = field(default_factory=dict)  # by job
    taken: dict[int, Any] = field(default_factory=dict)  # by login, what is in the windows, once it was asked

    @property
    def in_line(self) -> int:
        return sum(login.in_line for login in self.logins.values())

    def units(self, messages: int) -> int:
        """What so many will cost, about: their own cost is not known before they are made."""
        return math.ceil(messages * self.each)

    @property
    def cost(self) -> str:
        """In words; empty where each message costs one unit."""
        return f"about {self.each:.3g} units a message" if self.each >= 1.05 else ""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Messages in line up to the end of this job: of the vendor, and of the job's login."""

    of_vendor: int
    of_login: int


# Rows of jobs j become rows with what is open and whether it is in line. An outer join only with campaigns that have a
# time at all: they have an index of their own. Zones come from Python, for PostgreSQL may not know all of its names.
SEEN = """
SELECT j.*, c.at, c.closes,
    (coalesce(j.not_before <= %(now)s, true) AND NOT c.put_off) OR j.status = ANY(%(running)s) AS in_line,
    greatest(0, CASE WHEN j.status = ANY(%(parents)s) THEN j.remaining
        ELSE j.size - j.accepted - j.refused - j.expired - j.in_doubt END
        - CASE WHEN j.status <> 'SENDING' THEN 0 ELSE (
            SELECT count(*) FROM campaigns_opsmessage o
            WHERE o.id >= j.first_message AND o.id < j.first_message + j.size AND o.job_id = j.id
                AND o.sent_at IS NOT NULL AND o.delivered_at IS NULL AND o.in_doubt_at IS NULL
        ) END) AS open
FROM {jobs} j CROSS JOIN LATERAL (
    SELECT coalesce(bool_or(send_at > %(now)s OR NOT opened), false) AS put_off,
        max(greatest(send_at, CASE WHEN NOT opened THEN %(now)s + opens END)) AS at,
        min(CASE WHEN opened THEN closes END) AS closes
    FROM (
        SELECT send_at, hours_from IS NULL OR hours_to IS NULL OR hours_from = hours_to OR CASE
                WHEN hours_from < hours_to THEN local >= hours_from AND local < hours_to
                ELSE local >= hours_from OR local < hours_to END AS opened,
            hours_from - local + CASE WHEN hours_from <= local THEN interval '1 day' ELSE interval '0' END AS opens,
            CASE WHEN hours_from <> hours_to THEN %(now)s + (hours_to - local
                + CASE WHEN hours_to <= local THEN interval '1 day' ELSE interval '0' END) END AS closes
        FROM campaigns_campaign c LEFT JOIN unnest(%(zones)s::text[], %(shifts)s::int[]) z(name, shift)
            ON z.name = c.time_zone
        CROSS JOIN LATERAL (
            SELECT (%(now)s AT TIME ZONE 'UTC' + coalesce(z.shift, 0) * interval '1 second')::time AS local
        ) clock
        WHERE c.id = j.campaign_id AND (c.send_at IS NOT NULL OR c.hours_from IS NOT NULL)
    ) timed
) c
"""

VENDORS = f"""
SELECT 'vendor' AS what, v.id, json_build_object('slug', v.slug, 'paused', v.paused, 'reason', v.paused_reason,
    'logins', (SELECT json_agg(json_build_array(l.id, l.name, l.paused, l.paused_reason,
        extract(epoch from l.closed_until))) FROM vendors_credential l WHERE l.vendor_id = v.id),
    'limits', (SELECT json_agg(json_build_array(r.credential_id, r.units, r.seconds))
        FROM vendors_ratelimit r WHERE r.vendor_id = v.id),
    'kinds', (SELECT json_agg(DISTINCT m.kind) FROM vendors_mailcaster m WHERE m.vendor_id = v.id AND m.enabled),
    'nights', (SELECT json_agg(json_build_array(d.local_date, extract(epoch from d.started_at),
        d.finished_at IS NOT NULL, d.missed)) FROM campaigns_dispatchrun d
        WHERE d.vendor_id = v.id AND d.local_date >= %(since)s),
    'each', (SELECT sum(n.units)::float8 / sum(n.accepted + n.refused + n.in_doubt) FROM vendors_minute n
        WHERE n.vendor_id = v.id AND n.at >= %(now)s - interval '1 hour' AND n.accepted + n.refused + n.in_doubt > 0),
    'store', (SELECT json_build_array({guard.SAME}, {guard.FITS}, s.tables = '') FROM campaigns_store s)
) AS told FROM vendors_vendor v WHERE v.id = ANY(%(vendors)s)
UNION ALL SELECT 'sending', 0, coalesce(json_object_agg(slug, n), '{{}}') FROM (
    SELECT v.slug, count(*) AS n FROM campaigns_job j JOIN vendors_vendor v ON v.id = j.vendor_id
    WHERE j.status = 'SENDING' GROUP BY v.slug
) busy
"""

TOTALS = f"""
UNION ALL SELECT 'line', vendor_id, json_build_array(credential_id,
    count(*) FILTER (WHERE parent_id IS NULL AND status <> 'RENDERED'),
    coalesce(sum(open) FILTER (WHERE status <> 'RENDERED'), 0),
    coalesce(sum(open) FILTER (WHERE mine AND status <> 'RENDERED'), 0),
    coalesce(sum(open) FILTER (WHERE in_line AND status <> 'RENDERED'), 0),
    coalesce(sum(open) FILTER (WHERE status = 'RENDERED'), 0),
    extract(epoch from min(greatest(not_before, at)) FILTER (WHERE NOT in_line AND status <> 'RENDERED')),
    extract(epoch from min(closes) FILTER (WHERE in_line AND open > 0 AND status <> 'RENDERED')))
FROM (
    SELECT *, %(sponsors)s::bigint[] IS NULL OR sponsor_id = ANY(%(sponsors)s::bigint[]) AS mine FROM ({
    SEEN.format(jobs="(SELECT * FROM campaigns_job WHERE vendor_id = ANY(%(vendors)s) AND status = ANY(%(counted)s))")
}) seen
) line GROUP BY vendor_id, credential_id
"""

# A vendor's jobs go out by age; children take their parent's place. Of a hundred thousand jobs that wait in one state
# the oldest are enough: whatever is younger than the last of them is not foretold, and where all that is asked for is
# younger, nothing is added up. An order by the status, too, is one that only the index of the line has, whatever
# statistics say; compared as rows, it would be read on to the vendor's last job.
PLACES = f"""
UNION ALL SELECT * FROM (
WITH far AS MATERIALIZED (
    SELECT v.id AS vendor, min(f.id) AS last
    FROM unnest(%(vendors)s::bigint[]) v(id) CROSS JOIN unnest(%(queued)s::text[]) s(name) CROSS JOIN LATERAL (
        SELECT id FROM campaigns_job WHERE vendor_id = v.id AND status BETWEEN s.name AND s.name
        ORDER BY status, id OFFSET %(most)s LIMIT 1
    ) f GROUP BY v.id
), asked AS MATERIALIZED (
    SELECT a.id, a.vendor FROM unnest(%(jobs)s::bigint[], %(of)s::bigint[]) a(id, vendor) LEFT JOIN far USING (vendor)
    WHERE a.id < coalesce(far.last, %(end)s)
), near AS MATERIALIZED (
    SELECT one.* FROM (SELECT DISTINCT vendor FROM asked) v LEFT JOIN far USING (vendor)
    CROSS JOIN unnest(%(queued)s::text[]) s(name) CROSS JOIN LATERAL (
        SELECT * FROM campaigns_job
        WHERE vendor_id = v.vendor AND status BETWEEN s.name AND s.name AND id < coalesce(far.last, %(end)s)
        ORDER BY status, id LIMIT %(most)s
    ) one
), line AS (
    SELECT n.id, n.vendor_id, sum(part) OVER (PARTITION BY n.vendor_id ORDER BY age)::bigint AS of_vendor,
        sum(part) OVER (PARTITION BY n.vendor_id, n.credential_id ORDER BY age)::bigint AS of_login
    FROM (
        SELECT seen.id, seen.vendor_id, credential_id, coalesce(parent_id, seen.id) AS age,
            CASE WHEN in_line AND NOT l.paused THEN open ELSE 0 END AS part
        FROM ({SEEN.format(jobs="near")}) seen JOIN vendors_credential l ON l.id = seen.credential_id
    ) n
)
SELECT 'place', line.vendor_id, json_build_array(line.id, of_vendor, of_login) FROM line JOIN asked USING (id)
) places
"""


def of_vendors(ids: Collection[int], now: datetime, sponsors: Sponsors = None) -> dict[int, VendorQueue]:
    """Each with all that waits; mine counts the messages of these sponsors."""
    return _read(VENDORS + TOTALS, list(ids), now, {"sponsors": sponsors, "counted": [*QUEUED, S.RENDERED]})


def of_jobs(jobs: Iterable[Job], now: datetime) -> dict[int, VendorQueue]:
    """By vendor, with the places of those jobs that are near enough to the front of it; without the totals."""
    there = [job for job in jobs if job.status in QUEUED or job.status == S.RENDERED]
    asked = [job for job in there if job.status in QUEUED]
    words = {
        "of": [job.vendor_id for job in asked],
        "jobs": [job.pk for job in asked],
        "queued": list(QUEUED),
        "most": NEAR,
        "end": 2**63 - 1,
    }
    return _read(VENDORS + (PLACES if asked else ""), sorted({job.vendor_id for job in there}), now, words)


def _read(statement: str, vendors: list[int], now: datetime, words: dict[str, Any]) -> dict[int, VendorQueue]:
    if not vendors:
        return {}
    zones = _zones(int(now.timestamp() // 900))
    words |= {
        "vendors": vendors,
        "now": now,
        "since": now.date() - timedelta(days=LOOK_BACK + 1),
        "parents": list(PARENTS),
        "running": [S.ENQUEUED, S.SENDING],
        "zones": list(zones),
        "shifts": list(zones.values()),
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, words)
        rows = [(what, vendor, _json(told)) for what, vendor, told in cursor.fetchall()]
    queues = {vendor: _queue(vendor, told) for what, vendor, told in rows if what == "vendor"}
    for what, vendor, told in rows:
        if what == "line":
            _add(queues[vendor], told)
        elif what == "place":
            queues[vendor].places[told[0]] = QueuePosition(told[1], told[2])
        elif what == "sending":
            _read_by(queues.values(), told)
    return queues


@lru_cache(maxsize=2)
def _zones(quarter: int) -> dict[str, int]:
    """Seconds ahead of UTC in each zone, in that quarter of an hour: clocks change between two of them."""
    at = datetime.fromtimestamp(quarter * 900, UTC)
    shifts = ((name, at.astimezone(ZoneInfo(name)).utcoffset()) for name in available_timezones())
    return {name: int(shift.total_seconds()) for name, shift in shifts if shift}


def _queue(vendor: int, told: dict[str, Any]) -> VendorQueue:
    limits: dict[int | None, list[Limit]] = {}
    for login, units, seconds in told["limits"] or ():
        limits.setdefault(login, []).append(Limit(units, seconds))
    logins = {
        pk: LoginQueue(pk, name, paused, reason, _moment(closed), tuple(limits.get(pk, ())))
        for pk, name, paused, reason, closed in told["logins"] or ()
    }
    runs = (
        Run(date.fromisoformat(day), _moment(began), over, missed) for day, began, over, missed in told["nights"] or ()
    )
    kinds = frozenset(told["kinds"] or ())
    return VendorQueue(
        vendor, told["slug"], told["paused"], told["reason"], logins, tuple(limits.get(None, ())), kinds, tuple(runs),
        halted=guard.why_halted(*map(bool, told["store"] or (False, False, False))) or "",
        each=max(1.0, told["each"] or 1.0),
    )  # fmt: skip


def _add(queue: VendorQueue, told: list[Any]) -> None:
    login, jobs, waiting, mine, in_line, rendered, next_at, closes = told
    of = queue.logins[login]
    of.waiting, of.in_line = int(waiting), 0 if of.stopped else int(in_line)
    queue.jobs += jobs
    queue.waiting += int(waiting)
    queue.mine += int(mine)
    queue.put_off += int(waiting) - int(in_line)
    queue.rendered += int(rendered)
    queue.next_at = min(filter(None, (queue.next_at, _moment(next_at))), default=None)
    queue.closes_at = min(filter(None, (queue.closes_at, _moment(closes))), default=None)


def _read_by(queues: Iterable[VendorQueue], sending: dict[str, int]) -> None:
    """Who reads them, and what those are at."""
    try:
        there = redis_clients.registered_workers(settings.REDIS_URL)
    except redis_clients.WorkerRegistryUnreachable:
        return
    for queue in queues:
        name = f"vendor.{queue.slug}"
        mine = redis_clients.workers_reading(name, there)
        others = frozenset().union(*(one.queues for one in mine)) if mine else frozenset()
        queue.slots = sum(one.slots for one in mine)
        queue.sending = sending.get(queue.slug, 0)
        queue.busy = sum(count for slug, count in sending.items() if f"vendor.{slug}" in others)


def _json(told: Any) -> Any:
    return json.loads(told) if isinstance(told, str) else told


def _moment(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(float(seconds), UTC) if seconds is not None else None
