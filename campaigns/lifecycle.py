"""The life of a job: the locks that a decision about it needs, its statuses, and the one function that changes them.

The statuses come from documents 000 (Rendered, Dispatched, Sending), 001 (the six states of a job) and 003 (the P_
states of a parent); docs/states.md is made from MOVES.

Locks are statements of their own. In READ COMMITTED a statement sees the rows as they were when it began, so one that
both waits for a lock and reads would decide on values from before the wait. Code that decides about a job or its
messages therefore locks the job first and reads in the next statement, when nothing else can change what it reads.

Locks are taken in one order: jobs by id, so that a parent comes before its children, then messages. They are released
when the transaction ends.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import OperationalError, connection, models, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.db.transaction import TransactionManagementError
from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import LockNotAvailable

from campaigns import failpoints, merging

Returned = TypeVar("Returned")
# How long a lock is waited for: by those who come again, and by those for whom others wait meanwhile.
LOCKED_MOST, LOCKED_BRIEFLY = "5s", "200ms"

# NO KEY, so that a new child or session may refer to the row meanwhile.
HOLD = "SELECT id FROM campaigns_job WHERE id = ANY(%(jobs)s) ORDER BY id FOR NO KEY UPDATE"
HOLD_FREE = f"{HOLD} SKIP LOCKED"
HOLD_CHILDREN = "SELECT id FROM campaigns_job WHERE parent_id = ANY(%(parents)s) ORDER BY id FOR NO KEY UPDATE"
OF_CAMPAIGN = """
SELECT id FROM campaigns_job WHERE campaign_id = %(campaign)s AND parent_id IS {parent} ORDER BY id FOR NO KEY UPDATE
"""
HOLD_WHOLE, HOLD_PARTS = OF_CAMPAIGN.format(parent="NULL"), OF_CAMPAIGN.format(parent="NOT NULL")
# Children are cut from messages that were never called. When a move by a route parts a child meanwhile, a called
# message may be in a new one, which is not locked here: nothing is lost, as counters are changed by what they differ.
HOLD_AROUND = """
SELECT id FROM campaigns_job WHERE id IN (
    SELECT j.id FROM campaigns_message m JOIN campaigns_job j ON j.campaign_id = m.campaign_id
        AND m.id >= j.first_message AND m.id < j.first_message + j.size
    WHERE m.id = ANY(%(messages)s)
) ORDER BY id FOR NO KEY UPDATE
"""


def hold(job_ids: Iterable[int]) -> list[int]:
    """Locks these jobs until the transaction ends, and merges their answers; returns the ids of those that exist."""
    return _hold((HOLD, {"jobs": list(job_ids)}))


def hold_family(job_id: int) -> list[int]:
    """Locks a job and its parent, then those of its children that were cut before it was locked; merges as `hold`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT parent_id FROM campaigns_job WHERE id = %s AND parent_id IS NOT NULL", [job_id])
        family = [job_id, *(parent for (parent,) in cursor.fetchall())]
    return _hold((HOLD, {"jobs": family}), (HOLD_CHILDREN, {"parents": [job_id]}))


def hold_campaign(campaign_id: int) -> list[int]:
    """Locks all jobs of a campaign, also those that were cut while it waited for their parents; merges as `hold`."""
    campaign = {"campaign": campaign_id}
    return _hold((HOLD_WHOLE, campaign), (HOLD_PARTS, campaign))


def hold_around(message_ids: Iterable[int]) -> list[int]:
    """Locks the jobs that contain these messages, parents and leaves; merges as `hold`."""
    return _hold((HOLD_AROUND, {"messages": list(message_ids)}))


def free(job_ids: Iterable[int]) -> list[int]:
    """Those of the jobs that nobody has locked now; waits for nobody, and holds none once it has returned.

    For whoever looks again soon, like the sweep: one job that somebody has locked must not hold up all the others.
    """
    ids = list(job_ids)
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(HOLD_FREE, {"jobs": ids})
        return [job_id for (job_id,) in cursor.fetchall()]


def wait_at_most(span: str = "") -> None:
    """For each lock, in this transaction: for tasks that come again, as a thread that waits does nothing else.

    span: as PostgreSQL writes it, "1s"; LOCKED_MOST if it is empty.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [span or LOCKED_MOST])


@contextmanager
def tells_locked() -> Iterator[None]:
    """Raises LockNotAvailable if the block has waited for a lock for as long as its connection may; that stays good."""
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        connection.errors_occurred = False
        raise error.__cause__ from None


@contextmanager
def passes_locked() -> Iterator[None]:
    """Ends the block, and nothing else, where it has waited for a lock for as long as it may: it is swept for, too."""
    with suppress(LockNotAvailable), tells_locked():
        yield


def unless_locked(function: Callable[..., Returned], *args: Any) -> Returned | None:
    """What the function returns; None if it would have waited for a lock for more than LOCKED_MOST, which undoes it.

    For tasks whose work the sweep does, too: many pass such a lock within milliseconds, some keep it for an hour.
    """
    with passes_locked(), transaction.atomic():
        wait_at_most()
        return function(*args)
    return None


def _hold(*locks: tuple[str, Mapping[str, Any]]) -> list[int]:
    if not connection.in_atomic_block:
        raise TransactionManagementError("outside of a transaction nothing stays held")
    held: list[int] = []
    with connection.cursor() as cursor:
        for statement, params in locks:
            cursor.execute(statement, params)
            held += [job_id for (job_id,) in cursor.fetchall()]
        cursor.execute(merging.WAITING_ANSWERS, {"jobs": held})
        if cursor.fetchone()[0]:
            failpoints.here("before_merge")
            cursor.execute(merging.MERGE, {"jobs": held})
            failpoints.here("mid_merge")
    return held


async def holding(
    connection: AsyncConnection[Any],
    statement: str,
    params: Mapping[str, Any],
    *,
    jobs: Sequence[int] = (),
    messages: Sequence[int] = (),
) -> AsyncCursor[Any]:
    """Executes the statement while these jobs, or the jobs that contain these messages, are locked, as by `hold`.

    It does not use a pipeline, although that would save round trips: PostgreSQL does not count a client that freezes
    in the middle of one as idle, and would keep the locks for as long as that lasts.
    """
    async with connection.transaction():
        if jobs or messages:
            lock = HOLD if jobs else HOLD_AROUND
            rows = await connection.execute(lock, {"jobs": list(jobs), "messages": list(messages)})
            held = [job_id for (job_id,) in await rows.fetchall()]
            waiting = await (await connection.execute(merging.WAITING_ANSWERS, {"jobs": held})).fetchone()
            if waiting and waiting[0]:
                failpoints.here("before_merge")
                await connection.execute(merging.MERGE, {"jobs": held})
                failpoints.here("mid_merge")
        return await connection.execute(statement, params)


async def merge(connection: AsyncConnection[Any], job_ids: Sequence[int], *, free: bool = False) -> set[int]:
    """Merges what senders have appended for these jobs; returns whose it was. free: only jobs that nobody has locked.

    A merge that waits for one job keeps all others locked that it has locked so far.
    """
    async with connection.transaction():
        rows = await connection.execute(HOLD_FREE if free else HOLD, {"jobs": list(job_ids)})
        held = [job_id for (job_id,) in await rows.fetchall()]
        if held:
            failpoints.here("before_merge")
            await connection.execute(merging.MERGE, {"jobs": held})
            failpoints.here("mid_merge")
    return set(held)


class Status(models.TextChoices):
    """The statuses of jobs: of leaves first, then of parents."""

    RENDERED = "RENDERED", "Rendered"
    READY = "READY", "Ready"
    DISPATCHED = "DISPATCHED", "Dispatched"
    ENQUEUED = "ENQUEUED", "Enqueued"
    SENDING = "SENDING", "Sending"
    RECOVERING = "RECOVERING", "Recovering"
    SENT = "SENT", "Sent"
    STOPPED = "STOPPED", "Stopped"
    LOGGED = "LOGGED", "Logged"
    P_QUEUED = "P_QUEUED", "Parent queued"
    P_ASSIGNING = "P_ASSIGNING", "Parent assigning"
    P_ASSIGNED = "P_ASSIGNED", "Parent assigned"
    P_FINISHED = "P_FINISHED", "Parent finished"
    P_STOPPED = "P_STOPPED", "Parent stopped"


S = Status
PARENTS = (S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED, S.P_FINISHED, S.P_STOPPED)
RUNNING = (S.ENQUEUED, S.SENDING)  # claimed by a mailcaster, or being sent; has a lease
DONE = (S.LOGGED, S.P_FINISHED)
# The look-ups of document 000, by the labels that users see.
GROUPS: dict[str, tuple[Status, ...]] = {
    "Rendered": (S.RENDERED,),
    "Dispatched": (S.READY, S.DISPATCHED, S.P_QUEUED),
    "Sending": (S.ENQUEUED, S.SENDING, S.RECOVERING, S.P_ASSIGNING, S.P_ASSIGNED),
    "Sent": (S.SENT, S.LOGGED, S.P_FINISHED),
    "Stopped": (S.STOPPED, S.P_STOPPED),
}
# Its last calls are answered, but a stop has left messages that were never called. A stop that came after the last call
# has left none. Of a parent its status says the same: it is P_FINISHED only if no child of it is so.
CALLED = F("accepted") + F("refused") + F("expired") + F("suppressed") + F("in_doubt")  # or with an end of its own
CUT_SHORT = Q(status=S.LOGGED, stopped_at__isnull=False, size__gt=CALLED)


def sql_list(statuses: Iterable[Status]) -> str:
    """As literals: the planner walks an index in order by them, and knows how many rows they have."""
    return "(" + ", ".join(f"'{status}'" for status in statuses) + ")"


def in_group(name: str, among: Container[Status] = Status) -> Q:
    """The jobs of a group, of those in these statuses: by their status, and what is CUT_SHORT is among the stopped."""
    group = GROUPS[name]
    found = Q(status__in=[one for one in group if one in among])
    if S.LOGGED in group:
        return found & ~CUT_SHORT
    return found | CUT_SHORT if S.STOPPED in group and S.LOGGED in among else found


@dataclass(frozen=True, slots=True)
class Move:
    """A legal change of status. who: for readers, but a change by a "person" increments the job's revision."""

    sources: tuple[Status, ...]
    target: Status
    who: str
    why: str


MOVES: dict[str, Move] = {
    # leaf jobs
    "dispatch": Move((S.RENDERED, S.READY), S.DISPATCHED, "dispatcher", "the casters of its vendor may take it"),
    "enqueue": Move((S.DISPATCHED, S.RECOVERING), S.ENQUEUED, "mailcaster", "a caster takes it and notifies a sender"),
    "send": Move((S.ENQUEUED,), S.SENDING, "sender", "its messages are claimed and called"),
    "put_back": Move((S.ENQUEUED, S.SENDING), S.DISPATCHED, "sender", "no permit for a while, or shut down"),
    "drain": Move((S.SENDING,), S.SENT, "sender", "nothing is left to pick"),
    "requeue": Move((S.SENT,), S.READY, "finalizer", "a call that seemed lost turned out never to have been made"),
    "recover": Move((S.SENDING,), S.RECOVERING, "sweep", "its heartbeat is too old; mailcasters take it first"),
    "hand_on": Move(
        (S.DISPATCHED, S.RECOVERING),
        S.DISPATCHED,
        "sweep",
        "its vendor has taken none of it: another one of the route has it",
    ),
    "part": Move(
        (S.DISPATCHED, S.RECOVERING),
        S.SENT,
        "sweep",
        "what its vendor has not taken has gone to another one of the route",
    ),
    "stop": Move(
        (S.RENDERED, S.READY, S.DISPATCHED, S.ENQUEUED, S.SENDING, S.RECOVERING),
        S.STOPPED,
        "person",
        "no new call is allowed",
    ),
    "log": Move((S.SENT, S.STOPPED), S.LOGGED, "finalizer", "every call is answered or in doubt, and stored"),
    "retry": Move((S.LOGGED,), S.READY, "person", "the same row, so it keeps its age (document 001)"),
    # parent jobs
    "queue": Move((S.RENDERED, S.READY), S.P_QUEUED, "dispatcher", "large: it is cut into children (document 003)"),
    "assign": Move((S.P_QUEUED,), S.P_ASSIGNING, "mailcaster", "the first child is cut"),
    "assigned": Move((S.P_ASSIGNING,), S.P_ASSIGNED, "mailcaster", "nothing remains to be cut"),
    "finish": Move(
        (S.P_ASSIGNED, S.P_STOPPED),
        S.P_FINISHED,
        "finalizer",
        "all children are logged; no stop has left anything uncalled",
    ),
    "stop_again": Move((S.P_ASSIGNED,), S.P_STOPPED, "finalizer", "all children are logged; a stop has left some"),
    "stop_parent": Move((S.P_QUEUED, S.P_ASSIGNING, S.P_ASSIGNED), S.P_STOPPED, "person", "with all its children"),
    "retry_parent": Move(
        (S.P_STOPPED, S.P_FINISHED), S.P_ASSIGNING, "person", "its children go on, then the rest is cut"
    ),
    "reopen_parent": Move(
        (S.P_STOPPED, S.P_FINISHED), S.P_ASSIGNED, "person", "a child of it is sent again; the rest stays uncut"
    ),
}


def move(jobs: "QuerySet[Any]", verb: str, **sets: Any) -> int:
    """Moves those of the jobs that may make this move, by one conditional UPDATE; returns how many did.

    sets: other columns to change. Nothing else changes a status; a job is created with its first one. A person's move
    also increments the job's revision, so that of two users who decide on the same revision exactly one succeeds.
    """
    step = MOVES[verb]
    sets.setdefault("status_at", Now())
    if step.who == "person":
        sets.setdefault("revision", F("revision") + 1)
    return jobs.filter(status__in=step.sources).update(status=step.target, **sets)


def moving(verb: str, where: str, *sets: str) -> str:
    """`move` as an UPDATE for what is done for each job: Django takes longer to write its own than it takes to run.

    where: a condition on the rows; sets: "column = expression" for other columns to change; both are SQL.
    """
    step = MOVES[verb]
    counted = ("revision = revision + 1",) if step.who == "person" else ()
    changes = ", ".join((f"status = '{step.target}'", "status_at = statement_timestamp()", *counted, *sets))
    return f"UPDATE campaigns_job SET {changes} WHERE status IN {sql_list(step.sources)} AND {where}"
