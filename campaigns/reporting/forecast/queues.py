"""The queues of vendors, read by one statement for any number of vendors and jobs.

A message counts as queued if only rate limits delay it. It does not if it waits for its own time (a deferral, a send
time, sending hours), for the night, or for a shut credential. Calls in flight have their permits already; they
count as queued while more than FEW streams run.
"""

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django.conf import settings
from django.db.models import Case, F, Sum, When
from django.db.models.functions import Greatest
from django.utils import timezone

from campaigns.engine import prepared
from campaigns.engine.dispatch.nightly import LOOK_BACK, Run
from campaigns.engine.failover import crash, guard
from campaigns.models import Job
from campaigns.models.states import PARENTS, S
from campaigns.reporting.forecast import kept_totals
from campaigns.reporting.forecast.kept_totals import KeptPlaces, QueueTotals
from campaigns.reporting.forecast.queries import FEW, POSITIONS, TOTALS, VENDORS
from vendors import ownership, redis_clients, said
from vendors.condition.reading import combine_conditions, conditions_of_credentials
from vendors.condition.values import Condition, ConditionKind, describe_condition, name_condition
from vendors.instants import write_time
from vendors.limits.values import Limit
from vendors.mail_classes import FLOOR
from vendors.remedies import Remedy
from vendors.said import Said, show

NEAR = 10_000  # the oldest jobs of a vendor in one status, whose positions are read
QUEUED = (S.READY, S.DISPATCHED, S.RECOVERING, S.ENQUEUED, S.SENDING, S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED)
NEAR_TIME = timedelta(minutes=2)
MOST_NEAR = 1000  # sets of vendors whose jobs a process remembers the number of
FORM = 4  # of the rows of TOTALS and POSITIONS, so that no release reads those that another one has kept
Sponsors = list[int] | None  # None: all
_COUNTED: dict[str, Any] = {"counted": [*QUEUED, S.RENDERED]}
UNTRIED = Condition(ConditionKind.UNTRIED)


def _exact_clock(at: datetime, now: datetime) -> str:
    """Format a time like `write_time`, with seconds if it is near."""
    return f"{timezone.localtime(at):%H:%M:%S}" if abs(at - now) < NEAR_TIME else write_time(at, now)


@dataclass(slots=True)
class LoginQueue:
    """A credential with its own limits and its messages: all waiting ones, and the queued ones.

    shut: its own reason to make no calls until somebody acts, beside its vendor's; "": it is open. disclosed: as for
    its vendor's queue. jobs: those that wait or are being sent. full_until: when its windows have a place again, as
    told to the last sender that would have had to wait.
    """

    id: int
    shut: str
    retry_after_until: datetime | None
    limits: tuple[Limit, ...] = ()
    jobs: int = 0
    waiting: int = 0
    queued: int = 0
    disclosed: bool = True
    full_until: datetime | None = None
    brief: str = ""
    name: str = ""
    condition: Condition = UNTRIED

    @property
    def login_stop_reason(self) -> str:
        """Return `shut` for the page, or `brief` if the reader may not read it."""
        return show(self.shut if self.disclosed else self.brief)

    @property
    def is_stuck(self) -> bool:
        """True if nobody knows when its calls end: it is shut, or fails."""
        return bool(self.shut) or not self.condition.has_end

    def describe_for_page(self, now: datetime) -> str:
        """Return its condition as a sentence for the page."""
        return show(describe_condition(self.condition, partial(_exact_clock, now=now), is_disclosed=self.disclosed))

    def name_condition(self, now: datetime) -> str:
        """Return its condition in a few words, for a line of a list."""
        return show(name_condition(self.condition, partial(_exact_clock, now=now)))


@dataclass(slots=True)
class SponsorQueue:
    """A sponsor's queued messages at a vendor, by class and credential id. weight: its share while others wait."""

    id: int
    name: str
    weight: int = 1
    by_class: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def count_queued(self) -> int:
        return sum(self.by_class.values())

    @property
    def login_ids(self) -> set[int]:
        """The ids of its credentials there."""
        return {login for _class, login in self.by_class}

    @property
    def classes(self) -> list[int]:
        """The classes of its messages, the most urgent one first."""
        return sorted({mail_class for mail_class, _login in self.by_class})

    def count(self, mail_class: int, login: int = 0) -> int:
        """Return its messages of a class, over all credentials or over one."""
        if login:
            return self.by_class.get((mail_class, login), 0)
        return sum(queued for (of, _login), queued in self.by_class.items() if of == mail_class)

    def count_higher(self, mail_class: int) -> int:
        """Return its messages of more urgent classes."""
        return sum(queued for (of, _login), queued in self.by_class.items() if of < mail_class)


@dataclass(slots=True)
class VendorQueue:
    """The messages waiting for one vendor, and the workers and mailcasters that serve it.

    kinds: of its enabled mailcasters. sending: its jobs with a sender. halted: why no vendor may be called until
    somebody acts; shut: why this one may not; "" if it may. each: units a message cost at this vendor within the last
    hour; 1 if unknown. slots: of the workers that read its queue; None if Redis does not answer. busy: slots in use.

    waiting: uncalled messages. mine: those of the viewer's sponsors. put_off: those with a time of their own. next_at:
    the first such time. rendered: those for the night. closes_at: end of the first sending hours of queued messages.
    counted_at: when waiting messages, or places, were counted, if earlier than the rest. disclosed: the reader may see
    the full reason for a pause (vendors.ownership.is_disclosed). sponsors: those with queued messages, by id. is_cut:
    more than NEAR jobs wait in one status, and the younger ones have no position. weights: by sponsor, other than 1.
    floor: percent of its rate that each lower class of mail keeps.
    """

    vendor_id: int
    slug: str
    shut: str
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
    positions: "dict[int, QueuePosition]" = field(default_factory=dict)  # by job id
    counted_at: datetime | None = None
    # By credential id: the ends of the calls in the vendor's and the credential's windows, once read.
    taken: dict[int, tuple[Sequence[float], Sequence[float]] | None] = field(default_factory=dict)
    disclosed: bool = True
    brief: str = ""
    is_paused: bool = False
    name: str = ""
    sponsors: dict[int, SponsorQueue] = field(default_factory=dict)
    is_cut: bool = False
    weights: dict[int, int] = field(default_factory=dict)
    floor: int = FLOOR
    fair: dict[Any, Any] = field(default_factory=dict)  # models of the shares, once asked for (ahead)

    @property
    def vendor_stop_reason(self) -> str:
        """Return `shut` for the page, or `brief` if the reader may not read it."""
        return show(self.shut if self.disclosed else self.brief)

    @property
    def best_login(self) -> LoginQueue | None:
        """Return the credential that the vendor's condition is taken from; None: it has none."""
        found = self.logins.values()
        best = self.best_condition
        return next((login for login in found if login.condition is best), None)

    @property
    def best_condition(self) -> Condition:
        """Return the condition of its best credential."""
        return combine_conditions(login.condition for login in self.logins.values())

    def remedy(self, login: LoginQueue | None) -> Remedy | None:
        """Return what mends the condition of this credential; None: of the best one."""
        of = login or self.best_login
        return Remedy.of(of.condition, self.vendor_id, self.name, of.id) if of else None

    @property
    def held(self) -> int:
        """Jobs whose credential is shut, alone or with its vendor."""
        return sum(login.jobs for login in self.logins.values() if self.shut or login.shut)

    @property
    def count_in_queue(self) -> int:
        return sum(login.queued for login in self.logins.values())

    @property
    def queued_by_class(self) -> dict[int, int]:
        """Queued messages by class, the most urgent one first."""
        found = dict[int, int]()
        for one in self.sponsors.values():
            for (mail_class, _login), queued in one.by_class.items():
                found[mail_class] = found.get(mail_class, 0) + queued
        return dict(sorted(found.items()))

    def units(self, messages: int) -> int:
        """Estimate the cost of this many messages in units; the real cost is known once they are rendered."""
        return math.ceil(messages * self.each)

    def message_rate(self, limits: Iterable[Limit]) -> float:
        """Return the messages a second that limits allow on average; inf without a limit."""
        return min((one.units / one.seconds for one in limits), default=math.inf) / self.each

    @property
    def cost_text(self) -> str:
        """The cost as text; "" if each message costs one unit."""
        return f"about {self.each:.3g} units a message" if self.each >= 1.05 else ""


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """The messages of its sponsor and class queued up to and including a job, at its vendor and at its credential.

    own: those of the job itself; of a child or a parent with all of its family.
    """

    of_vendor: int
    of_login: int
    own: int = 0


def queues_of_vendors(
    ids: Collection[int], now: datetime, sponsors: Sponsors = None, *, recent: bool = False
) -> dict[int, VendorQueue]:
    """Return the vendors' queues with totals; `mine` counts the messages of these sponsors.

    recent: large totals may be some seconds old (kept_totals).
    """
    if not recent:
        return _read_queues(f"{VENDORS} UNION ALL {TOTALS}", list(ids), now, _COUNTED | {"sponsors": sponsors})
    queues = queues_without_totals(ids, now)
    totals = _recent_totals(sorted(queues), sponsors, now)
    for vendor in queues.keys() & totals.by_vendor.keys():
        _add_kept(queues[vendor], totals)
    return queues


def _recent_totals(vendors: list[int], sponsors: Sponsors, now: datetime) -> QueueTotals:
    asked = _queue_params(vendors, now, _COUNTED | {"sponsors": sponsors})
    return kept_totals.recent_totals([FORM, vendors, sponsors], lambda: _fetch_facts(TOTALS, asked) if vendors else [])


def waiting_of(sponsor_id: int) -> dict[int, int]:
    """Estimate a sponsor's uncalled messages by vendor. Includes messages in flight."""
    called = F("accepted") + F("refused") + F("expired") + F("suppressed") + F("in_doubt")
    of_parent = When(status__in=PARENTS, then=F("remaining") - F("remaining_suppressed"))
    waiting = Greatest(0, Case(of_parent, default=F("size") - called))
    mine = Job.objects.filter(sponsor=sponsor_id, status__in=QUEUED).order_by()
    return dict(mine.values_list("vendor").annotate(messages=Sum(waiting)))


def queues_without_totals(ids: Collection[int], now: datetime) -> dict[int, VendorQueue]:
    """Return the vendors' queues, with their workers and mailcasters, but without counting messages."""
    return _read_queues(VENDORS, list(ids), now, {})


_near = dict[tuple[int, ...], int]()  # by vendors: how many of their jobs were near the front at the last look


def queues_of_jobs(jobs: Iterable[Job], now: datetime, *, recent: bool = False) -> dict[int, VendorQueue]:
    """Return the queues of these jobs' vendors with positions of jobs near the front, but without totals.

    recent: many positions may be some seconds old, and a job that came since has none (kept_totals).
    """
    there = [job for job in jobs if job.status in QUEUED or job.status == S.RENDERED]
    asked = [job for job in there if job.status in QUEUED]
    vendors, of = sorted({job.vendor_id for job in there}), tuple(sorted({job.vendor_id for job in asked}))
    if recent and _near.get(of, 0) > kept_totals.MANY_PLACES:
        return _queues_by_kept_places(vendors, asked, of, now)
    params = {**_PLACES, "of": [job.vendor_id for job in asked], "jobs": [job.pk for job in asked], "all": False}
    queues, near = _read_near(VENDORS + (POSITIONS if asked else ""), vendors, now, params)
    cut = {pk: queue for pk, queue in queues.items() if queue.is_cut and queue.positions}
    for pk, facts in _sponsors_of(cut, now):
        _add_sponsors(queues[pk], facts)
    if recent:
        if len(_near) >= MOST_NEAR:
            _near.clear()
        _near[of] = near
    return queues


_PLACES = {"queued": list(QUEUED), "most": NEAR, "end": 2**63 - 1}


def _queues_by_kept_places(
    vendors: list[int], asked: list[Job], of: tuple[int, ...], now: datetime
) -> dict[int, VendorQueue]:
    """Return the queues with the positions kept for all polls of these vendors; counts them if none are kept."""
    queues = queues_without_totals(vendors, now)
    params = _queue_params(list(of), now, {**_PLACES, "of": list(of), "jobs": [0] * len(of), "all": True})
    kept = kept_totals.recent_places([FORM, of], lambda: _count_places(queues, params, now))
    for vendor in kept.vendors() & queues.keys():
        _add_places(queues[vendor], kept, now)
    for vendor in kept.cut & queues.keys():
        queues[vendor].is_cut = True
    for job in asked:
        if place := kept.positions.get(job.vendor_id, {}).get(job.pk):
            queues[job.vendor_id].positions[job.pk] = QueuePosition(*place)
    _near[of] = sum(map(len, kept.positions.values()))
    return queues


def _count_places(queues: dict[int, VendorQueue], params: dict[str, Any], now: datetime) -> list[Any]:
    """Return the rows of POSITIONS, with all sponsors of vendors whose queues are cut."""
    rows = _fetch_facts(POSITIONS.removeprefix("\nUNION ALL "), params)
    cut = {vendor: queues[vendor] for what, vendor, _ in rows if what == "cut" and vendor in queues}
    whole = [["sponsors", vendor, facts] for vendor, facts in _sponsors_of(cut, now)]
    return [row for row in rows if row[0] != "sponsors" or row[1] not in cut] + whole


def _sponsors_of(queues: dict[int, VendorQueue], now: datetime) -> list[tuple[int, list[Any]]]:
    """Return by vendor what all sponsors have queued, as the rows `sponsors` of POSITIONS; it may be some seconds old.

    One row stands for all jobs of a sponsor and a class at a credential, however many they are.
    """
    if not queues:
        return []
    totals = _recent_totals(list(queues), None, now)
    return [
        (vendor, [[login, sponsor, name, of, queued] for login, *_, queued, _n, _at, _c, sponsor, name, of in facts
            if login in queues[vendor].logins and not queues[vendor].logins[login].is_stuck])
        for vendor, facts in totals.by_vendor.items()
    ]  # fmt: skip


def _add_places(queue: VendorQueue, kept: KeptPlaces, now: datetime) -> None:
    """Add kept sponsors to a queue. What follows from them is worked out once in a process (ahead).

    It depends on nothing but these sponsors, the weights, the limits, and the credentials that wait.
    """
    logins = tuple(
        (pk, one.limits, one.retry_after_until is not None and one.retry_after_until > now)
        for pk, one in sorted(queue.logins.items())
    )
    key = queue.vendor_id, tuple(sorted(queue.weights.items())), queue.floor, queue.limits, queue.each, logins
    if key not in kept.worked_out:
        _add_sponsors(queue, kept.sponsors.get(queue.vendor_id, ()))
        kept.worked_out[key] = queue.sponsors, queue.fair
    queue.sponsors, queue.fair = kept.worked_out[key]
    queue.counted_at = kept.at


def _read_queues(statement: str, vendors: list[int], now: datetime, params: dict[str, Any]) -> dict[int, VendorQueue]:
    return _read_near(statement, vendors, now, params)[0]


def _read_near(
    statement: str, vendors: list[int], now: datetime, params: dict[str, Any]
) -> tuple[dict[int, VendorQueue], int]:
    """Return the queues, and how many jobs are near their fronts if positions are asked for."""
    if not vendors:
        return {}, 0
    rows = _fetch_facts(statement, _queue_params(vendors, now, params))
    queues = {vendor: _make_queue(vendor, facts) for what, vendor, facts in rows if what == "vendor"}
    _read_conditions(queues.values())
    _name_end_of_halt(queues.values())
    near = 0
    for vendor in (vendor for what, vendor, _ in rows if what == "cut"):
        queues[vendor].is_cut = True
    for what, vendor, facts in rows:
        if what == "totals":
            _add_totals(queues[vendor], facts)
        elif what == "positions":
            queues[vendor].positions = {pk: QueuePosition(*place) for pk, *place in facts}
        elif what == "near":
            near = int(facts)
        elif what == "sponsors" and not queues[vendor].is_cut:
            _add_sponsors(queues[vendor], facts)
        elif what == "sending":
            _read_by(queues.values(), facts)
    return queues, near


def _read_conditions(queues: Collection[VendorQueue]) -> None:
    logins = {pk: login for queue in queues for pk, login in queue.logins.items()}
    for pk, condition in conditions_of_credentials(logins).items():
        logins[pk].condition = condition


def _name_end_of_halt(queues: Iterable[VendorQueue]) -> None:
    """Say until when nothing is called after a crash of PostgreSQL. Redis is asked once for all."""
    if crashed := [queue for queue in queues if queue.halted == guard.CRASHED]:
        why = crash.name_end(guard.CRASHED)
        for queue in crashed:
            queue.halted = why


def _queue_params(vendors: list[int], now: datetime, more: dict[str, Any]) -> dict[str, Any]:
    zones, shifts = _zone_offsets(int(now.timestamp() // 900))
    return more | {
        "vendors": vendors,
        "now": now,
        "since": now.date() - timedelta(days=LOOK_BACK + 1),
        "parents": list(PARENTS),
        "running": [S.ENQUEUED, S.SENDING],
        "few": FEW,
        "zones": zones,
        "shifts": shifts,
    }


def _fetch_facts(statement: str, params: dict[str, Any]) -> list[Any]:
    return [[what, vendor, _load_if_text(facts)] for what, vendor, facts in prepared.fetch_prepared(statement, params)]


@lru_cache(maxsize=2)
def _zone_offsets(quarter: int) -> tuple[str, str]:
    """Return zone names and their offsets from UTC (seconds) in a quarter of an hour; clocks change only between two.

    Both are PostgreSQL array literals, made once and not for each statement.
    """
    at = datetime.fromtimestamp(quarter * 900, UTC)
    shifts = ((name, at.astimezone(ZoneInfo(name)).utcoffset()) for name in available_timezones())
    ahead = {name: int(shift.total_seconds()) for name, shift in shifts if shift}
    return f"{{{','.join(ahead)}}}", f"{{{','.join(map(str, ahead.values()))}}}"


def _make_queue(vendor: int, facts: dict[str, Any]) -> VendorQueue:
    limits: dict[int | None, list[Limit]] = {}
    for login, units, seconds in facts["limits"] or ():
        limits.setdefault(login, []).append(Limit(units, seconds))
    disclosed = ownership.is_disclosed(vendor)
    logins = {
        pk: LoginQueue(
            pk,
            said.read(why or "", data),
            _moment_of_seconds(closed),
            tuple(limits.get(pk, ())),
            disclosed=disclosed,
            full_until=_moment_of_seconds(full),
            brief=Said(brief or ""),
            name=name,
        )
        for pk, name, why, data, brief, closed, full in facts["logins"] or ()
    }
    runs = (
        Run(date.fromisoformat(day), _moment_of_seconds(began), over, missed)
        for day, began, over, missed in facts["nights"] or ()
    )
    kinds, brief = frozenset(facts["kinds"] or ()), facts["shut_brief"] or ""
    return VendorQueue(
        vendor, facts["slug"], said.read(facts["shut"] or "", facts["shut_said"]), logins,
        tuple(limits.get(None, ())), kinds, tuple(runs),
        halted=guard.judge_halt(*map(bool, facts["store"] or (False, False, False))) or "",
        each=max(1.0, facts["each"] or 1.0),
        disclosed=disclosed,
        brief=Said(brief),
        is_paused=facts["paused"],
        name=facts["name"],
        weights={int(sponsor): weight for sponsor, weight in (facts["weights"] or {}).items()},
        floor=facts["floor"],
    )  # fmt: skip


_SUMS = "jobs", "waiting", "mine", "put_off", "rendered", "next_at", "closes_at", "sponsors"
_LOGIN_SUMS = "jobs", "waiting", "queued"


def _add_kept(queue: VendorQueue, totals: QueueTotals) -> None:
    """Add kept totals to a queue without sums. The same totals are added up once in a process.

    The sums depend only on the totals, the open credentials and the weights.
    """
    logins, weights = tuple(sorted(queue.logins)), tuple(sorted(queue.weights.items()))
    key = queue.vendor_id, logins, tuple(pk for pk in logins if queue.logins[pk].is_stuck), weights
    found = totals.worked_out.get(key)
    if found is None:
        for facts in totals.by_vendor[queue.vendor_id]:
            if facts[0] in queue.logins:  # a credential may have been removed since
                _add_totals(queue, facts)
        sums = [getattr(queue, name) for name in _SUMS]
        found = sums, {pk: [getattr(one, name) for name in _LOGIN_SUMS] for pk, one in queue.logins.items()}
        totals.worked_out[key] = found
    for name, value in zip(_SUMS, found[0], strict=True):
        setattr(queue, name, value)
    for pk, values in found[1].items():
        for name, value in zip(_LOGIN_SUMS, values, strict=True):
            setattr(queue.logins[pk], name, value)
    queue.counted_at = totals.at


def _add_totals(queue: VendorQueue, facts: list[Any]) -> None:
    login, jobs, waiting, mine, queued, rendered, next_at, closes, sponsor, name, mail_class = facts
    of = queue.logins[login]
    called = 0 if of.is_stuck else int(queued)
    of.jobs, of.waiting, of.queued = of.jobs + jobs, of.waiting + int(waiting), of.queued + called
    _add_sponsor(queue, login, sponsor, name, mail_class, called)
    queue.jobs += jobs
    queue.waiting += int(waiting)
    queue.mine += int(mine)
    queue.put_off += int(waiting) - int(queued)
    queue.rendered += int(rendered)
    if next_at is not None or closes is not None:
        queue.next_at = min(filter(None, (queue.next_at, _moment_of_seconds(next_at))), default=None)
        queue.closes_at = min(filter(None, (queue.closes_at, _moment_of_seconds(closes))), default=None)


def _add_sponsors(queue: VendorQueue, found: Iterable[list[Any]]) -> None:
    for login, sponsor, name, mail_class, queued in found:
        _add_sponsor(queue, login, sponsor, name, mail_class, int(queued))


def _add_sponsor(queue: VendorQueue, login: int, sponsor: int, name: str, mail_class: int, queued: int) -> None:
    if queued:
        of = queue.sponsors.get(sponsor)
        if of is None:
            of = SponsorQueue(sponsor, name or "", queue.weights.get(sponsor, 1))
            queue.sponsors[sponsor] = of
        of.by_class[mail_class, login] = of.by_class.get((mail_class, login), 0) + queued


def _read_by(queues: Iterable[VendorQueue], sending: dict[str, int]) -> None:
    """Add the slots of the workers that read each queue, and how many are busy."""
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


def _load_if_text(facts: Any) -> Any:
    return json.loads(facts) if isinstance(facts, str) else facts


def _moment_of_seconds(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(float(seconds), UTC) if seconds is not None else None
