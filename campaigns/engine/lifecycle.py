"""The life of a job: the locks that a decision about it needs, its statuses, and the one function that changes them.

The statuses come from documents 000 (Rendered, Dispatched, Sending), 001 (the six states of a job) and 003 (the P_
states of a parent). docs/states.md is generated from MOVES.

Locks are statements of their own. In READ COMMITTED a statement sees the rows as of its start. One that both waits for
a lock and reads would decide on values from before the wait. Code that decides about a job or its messages therefore
locks the job first and reads in the next statement; by then nothing else can change the rows.

Locks are taken in one order: jobs by id, so that a parent comes before its children, then messages. They are released
at the end of the transaction.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import OperationalError, connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now
from django.db.transaction import TransactionManagementError
from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import LockNotAvailable

from campaigns.engine import failpoints, merging
from campaigns.models.states import S, Status

Returned = TypeVar("Returned")
# Longest waits for a lock: for code that will run again anyway, and for code that keeps others waiting.
LOCKED_MOST, LOCKED_BRIEFLY = "5s", "200ms"

# NO KEY, so that a new child or session may refer to the row at the same time.
HOLD = "SELECT id FROM campaigns_job WHERE id = ANY(%(jobs)s) ORDER BY id FOR NO KEY UPDATE"
HOLD_FREE = f"{HOLD} SKIP LOCKED"
HOLD_CHILDREN = "SELECT id FROM campaigns_job WHERE parent_id = ANY(%(parents)s) ORDER BY id FOR NO KEY UPDATE"
OF_CAMPAIGN = """
SELECT id FROM campaigns_job WHERE campaign_id = ANY(%(campaigns)s) AND parent_id IS {parent}
ORDER BY id FOR NO KEY UPDATE
"""
HOLD_WHOLE, HOLD_PARTS = OF_CAMPAIGN.format(parent="NULL"), OF_CAMPAIGN.format(parent="NOT NULL")
# Children are cut only from uncalled messages. But a move by a route may split a child during this wait, and a called
# message may then be in a new child, not locked here. Nothing is lost: counters are changed by differences.
HOLD_AROUND = """
SELECT id FROM campaigns_job WHERE id IN (
    SELECT j.id FROM campaigns_message m JOIN campaigns_job j ON j.campaign_id = m.campaign_id
        AND m.id >= j.first_message AND m.id < j.first_message + j.size
    WHERE m.id = ANY(%(messages)s)
) ORDER BY id FOR NO KEY UPDATE
"""


def hold_jobs(job_ids: Iterable[int]) -> list[int]:
    """Lock these jobs until the transaction ends, and merge their answers. Returns the ids of those that exist."""
    return _lock_and_merge((HOLD, {"jobs": list(job_ids)}))


def hold_family(job_id: int) -> list[int]:
    """Lock a job and its parent, then all children that existed when it was locked. Merges like `hold_jobs`."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT parent_id FROM campaigns_job WHERE id = %s AND parent_id IS NOT NULL", [job_id])
        family = [job_id, *(parent for (parent,) in cursor.fetchall())]
    return _lock_and_merge((HOLD, {"jobs": family}), (HOLD_CHILDREN, {"parents": [job_id]}))


def hold_campaign(campaign_id: int) -> list[int]:
    """Lock all jobs of a campaign, including children cut during the wait for their parents. Merges like
    `hold_jobs`.
    """
    return hold_campaigns([campaign_id])


def hold_campaigns(campaign_ids: Iterable[int]) -> list[int]:
    """Lock all jobs of these campaigns, as `hold_campaign` does."""
    campaigns = {"campaigns": list(campaign_ids)}
    return _lock_and_merge((HOLD_WHOLE, campaigns), (HOLD_PARTS, campaigns))


def hold_around(message_ids: Iterable[int]) -> list[int]:
    """Lock the jobs that contain these messages, both parents and leaves. Merges like `hold_jobs`."""
    return _lock_and_merge((HOLD_AROUND, {"messages": list(message_ids)}))


def free_jobs(job_ids: Iterable[int]) -> list[int]:
    """Return those of the jobs that nobody has locked now. It does not wait, and keeps no lock afterwards.

    For callers that look again soon, like the sweep: one locked job must not delay all the others.
    """
    ids = list(job_ids)
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(HOLD_FREE, {"jobs": ids})
        return [job_id for (job_id,) in cursor.fetchall()]


def wait_at_most(span: str = "") -> None:
    """Limit the wait for each lock in this transaction. For tasks that run again anyway.

    A thread that waits for a lock does nothing else. span: in PostgreSQL's notation, such as "1s"; LOCKED_MOST if
    empty.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [span or LOCKED_MOST])


@contextmanager
def tells_locked() -> Iterator[None]:
    """Raise LockNotAvailable if a lock in the block takes longer than the connection allows.

    The connection stays usable.
    """
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        connection.errors_occurred = False
        raise error.__cause__ from None


@contextmanager
def passes_locked() -> Iterator[None]:
    """End the block silently if a lock takes longer than allowed: the sweep does its work later."""
    with suppress(LockNotAvailable), tells_locked():
        yield


def unless_locked(function: Callable[..., Returned], *args: Any) -> Returned | None:
    """Return the function's result, or None if a lock took longer than LOCKED_MOST. Its work is then rolled back.

    For tasks whose work the sweep also does. Most locks are gone within milliseconds, but some stay for an hour.
    """
    with passes_locked(), transaction.atomic():
        wait_at_most()
        return function(*args)
    return None


def _lock_and_merge(*locks: tuple[str, Mapping[str, Any]]) -> list[int]:
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


async def execute_holding(
    connection: AsyncConnection[Any],
    statement: str,
    params: Mapping[str, Any],
    *,
    jobs: Sequence[int] = (),
    messages: Sequence[int] = (),
) -> AsyncCursor[Any]:
    """Execute the statement while these jobs, or the jobs that contain these messages, are locked as by `hold_jobs`.

    This does not use a pipeline, although that would save round trips. PostgreSQL does not count a client that freezes
    inside a pipeline as idle, so the locks would last until it wakes.
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


async def merge_answers(connection: AsyncConnection[Any], job_ids: Sequence[int], *, free: bool = False) -> set[int]:
    """Merge the answers that senders have appended for these jobs; return the jobs merged. free: skip locked jobs.

    A merge that waits for one job keeps its locks on all earlier ones.
    """
    async with connection.transaction():
        rows = await connection.execute(HOLD_FREE if free else HOLD, {"jobs": list(job_ids)})
        held = [job_id for (job_id,) in await rows.fetchall()]
        if held:
            failpoints.here("before_merge")
            await connection.execute(merging.MERGE, {"jobs": held})
            failpoints.here("mid_merge")
    return set(held)


# The look-ups of document 000, by the labels that users see.
GROUPS: dict[str, tuple[Status, ...]] = {
    "Rendered": (S.RENDERED,),
    "Dispatched": (S.READY, S.DISPATCHED, S.P_QUEUED),
    "Sending": (S.ENQUEUED, S.SENDING, S.RECOVERING, S.P_ASSIGNING, S.P_ASSIGNED),
    "Sent": (S.SENT, S.LOGGED, S.P_FINISHED),
    "Stopped": (S.STOPPED, S.P_STOPPED),
}
# The job's last calls are answered, but a stop left uncalled messages. A stop after the last call leaves none. For a
# parent the status says so: it is P_FINISHED only if no child of it is cut short.
CALLED = F("accepted") + F("refused") + F("expired") + F("suppressed") + F("in_doubt")  # or ended without a call
CUT_SHORT = Q(status=S.LOGGED, stopped_at__isnull=False, size__gt=CALLED)


def sql_list(statuses: Iterable[Status]) -> str:
    """Return the statuses as SQL literals, so that the planner walks an index in order and knows their row counts."""
    return "(" + ", ".join(f"'{status}'" for status in statuses) + ")"


def group_condition(name: str, among: Container[Status] = Status) -> Q:
    """Match the jobs of a group, among these statuses: by status, but CUT_SHORT jobs belong to the stopped."""
    group = GROUPS[name]
    found = Q(status__in=[one for one in group if one in among])
    if S.LOGGED in group:
        return found & ~CUT_SHORT
    return found | CUT_SHORT if S.STOPPED in group and S.LOGGED in among else found


@dataclass(frozen=True, slots=True)
class Move:
    """A legal change of status. who: for readers; but a change by a "person" also increments the job's revision."""

    sources: tuple[Status, ...]
    target: Status
    who: str
    why: str


MOVES: dict[str, Move] = {
    # leaf jobs
    "dispatch": Move((S.RENDERED, S.READY), S.DISPATCHED, "dispatcher", "the casters of its vendor may take it"),
    "await_quota": Move(
        (S.RENDERED,), S.READY, "dispatcher", "its night has come, and a quota of its sponsor holds it"
    ),
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
    """Make this move for those of the jobs that may, with one conditional UPDATE. Returns how many moved.

    sets: other columns to change. Nothing else changes a status; a job is created with its first one. A person's move
    also increments the job's revision, so if two users decide on the same revision, exactly one succeeds.
    """
    step = MOVES[verb]
    sets.setdefault("status_at", Now())
    if step.who == "person":
        sets.setdefault("revision", F("revision") + 1)
    return jobs.filter(status__in=step.sources).update(status=step.target, **sets)


def move_statement(verb: str, where: str, *sets: str) -> str:
    """Return `move` as an UPDATE statement, for code that runs for every job.

    The ORM would take longer to build the statement than PostgreSQL takes to run it. where: a condition on the rows;
    sets: "column = expression" for other columns. Both are SQL.
    """
    step = MOVES[verb]
    counted = ("revision = revision + 1",) if step.who == "person" else ()
    changes = ", ".join((f"status = '{step.target}'", "status_at = statement_timestamp()", *counted, *sets))
    return f"UPDATE campaigns_job SET {changes} WHERE status IN {sql_list(step.sources)} AND {where}"
