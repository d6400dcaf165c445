"""Moves uncalled messages from a vendor that takes no work to the next vendor of the route.

A message is uncalled if it was never called, or if the vendor turned it away each time, for example with a 429.

A campaign with a route always has a parent job. Each uncalled message is therefore either in the parent's rest, which
nobody has cut yet, or in a child. The rest moves by changing the parent's vendor. In a child, the runs between called
messages move. Called messages stay with the vendor that knows them, as do doubts and messages that a person has resent.

Nothing moves from a child that a mailcaster or sender owns. Once a DISPATCHED or RECOVERING child is locked, no sender
can claim from it: a claim requires SENDING and the claimer's own fence, and each taking raises the fence. Everything
its last sender claimed is answered or in doubt by now; messages still in a claim do not move. Moving raises
the fence too, so that an old notification cannot take the rest.
"""

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Q

from campaigns.engine import failpoints, ports
from campaigns.engine.lifecycle import LOCKED_BRIEFLY, hold_family, move, passes_locked, wait_at_most
from campaigns.engine.merging import FORGET_CLAIMS
from campaigns.engine.routes.entries import WHY, ClosedReason, RouteState, closed_reasons, route_states, states_of
from campaigns.models import Job, RouteMove
from campaigns.models.states import S
from vendors import alarms, history, ownership
from vendors.history import Actor
from vendors.models import Credential
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)

ITSELF = "mailhub"
TAKES_NONE = gettext_noop("%(target)s takes none of it: %(why)s")
HAD = Said(gettext_noop("it had them before"))
GO_BY = gettext_noop("%(count)s that %(source)s has not taken go by %(target)s: %(why)s")
MOST_PIECES = 200  # runs of one child a round, the longest first
MOST_PARENTS = 100  # parents read by one statement
MOST_SECONDS = 5.0  # seconds of one sweep
UNCUT = (S.P_QUEUED, S.P_ASSIGNING)
OPEN = (*UNCUT, S.P_ASSIGNED)
FREE = (S.DISPATCHED, S.RECOVERING)  # children without a mailcaster or sender

DUE = f"""
SELECT p.id FROM campaigns_job p JOIN campaigns_campaign c ON c.id = p.campaign_id AND c.routed
    JOIN campaigns_route q ON q.id = c.route_id
WHERE p.id > %(after)s AND p.status IN ('P_QUEUED', 'P_ASSIGNING', 'P_ASSIGNED') AND p.paused_at IS NULL AND EXISTS (
    SELECT FROM campaigns_job j JOIN vendors_credential l ON l.id = j.credential_id
        JOIN vendors_vendor v ON v.id = l.vendor_id
    WHERE (j.id = p.id AND p.status <> 'P_ASSIGNED' OR j.parent_id = p.id AND j.status IN ('DISPATCHED', 'RECOVERING'))
        AND {WHY.replace("%(patience)s", "q.patience")} <> ''
)
ORDER BY p.id LIMIT %(most)s
"""
# A message counts as called once its call was allowed, even if a person or a retry sends it again or a look-up has
# disproved the call. A run is a gap between two called messages; only runs with a waiting message move.
RUNS = """
WITH claimed AS (
    SELECT DISTINCT unnest(messages) AS id FROM campaigns_claim WHERE job_id = %(job)s
), slice AS (
    SELECT m.id, m.dequeued_at IS NULL AS waits, m.sent_at IS NOT NULL OR m.resend_no > 0 OR m.disproved IS NOT NULL
        OR m.id IN (SELECT id FROM claimed) AS called
    FROM campaigns_message m WHERE m.id >= %(first)s AND m.id < %(end)s
), numbered AS (
    SELECT *, count(*) FILTER (WHERE called) OVER (ORDER BY id) AS before FROM slice
)
SELECT min(id), max(id) + 1, count(*) FILTER (WHERE waits) FROM numbered WHERE NOT called
GROUP BY before HAVING bool_or(waits) ORDER BY count(*) DESC LIMIT %(most)s
"""
# Claims that nobody needs any more. A late acceptance still counts without its claim; any other late answer could only
# settle a doubt that its own call left.
SETTLED = FORGET_CLAIMS.format(
    which="""j.id = %(job)s AND c.job_id = j.id AND c.fence < j.fence AND NOT EXISTS (
        SELECT FROM campaigns_message m
        WHERE m.id = ANY(c.messages) AND (m.in_doubt_at IS NOT NULL OR m.dequeued_at IS NULL))"""
)
NO_CLAIM = "SELECT NOT EXISTS (SELECT FROM campaigns_claim WHERE job_id = %s)"
RECOUNT = """
UPDATE campaigns_job j SET (accepted, refused, in_doubt, expired, suppressed, delivered, bounced) = (
    SELECT count(m.message_id), count(*) FILTER (WHERE m.error_code <> ALL(ARRAY['expired', 'suppressed'])),
        count(m.in_doubt_at), count(*) FILTER (WHERE m.error_code = 'expired'),
        count(*) FILTER (WHERE m.error_code = 'suppressed'),
        count(*) FILTER (WHERE m.report = 'delivered'), count(*) FILTER (WHERE m.report = 'bounced')
    FROM campaigns_message m WHERE m.id >= j.first_message AND m.id < j.first_message + j.size
)
WHERE j.id = ANY(%(jobs)s)
"""
DONE_WITH = """
SELECT j.id FROM campaigns_job j WHERE j.id = ANY(%(jobs)s) AND NOT EXISTS (
    SELECT FROM campaigns_message m
    WHERE m.id >= j.first_message AND m.id < j.first_message + j.size AND m.dequeued_at IS NULL)
"""

NOT_PUT_OFF = """
UPDATE campaigns_message m SET put_off_at = NULL, call_after = NULL, cause = NULL
FROM unnest(%(firsts)s::bigint[], %(ends)s::bigint[]) AS run(first, past)
WHERE m.id >= run.first AND m.id < run.past AND m.dequeued_at IS NULL AND m.put_off_at IS NOT NULL
"""
COPIED = (
    *("campaign_id", "sponsor_id", "vendor_id", "credential_id", "parent_id", "status", "suppressions"),
    *("created_at", "dispatched_at", "mail_class"),
)
HAD_BY = """
SELECT DISTINCT j.id, w.came_from_id
FROM unnest(%(jobs)s::bigint[], %(firsts)s::bigint[]) a(id, first) JOIN campaigns_job j ON j.id = a.id
    JOIN campaigns_routemove w ON w.campaign_id = j.campaign_id
        AND a.first >= w.first_message AND a.first < w.first_message + w.size
"""
# The oldest routed parent of each credential, among the oldest ones of each status.
OLDEST = """
SELECT min(p.id) FROM vendors_credential l
    JOIN unnest(%(open)s::text[]) AS s(status) ON true,
    LATERAL (
        SELECT j.id, j.campaign_id, j.credential_id FROM campaigns_job j
        WHERE j.vendor_id = l.vendor_id AND j.status = s.status AND j.paused_at IS NULL
        ORDER BY j.id LIMIT %(most)s
    ) p JOIN campaigns_campaign c ON c.id = p.campaign_id AND c.routed
WHERE l.id = ANY(%(logins)s) AND p.credential_id = l.id
GROUP BY l.id
"""
MOST_OLDEST = 1_000  # parents of a vendor in one status
Slice = tuple[int, int]  # id of the first message, and one past the last


@dataclass(frozen=True, slots=True)
class Moved:
    """messages: how many moved; vendors: ids of those that have to be notified."""

    messages: int = 0
    vendors: frozenset[int] = frozenset()

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.messages + other.messages, self.vendors | other.vendors)


def reroute_due() -> Moved:
    """Move all waiting messages from vendors that take no work to vendors that do.

    Stops after MOST_SECONDS. The next sweep of this process continues after the last parent.
    """
    global _looked_at
    until, moved, after, _looked_at = time.monotonic() + MOST_SECONDS, Moved(), _looked_at, 0
    while due := _due_parents(after):
        for after in due:
            try:
                with passes_locked():
                    moved += reroute_parent(after, LOCKED_BRIEFLY)
            except Exception:  # one bad job must not stop the others
                if not connection.is_usable():
                    raise
                alarms.MOVE_FAILED.log(log, after, exc_info=True)
            if time.monotonic() > until:
                _looked_at = after
                return moved
    return moved


_looked_at = 0  # id of the parent after which the next sweep of this process starts


def _due_parents(after: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(DUE, {"most": MOST_PARENTS, "after": after})
        return [parent for (parent,) in cursor.fetchall()]


def reroute_parent(parent_id: int, locked_most: str = "") -> Moved:
    """Move one parent's waiting messages, and record the moves in the same transaction.

    If two calls run concurrently, the second one finds nothing to move. locked_most: how long to wait for a lock;
    empty: the connection's own timeout.
    """
    with transaction.atomic():
        if locked_most:
            wait_at_most(locked_most)
        hold_family(parent_id)
        parent = Job.objects.filter(pk=parent_id, status__in=OPEN, paused_at=None, campaign__route__isnull=False)
        found = parent.select_related("campaign__route", "campaign__identity", "campaign__credential__vendor").first()
        moved = _Moving(found).move_messages() if found else Moved()
    if moved.messages:
        alarms.MOVED_TO_NEXT_VENDOR.log(log, moved.messages, parent_id)
        failpoints.here("after_reroute")
    return moved


class _Moving:
    """The moves of one parent, whose family is locked, and their record."""

    def __init__(self, parent: Job) -> None:
        self._parent = parent
        free = Q(status__in=FREE, stopped_at=None)
        self._children = list(Job.objects.filter(free, parent=parent.pk).order_by("pk"))
        self._earlier = list(
            RouteMove.objects.filter(campaign=parent.campaign_id).values_list("first_message", "size", "came_from")
        )
        self._moves: list[RouteMove] = []

    def move_messages(self) -> Moved:
        parent = self._parent
        route: Any = parent.campaign.route
        logins = {parent.credential_id, *(one.credential_id for one in self._children)}
        reasons = closed_reasons(logins, route.patience)
        if not any(one.why for one in reasons.values()):
            return Moved()
        closed = _abridge_reasons(reasons, parent.sponsor_id)
        self._entries, self._at = route_states(parent.campaign), _database_time()
        open_ones = [one.credential for one in self._entries if not one.why]
        self._quotas = ports.gates.open_moves(parent.sponsor_id, open_ones)
        if closed[parent.credential_id] and parent.status in UNCUT and parent.remaining:
            self._move_rest(closed[parent.credential_id])
        for child in self._children:
            if closed[child.credential_id]:
                self._move_from(child, closed[child.credential_id])
        if self._moves and closed[parent.credential_id] and not parent.remaining:
            # None of the parent's own messages is left to show who sends them.
            Job.objects.filter(pk=parent.pk).update(**_login_columns(self._moves[-1].went_to))
        return self._record_moves()

    def _open_targets(self, first: int, source: int) -> list[RouteState]:
        """Return the entries that take work and never had these messages. They go round the route at most once.

        Entries unreachable at their last call come last.
        """
        had = {source, *(left for begin, size, left in self._earlier if begin <= first < begin + size)}
        open_ones = [one for one in self._entries if not one.why and one.credential.pk not in had]
        return sorted(open_ones, key=lambda one: one.credential.unreached_since is not None)

    def _find_admitting(self, targets: list[RouteState], vendor_id: int, messages: int) -> RouteState | None:
        """Return the first target whose vendor is the present one (vendor_id), or has room in the sponsor's quotas."""
        return next(
            (
                one
                for one in targets
                if one.credential.vendor_id == vendor_id or not self._quotas.find_refusal(one.credential, messages)
            ),
            None,
        )

    def _move_rest(self, why: str) -> None:
        """Move the part not cut yet."""
        parent, first = self._parent, self._parent.end - self._parent.remaining
        waiting = parent.remaining - parent.remaining_suppressed
        target = self._find_admitting(self._open_targets(first, parent.credential_id), parent.vendor_id, waiting)
        if target is None:
            return
        rest = (first, self._parent.end)
        self._write_move(None, rest, waiting, parent.credential_id, target.credential, why)
        Job.objects.filter(pk=parent.pk).update(**_login_columns(target.credential), not_before=None, waits_for="")
        failpoints.here("mid_reroute")

    def _move_from(self, child: Job, why: str) -> None:
        """Move the child's runs of uncalled messages."""
        targets = self._open_targets(child.first_message, child.credential_id)
        waiting = _movable_runs(child) if targets else {}
        target = self._find_admitting(targets, child.vendor_id, sum(waiting.values())) if waiting else None
        if target is None:
            return
        runs = list(waiting)
        login = target.credential
        freed: dict[str, Any] = {"fence": F("fence") + 1, "next_message": None, "not_before": None}
        freed |= {"waits_for": "", "heartbeat_at": None, "mailcaster": None}
        mine = Job.objects.filter(pk=child.pk)
        with connection.cursor() as cursor:  # a deferral was the other vendor's wish
            firsts, ends = zip(*runs, strict=True)
            cursor.execute(NOT_PUT_OFF, {"firsts": list(firsts), "ends": list(ends)})
        if runs == [(child.first_message, child.end)]:
            move(mine, "hand_on", **_login_columns(login), **freed, started_at=None)
            self._write_move(child.pk, runs[0], waiting[runs[0]], child.credential_id, login, why)
            return
        kept, *further = _slices_between(child, runs)
        mine.update(first_message=kept[0], size=kept[1] - kept[0], **freed)
        failpoints.here("mid_reroute")
        apart = [_make_sibling(child, run, started_at=child.started_at) for run in further]
        for run in runs:
            gone = _make_sibling(child, run, **_login_columns(login), status=S.DISPATCHED)
            self._write_move(gone.pk, run, waiting[run], child.credential_id, login, why)
            apart.append(gone)
        staying = [child.pk, *(one.pk for one in apart[: len(further)])]
        with connection.cursor() as cursor:
            cursor.execute(RECOUNT, {"jobs": [child.pk, *(one.pk for one in apart)]})
            cursor.execute(DONE_WITH, {"jobs": staying})
            ended = [job_id for (job_id,) in cursor.fetchall()]
        move(Job.objects.filter(pk__in=ended), "part")

    def _write_move(self, job: int | None, run: Slice, waiting: int, source: int, to: Credential, why: str) -> None:
        row = RouteMove(
            campaign_id=self._parent.campaign_id, parent=self._parent, job_id=job, first_message=run[0],
            size=run[1] - run[0], messages=waiting, came_from_id=source, went_to=to, at=self._at, reason=why[:255],
        )  # fmt: skip
        self._moves.append(row)

    def _record_moves(self) -> Moved:
        """Store the moves, and add one history entry to the job for each pair of vendors."""
        if not self._moves:
            return Moved()
        RouteMove.objects.bulk_create(self._moves)
        sums: dict[tuple[int, Credential, str], int] = {}
        for one in self._moves:
            key = one.came_from_id, one.went_to, one.reason
            sums[key] = sums.get(key, 0) + one.messages
        names = {login.pk: str(login) for login in Credential.objects.select_related("vendor").filter(
            pk__in={source for source, _, _ in sums}).defer("secret")}  # fmt: skip
        sentences = [
            (self._parent.pk, Said(GO_BY, count=messages, source=names[source], target=str(to), why=why))
            for (source, to, why), messages in sums.items()
        ]
        history.record_changes(Actor(ITSELF), Job, sentences)
        return Moved(sum(sums.values()), frozenset(to.vendor_id for _, to, _ in sums))


@dataclass(frozen=True, slots=True)
class RouteStay:
    """Why another vendor of its route takes nothing of a job now; why: "" if it takes it.

    brief: the same for those who may not read the vendor's own reason. is_permitted: the job's sponsor may use it.
    """

    target: str
    why: str
    brief: str
    is_permitted: bool

    @property
    def sentence(self) -> Said:
        return Said(TAKES_NONE, target=self.target, why=self.why)

    @property
    def for_sponsor(self) -> Said:
        return Said(TAKES_NONE, target=self.target, why=self.brief)


def describe_stays(jobs: Iterable[Job]) -> dict[int, list[RouteStay]]:
    """Return, for each open parent with a route, the answers of the route's other vendors, as they would be asked now.

    Takes a fixed number of statements for any number of jobs; none if no job has a route.
    """
    found = [job for job in jobs if job.status in OPEN and job.campaign.route_id]
    if not found:
        return {}
    seen = states_of({job.campaign_id for job in found})
    asked = [
        (job, one)
        for job in found
        for one in seen[job.campaign_id]
        if not one.why and one.credential.vendor_id != job.vendor_id
    ]
    waiting = {job.pk: job.remaining - job.remaining_suppressed or 1 for job in found}
    refusals = ports.gates.refuse_moves([(job.sponsor_id, one.credential, waiting[job.pk]) for job, one in asked])
    over = {(job.pk, one.credential.pk): why for (job, one), why in zip(asked, refusals, strict=True)}
    had = _had_by(found)
    stays: dict[int, list[RouteStay]] = {job.pk: [] for job in found}
    for job in found:
        for one in seen[job.campaign_id]:
            if one.credential.pk != job.credential_id:
                own = HAD if (job.pk, one.credential.pk) in had else over.get((job.pk, one.credential.pk), "")
                stay = RouteStay(str(one.credential), one.why or own, one.brief or own, one.is_permitted)
                stays[job.pk].append(stay)
    return stays


def oldest_routed(credential_ids: Collection[int]) -> list[int]:
    """Return the oldest open parent with a route of each credential, among its vendor's oldest ones."""
    with connection.cursor() as cursor:
        cursor.execute(OLDEST, {"logins": list(credential_ids), "open": list(OPEN), "most": MOST_OLDEST})
        return [pk for (pk,) in cursor.fetchall()]


def _had_by(jobs: Sequence[Job]) -> set[tuple[int, int]]:
    """Return the jobs, each with a credential that had its uncut messages already: they go round a route once."""
    firsts = [job.end - job.remaining if job.remaining else job.first_message for job in jobs]
    with connection.cursor() as cursor:
        cursor.execute(HAD_BY, {"jobs": [job.pk for job in jobs], "firsts": firsts})
        return set(cursor.fetchall())


def describe_stay(job: Job) -> list[str]:
    """Say why each other vendor of the route takes nothing of an open parent, as it would be asked now."""
    return [one.sentence for one in describe_stays([job]).get(job.pk, ()) if one.why]


def _abridge_reasons(closed: dict[int, ClosedReason], sponsor_id: int) -> dict[int, str]:
    """Abridge reasons before they are stored with the sponsor's job, except for vendors the sponsor owns."""
    if ownership.are_alone():
        return {login: one.why for login, one in closed.items()}
    own = set(Credential.objects.filter(vendor__owner=sponsor_id, pk__in=closed).values_list("pk", flat=True))
    return {login: one.why if login in own else one.brief for login, one in closed.items()}


def _movable_runs(child: Job) -> dict[Slice, int]:
    """Return the child's movable runs, in order, with the number of waiting messages in each.

    While a lost sender's call is in doubt, the called messages stay in one piece.
    """
    with connection.cursor() as cursor:
        slice = {"job": child.pk, "first": child.first_message, "end": child.end, "most": MOST_PIECES}
        cursor.execute(RUNS, slice)
        runs = {(first, end): waiting for first, end, waiting in sorted(cursor.fetchall())}
        cursor.execute(SETTLED, slice)
        cursor.execute(NO_CLAIM, [child.pk])
        if cursor.fetchone()[0]:
            return runs
    return {run: its for run, its in runs.items() if run[0] == child.first_message or run[1] == child.end}


def _slices_between(child: Job, runs: list[Slice]) -> list[Slice]:
    """Return the child's slices between these runs; at least one."""
    edges = [child.first_message, *(edge for run in runs for edge in run), child.end]
    return [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if begin < end]


def _make_sibling(child: Job, run: Slice, **facts: Any) -> Job:
    """Create a sibling of this child for one slice of its messages."""
    copied = {name: getattr(child, name) for name in COPIED}
    row = {**copied, "fence": child.fence + 1, "first_message": run[0], "size": run[1] - run[0], **facts}
    return Job.objects.create(**row)


def _login_columns(login: Credential) -> dict[str, int]:
    return {"vendor_id": login.vendor_id, "credential_id": login.pk}


def _database_time() -> datetime:
    """Return the database's time. Read it after locking, so that every earlier call has an earlier time."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        at: datetime = cursor.fetchone()[0]
    return at
