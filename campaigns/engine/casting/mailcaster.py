"""Step 3, cast: a mailcaster takes its next leaf, or cuts one (document 003).

First it chooses class and sponsor (`turns/order.py`), then a job of theirs by the ranks of its kind.

Locks are taken in one order: the mailcaster, the job, its exclusive credential. Rows locked by another claim are
skipped. Claims therefore wait for each other only for an exclusive credential and for the last remaining parent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from campaigns.engine import failpoints
from campaigns.engine.failover import guard
from campaigns.engine.lifecycle import move_statement, sql_list
from campaigns.engine.sending_hours import campaign_opens_at, describe_opening
from campaigns.engine.threads import columns_of
from campaigns.engine.turns.order import CALLABLE, COMPARED, TAKE_TURN, UNCUT, Turn, order_turns
from campaigns.engine.turns.reserve import NOTED, is_kept
from campaigns.models import HOLDING, Campaign, Job
from campaigns.models.states import PARENTS, RUNNING, WAITING, S, Status
from vendors.mail_classes import MailClass
from vendors.models import Credential, Mailcaster


def child_size(remaining: int, minimum: int, maximum: int, percentage: float) -> int:
    """Return min(remaining, clamp(floor(percentage/100 * remaining), minimum, maximum)), in messages (document 003).

    The percentage applies to the remaining messages: 4 % of 3000 is the document's 120. It is read as a decimal, so 4 %
    of 11,000 is 440, not 439 through rounding of floats. The last child may be smaller than the minimum.
    """
    share = int(Fraction(repr(percentage)) * remaining / 100)
    return min(remaining, max(minimum, min(maximum, share)))


# The wait of a job after it was put back. Otherwise an overdue job that could not even expire would be taken again
# right away, forever, before all younger jobs.
SOON = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Rank:
    """One step of a priority order: jobs in these statuses, either children or small jobs and parents."""

    statuses: tuple[Status, ...]
    children: bool = False

    @property
    def job_condition(self) -> str:
        """SQL condition on rows j of a vendor."""
        return f"j.vendor_id = %(vendor)s AND {self.jobs}"

    @property
    def jobs(self) -> str:
        """SQL condition on rows j. Statuses are literals, so that the planner walks the index job_pick in order."""
        parent = "NOT NULL" if self.children else "NULL"
        return f"j.status IN {sql_list(self.statuses)} AND j.parent_id IS {parent}"


BUSY = f"EXISTS (SELECT FROM campaigns_job WHERE mailcaster_id = m.id AND status IN {sql_list(RUNNING)})"
WAITS = f"EXISTS (SELECT FROM campaigns_job WHERE vendor_id = %(vendor)s AND status IN {sql_list(WAITING)})"
URGENT_WAITS = f"{WAITS[:-1]} AND mail_class = {MailClass.URGENT.value})"
SMALL_WAITS = f"EXISTS (SELECT FROM campaigns_job j WHERE j.vendor_id = %(vendor)s AND {Rank(WAITING[:2]).jobs})"
IDLE = f"""WITH idle AS (
    SELECT m.id, m.name, m.kind FROM vendors_mailcaster m WHERE m.vendor_id = %(vendor)s AND m.enabled AND NOT {BUSY}
        AND CASE WHEN m.kind = '{Mailcaster.Kind.SMALL_ONLY}' THEN {SMALL_WAITS} ELSE {WAITS} END
), {NOTED}
SELECT id, name FROM idle"""


def _fetch_row(statement: str, **params: Any) -> Any:
    """Return the first row of the statement, or None."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchone()


LOCK = f"""SELECT {columns_of(Mailcaster, "m")} FROM vendors_mailcaster m
WHERE id = %(caster)s AND enabled AND EXISTS ({guard.KNOWN}) FOR NO KEY UPDATE SKIP LOCKED"""


def lock_mailcaster(caster_id: int) -> Mailcaster | None:
    """Lock and return the mailcaster. None: it is disabled, another claim has it, or nothing may be called."""
    row = _fetch_row(LOCK, caster=caster_id)
    return Mailcaster(*row) if row else None


class Candidates(NamedTuple):
    """ranks: the mailcaster's ranks with any job in them; exclusive: its vendor has exclusive credentials.

    turns: the classes and sponsors with waiting jobs, the one whose turn it is first; empty if there is only one.
    kept: only urgent jobs may be taken (turns/reserve.py).
    """

    ranks: list[Rank]
    exclusive: bool
    turns: list[Turn]
    kept: bool = False


def find_candidates(caster: Mailcaster, ranks: tuple[Rank, ...]) -> Candidates | None:
    """Return the candidates of a locked mailcaster with one statement.

    None: it has a running job, or is kept for urgent jobs and none waits.
    """
    busy, exclusive, kept, urgent, compared, *some = _fetch_row(
        _candidates_statement(ranks), caster=caster.pk, vendor=caster.vendor_id
    )
    if busy or (kept and not urgent):
        return None
    found = [rank for rank, any_job in zip(ranks, some, strict=True) if any_job]
    turns = order_turns(compared) if compared and found else []
    return Candidates(found, exclusive, [one for one in turns if not kept or one.mail_class == MailClass.URGENT], kept)


@cache
def _candidates_statement(ranks: tuple[Rank, ...]) -> str:
    exclusive = "EXISTS (SELECT FROM vendors_credential WHERE vendor_id = m.vendor_id AND exclusive)"
    seen = [BUSY, exclusive, is_kept("m.vendor_id"), URGENT_WAITS, COMPARED]
    seen += [f"EXISTS (SELECT FROM campaigns_job j WHERE {rank.job_condition})" for rank in ranks]
    return f"SELECT {', '.join(seen)} FROM vendors_mailcaster m WHERE m.id = %(caster)s"


# A job past its deadline is taken regardless of any obstacle and then expires. Subqueries replace joins: expecting one
# row of a join, the planner may sort all waiting jobs instead of walking to the first one.
PICK = f"""
SELECT {columns_of(Job, "j")}, (SELECT l.exclusive FROM vendors_credential l WHERE l.id = j.credential_id) AS exclusive,
    (SELECT c.send_at IS NOT NULL OR c.hours_from IS NOT NULL FROM campaigns_campaign c WHERE c.id = j.campaign_id)
        AS timed
FROM campaigns_job j
WHERE {{rank}} AND {UNCUT} {{passed_over}} AND (
    SELECT (coalesce(j.not_before <= %(now)s, true) OR c.deadline <= %(now)s AND j.not_before > %(soon)s)
        AND (c.deadline <= %(now)s OR {CALLABLE.format(now="%(now)s")})
    FROM campaigns_campaign c, vendors_credential l, vendors_vendor v
    WHERE c.id = j.campaign_id AND l.id = j.credential_id AND v.id = j.vendor_id
)
ORDER BY j.id LIMIT 1 FOR NO KEY UPDATE OF j
"""
# The first job that may be sent now, by classes and sponsors in the order of their turns, then by ranks. The rows of
# unnest come in order, and LIMIT ends the loop at the first job: sorting them would lock a job of each sponsor.
IN_TURN = f"""
WITH picked AS (
    SELECT found.*, turn.*
    FROM unnest(%(classes)s::smallint[], %(sponsors)s::bigint[], %(starts)s::float8[], %(clocks)s::float8[])
            AS turn(turn_class, sponsor, start, clock)
        CROSS JOIN LATERAL ({{by_rank}} LIMIT 1) found
    LIMIT 1
), taken AS (
    {TAKE_TURN}
)
SELECT * FROM picked
"""


class PickedJob(NamedTuple):
    """A locked job. exclusive: its credential is; timed: its campaign has a send time or sending hours."""

    job: Job
    exclusive: bool
    timed: bool


def pick_job(
    vendor_id: int, rank: Rank, holders: Mapping[int, int], now: datetime, *, wait: bool = False
) -> PickedJob | None:
    """Lock and return the oldest job of the rank that may be sent now.

    wait: wait for a locked job instead of skipping it.
    """
    statement = PICK.format(rank=rank.job_condition, passed_over=_pass_over(holders)) + ("" if wait else "SKIP LOCKED")
    row = _fetch_row(statement, vendor=vendor_id, now=now, soon=now + SOON)
    return PickedJob(Job(*row[:-2]), *row[-2:]) if row else None


def pick_in_turn(
    vendor_id: int, ranks: Sequence[Rank], turns: Sequence[Turn], holders: Mapping[int, int], now: datetime
) -> PickedJob | None:
    """Lock and return the next job of the first turn that has one to be sent now, and note that turn."""
    held, of_sponsor = _pass_over(holders), "AND j.mail_class = turn.turn_class AND j.sponsor_id = turn.sponsor"
    picks = (PICK.format(rank=f"{rank.job_condition} {of_sponsor}", passed_over=held) for rank in ranks)
    by_rank = " UNION ALL ".join(f"SELECT * FROM ({one} SKIP LOCKED) r{n}" for n, one in enumerate(picks))
    classes, sponsors, starts, clocks = map(list, zip(*turns, strict=True))
    params = {"classes": classes, "sponsors": sponsors, "starts": starts, "clocks": clocks}
    row = _fetch_row(IN_TURN.format(by_rank=by_rank), vendor=vendor_id, now=now, soon=now + SOON, **params)
    return PickedJob(Job(*row[:-6]), *row[-6:-4]) if row else None


def _pass_over(holders: Mapping[int, int]) -> str:
    """Return the SQL condition that jobs j need no exclusive credential in use by another campaign."""
    return " ".join(f"AND NOT (j.credential_id = {login} AND j.campaign_id <> {its})" for login, its in holders.items())


def holders_of_credentials(credentials: "QuerySet[Credential]") -> dict[int, int]:
    """Return {exclusive credential: the campaign that uses it} for these credentials (document 001).

    A started job has precedence over a parent between two children. A retried parent therefore waits while another
    campaign is being sent, and of two such parents the older one continues.
    """
    holding = Job.objects.filter(HOLDING, credential__in=credentials.filter(exclusive=True))
    jobs = holding.annotate(between=Q(status__in=(S.P_ASSIGNING, S.P_ASSIGNED)))
    rows = jobs.order_by("credential_id", "between", "id").distinct("credential_id")
    return dict(rows.values_list("credential_id", "campaign_id"))


def is_credential_free(job: Job) -> bool:
    """Lock the job's exclusive credential; return True if it may serve this job.

    The lock makes concurrent claims see each other.
    """
    login = Credential.objects.filter(pk=job.credential_id)
    login.select_for_update(no_key=True).values_list("pk").get()
    return holders_of_credentials(login).get(job.credential_id, job.campaign_id) == job.campaign_id


TAKEN = "fence = fence + 1, heartbeat_at = statement_timestamp(), mailcaster_id = %(caster)s, waits_for = ''"
STARTED = "started_at = coalesce(started_at, %(now)s), not_before = NULL"
TAKE = f"{move_statement('enqueue', 'id = %(job)s', TAKEN, STARTED)} RETURNING fence"


def take_leaf(job: Job, caster: Mailcaster, now: datetime) -> int:
    """Take a locked leaf for the mailcaster; return the fence of this claim."""
    (fence,) = _fetch_row(TAKE, job=job.pk, caster=caster.pk, now=now)
    failpoints.here("after_pick")
    return int(fence)


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A leaf taken by a mailcaster. fence: the number of this claim. parent_id: set for a child. size: in messages."""

    job_id: int
    fence: int
    parent_id: int | None
    size: int = field(default=0, compare=False)


CUT = """
INSERT INTO campaigns_job (campaign_id, sponsor_id, vendor_id, credential_id, parent_id, suppressions, mailcaster_id,
    mail_class, status, fence, heartbeat_at, first_message, size, suppressed, created_at, dispatched_at, started_at,
    paused_at, remaining, revision, accepted, refused, in_doubt, expired, waits_for, stopped_by)
SELECT campaign_id, sponsor_id, vendor_id, credential_id, id, suppressions, %(caster)s, mail_class, 'ENQUEUED', 1,
    statement_timestamp(), next.first, %(size)s, CASE WHEN remaining_suppressed > 0 THEN (
        SELECT count(*) FROM campaigns_message
        WHERE id >= next.first AND id < next.first + %(size)s AND error_code = 'suppressed') ELSE 0 END,
    %(now)s, %(now)s, %(now)s, coalesce(paused_at, CASE WHEN %(to_expire)s THEN statement_timestamp() END),
    0, 0, 0, 0, 0, 0, '', ''
FROM campaigns_job p, LATERAL (SELECT p.first_message + p.size - p.remaining AS first) next WHERE id = %(parent)s
RETURNING id, suppressed
"""
ASSIGN, ASSIGNED = (
    move_statement("assign", "id = %(parent)s", "started_at = %(now)s"),
    move_statement("assigned", "id = %(parent)s"),
)
LEFT = """
UPDATE campaigns_job SET remaining = remaining - %(size)s, remaining_suppressed = remaining_suppressed - %(suppressed)s,
    not_before = NULL, waits_for = '' WHERE id = %(parent)s
"""


def cut_child(parent: Job, caster: Mailcaster, size: int, now: datetime) -> ClaimedJob:
    """Cut the next `size` messages of a locked parent into a child, taken by the mailcaster under fence 1."""
    its: dict[str, Any] = {"parent": parent.pk, "caster": caster.pk, "size": size, "now": now}
    its["to_expire"] = parent.is_kept_back
    with connection.cursor() as cursor:
        cursor.execute(CUT, its)
        child_id, suppressed = cursor.fetchone()
        if parent.status == S.P_QUEUED:
            cursor.execute(ASSIGN, its)
        cursor.execute(LEFT, its | {"suppressed": suppressed})
        if size == parent.remaining:
            cursor.execute(ASSIGNED, its)
    failpoints.here("after_cut")
    return ClaimedJob(child_id, 1, parent.pk, size)


def postpone_jobs(campaign: Campaign, statuses: Sequence[Status], until: datetime, reason: str) -> int:
    """Make all jobs of a campaign in these statuses wait until then, except locked ones. Returns how many."""
    jobs = Job.objects.filter(campaign=campaign, status__in=statuses).exclude(not_before__gt=until)
    mine = jobs.order_by("id").select_for_update(no_key=True, skip_locked=True).values("pk")
    return Job.objects.filter(pk__in=mine).update(not_before=until, waits_for=reason[:255])


# Within a rank the oldest job comes first. Only kinds that cut parents take children: Small Only never recovers one.
SMALL = (Rank((S.RECOVERING,)), Rank((S.DISPATCHED,)))
PARENT = (Rank((S.P_ASSIGNING,)), Rank((S.P_QUEUED,)))
LARGE = (Rank((S.RECOVERING,), children=True), Rank((S.DISPATCHED,), children=True), *PARENT)
ORDER: dict[str, tuple[Rank, ...]] = {
    Mailcaster.Kind.SMALL_ONLY: SMALL,
    Mailcaster.Kind.SMALL_PRIORITY: SMALL + LARGE,
    Mailcaster.Kind.LARGE_PRIORITY: LARGE + SMALL,
    Mailcaster.Kind.LARGE_ONLY: LARGE,
}
FIRST_TURNS = 20  # turns whose jobs are looked at by the first statement; mostly one of them has a job that may go
ANY_PARENT = Rank((S.P_ASSIGNING, S.P_QUEUED))


@dataclass(frozen=True, slots=True)
class _Closed:
    """The picked job is outside its campaign's sending hours until then."""

    campaign: Campaign
    until: datetime


class _Refused:
    """The picked job's exclusive credential has since been taken by another campaign."""


def claim_next_job(caster_id: int, now: datetime, *, wait: bool = True) -> ClaimedJob | None:
    """Claim the mailcaster's next job in one short transaction. None: it is busy or disabled, or nothing waits for it.

    The job becomes ENQUEUED and leased to the mailcaster. At a parent's turn, a child is cut. Jobs outside their
    campaign's sending hours are postponed on the way. wait: also wait for the only parent while another claim cuts it.
    """
    while True:
        with transaction.atomic():
            caster = lock_mailcaster(caster_id)
            found = _find_next_step(caster, now, wait) if caster else None
        if isinstance(found, _Closed):
            with transaction.atomic():
                postpone_jobs(found.campaign, WAITING, found.until, describe_opening(found.campaign, found.until))
        elif not isinstance(found, _Refused):  # the end of the transaction has released that job and its credential
            return found


def idle_casters(vendor_id: int) -> list[int]:
    """Return the enabled mailcasters without a running job, if any waiting job is for them: MC2 before MC10."""
    with connection.cursor() as cursor:
        cursor.execute(IDLE, {"vendor": vendor_id})
        return [caster_id for caster_id, _ in sorted(cursor.fetchall(), key=lambda row: _natural_sort_key(row[1]))]


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)]


def _find_next_step(caster: Mailcaster, now: datetime, wait: bool) -> ClaimedJob | _Closed | _Refused | None:
    seen = find_candidates(caster, ORDER[caster.kind])
    if seen is None:
        return None
    held = holders_of_credentials(Credential.objects.filter(vendor=caster.vendor_id)) if seen.exclusive else {}
    if seen.turns:
        for turns in (seen.turns[:FIRST_TURNS], seen.turns[FIRST_TURNS:]):
            if turns and (
                found := _decide_on_candidate(caster, pick_in_turn(caster.vendor_id, seen.ranks, turns, held, now), now)
            ):
                return found
    else:
        for rank in seen.ranks:
            if found := _decide_on_candidate(caster, pick_job(caster.vendor_id, rank, held, now), now):
                return found
    # Another claim may be cutting the only parent. Waiting is worth it, because there is more to cut.
    if wait and not seen.kept and any(rank in PARENT for rank in seen.ranks):
        return _decide_on_candidate(caster, pick_job(caster.vendor_id, ANY_PARENT, held, now, wait=True), now)
    return None


def _decide_on_candidate(
    caster: Mailcaster, found: PickedJob | None, now: datetime
) -> ClaimedJob | _Closed | _Refused | None:
    if found is None:
        return None
    until = campaign_opens_at(found.job.campaign, now) if found.timed else None
    if until:
        return _Closed(found.job.campaign, until)
    if found.exclusive and not is_credential_free(found.job):
        return _Refused()
    return _take_or_cut(caster, found.job, now)


def _take_or_cut(caster: Mailcaster, job: Job, now: datetime) -> ClaimedJob:
    if job.status not in PARENTS:
        return ClaimedJob(job.pk, take_leaf(job, caster, now), job.parent_id, job.size)
    size = child_size(job.remaining, caster.min_size, caster.max_size, caster.percentage)
    return cut_child(job, caster, min(size, job.left_to_cut), now)
