"""Records what calls came to, and what becomes of the job: record, expire, drain, put back.

A result exists nowhere else until it is stored, so results have connections of their own and are tried for a minute. An
acceptance is recorded whoever reports it and however late (promise P3).
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import Error as DjangoError
from django.db import connection as django_connection
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from psycopg import AsyncConnection, Connection, InterfaceError, InternalError, OperationalError
from psycopg import Error as RowsError
from psycopg.rows import TupleRow

from campaigns import failpoints, ground_truth
from campaigns.claiming.claims import REACHED, Lease
from campaigns.connections import Connections
from campaigns.failover import guard
from campaigns.lifecycle import HOLD, hold, holding, move
from campaigns.models import Job
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused

log = logging.getLogger(__name__)

CallResult = tuple[int, Outcome]
NO_DATABASE = (OperationalError, InterfaceError, InternalError, DjangoError)  # Internal: it is read-only now


# One row for each answer. Acceptance always wins. A refusal, or a proof that nothing was sent, counts only for the
# attempt that it belongs to: the row must still have that attempt's fence. A message that the vendor puts off again
# waits for as long as it has waited since the first time, from a minute to an hour, and up to half as long more, so
# that not all come back at once. The lock is part of the statement, because this is the busiest one: it locks the job
# first, and decides only by rows that it changes or has locked. By ANY(ARRAY[]) a row can only be looked up by
# its key; with = the planner reads all rows of the job in order where it takes ops for nearly empty.
RECORDING = """
WITH held AS ({hold}), answer AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], string_to_array(%(kinds)s, NULL), %(codes)s::text[], %(notes)s::text[], %(waits)s::float8[]
    ) AS a(id, kind, code, note, wait)
), {before} written AS (
    UPDATE campaigns_opsmessage o SET
        sent_at = CASE WHEN a.kind <> 'n' THEN coalesce(o.sent_at, now()) END,
        delivered_at = CASE WHEN a.kind IN ('a', 'r') THEN now() END,
        in_doubt_at = CASE WHEN a.kind = 'd' THEN coalesce(o.in_doubt_at, clock_timestamp()) END,
        message_id = CASE WHEN a.kind = 'a' THEN a.code END,
        error_code = CASE WHEN a.kind = 'r' THEN a.code END,
        error_sub_type = CASE WHEN a.kind IN ('r', 'd') THEN a.note END,
        put_off_at = CASE WHEN a.wait > 0 THEN coalesce(o.put_off_at, clock_timestamp()) ELSE o.put_off_at END,
        call_after = CASE WHEN a.wait > 0 THEN clock_timestamp() + interval '1 second' * greatest(a.wait, least(3600,
            (1 + random() / 2) * greatest(60, extract(epoch FROM clock_timestamp() - o.put_off_at)))) END
    FROM {answers} a
    WHERE o.id = ANY(ARRAY[a.id]) AND o.job_id = (SELECT id FROM held) AND o.message_id IS NULL {only}
        AND (a.kind = 'a' OR o.fence = %(fence)s AND o.sent_at IS NOT NULL AND o.delivered_at IS NULL)
    RETURNING o.id, o.units, a.kind, {doubted} AS doubted, {failed} AS failed
), sums AS (
    SELECT count(*) FILTER (WHERE kind = 'a') AS accepted, count(*) FILTER (WHERE kind = 'r') AS refused,
        count(*) FILTER (WHERE kind = 'd' AND NOT doubted) - count(*) FILTER (WHERE kind <> 'd' AND doubted) AS doubts,
        count(*) FILTER (WHERE failed) AS unfailed,
        coalesce(sum(units) FILTER (WHERE kind <> 'n' AND NOT doubted AND NOT failed), 0) AS units
    FROM written
), counted AS (
    UPDATE campaigns_job j SET accepted = j.accepted + sums.accepted,
        refused = greatest(0, j.refused + sums.refused - sums.unfailed),
        in_doubt = greatest(0, j.in_doubt + sums.doubts), units = j.units + sums.units,
        heartbeat_at = CASE WHEN j.fence = %(fence)s THEN clock_timestamp() ELSE j.heartbeat_at END
    FROM sums WHERE j.id = %(job)s
), plotted AS (
    INSERT INTO vendors_minute AS was (vendor_id, sponsor, at, share, accepted, refused, in_doubt, units)
    SELECT j.vendor_id, j.sponsor_id, date_trunc('minute', now()), j.id %% 16,
        s.accepted, s.refused, greatest(0, s.doubts), s.units
    FROM campaigns_job j, sums s WHERE j.id = %(job)s AND s.accepted + s.refused + greatest(0, s.doubts) > 0
    ON CONFLICT (at, vendor_id, sponsor, share) DO UPDATE SET accepted = was.accepted + excluded.accepted,
        refused = was.refused + excluded.refused, in_doubt = was.in_doubt + excluded.in_doubt,
        units = was.units + excluded.units
)
SELECT array_agg(id) FROM written
"""
# For the first answer to a call, as nearly all are: the row need not be read before.
RECORD = RECORDING.format(
    hold=HOLD, before="", answers="answer", only="AND o.in_doubt_at IS NULL AND o.error_code IS NULL",
    doubted="false", failed="false",
)  # fmt: skip
# For all other answers the row is locked and read first, which costs a fifth more.
RECORD_AGAIN = RECORDING.format(
    hold=HOLD, answers="before", only="", doubted="a.in_doubt_at IS NOT NULL", failed="a.error_code IS NOT NULL",
    before="""before AS (
    SELECT a.*, o.in_doubt_at, o.error_code FROM answer a JOIN campaigns_opsmessage o ON o.id = ANY(ARRAY[a.id])
    WHERE o.job_id = (SELECT id FROM held) FOR NO KEY UPDATE OF o
),""",
)  # fmt: skip

KINDS = {Accepted: "a", Refused: "r", NotSent: "n", InDoubt: "d"}


async def record(connection: AsyncConnection[TupleRow], lease: Lease, answers: Sequence[CallResult]) -> None:
    """Stores what calls came to. Recording twice, or after the job was lost, does no harm (promise P3)."""
    failpoints.here("before_record")
    left = answers
    for statement in (RECORD, RECORD_AGAIN):
        written = await _record(connection, lease, left, statement)
        left = [answer for answer in left if answer[0] not in written]
        if not left:
            break
    else:
        late = [(id, _stored(answer.vendor_id)) for id, answer in left if isinstance(answer, Accepted)]
        if late:  # their job was finalised meanwhile
            await ground_truth.accept(connection, late)
    failpoints.here("after_record")


async def _record(
    connection: AsyncConnection[TupleRow], lease: Lease, answers: Sequence[CallResult], statement: str
) -> set[int]:
    """Executes one of the two statements; returns the ids of the messages that it changed."""
    codes, notes, waits = zip(*[_columns(outcome) for _, outcome in answers], strict=True)
    params: dict[str, Any] = {
        "ids": f"{{{','.join([str(id) for id, _ in answers])}}}",
        "kinds": "".join([KINDS[type(outcome)] for _, outcome in answers]),
        "codes": _array(codes),
        "notes": _array(notes),
        "waits": list(waits) if any(waits) else None,
    }
    params |= {"job": lease.job_id, "jobs": f"{{{lease.job_id}}}", "fence": lease.fence}
    row = await (await connection.execute(statement, params)).fetchone()
    return set(row[0] or ()) if row else set()


def _array(texts: Sequence[str | None]) -> str | None:
    """An array as PostgreSQL writes it, which costs a fifth of a list as parameter; None stands for one of NULLs."""
    if not any(texts):
        return None
    escaped = [None if one is None else one.replace("\\", "\\\\").replace('"', '\\"') for one in texts]
    return "{" + ",".join(["NULL" if one is None else f'"{one}"' for one in escaped]) + "}"


def _columns(outcome: Outcome) -> tuple[str | None, str | None, float | None]:
    """(code, note, seconds for which the vendor puts off this message) of an outcome."""
    match outcome:
        case Accepted(vendor_id):
            return _stored(vendor_id), None, None
        case Refused(code, sub_type):
            return _stored(code), _stored(sub_type) or None, None
        case InDoubt(reason):
            return None, _stored(reason), None
        case NotSent(puts_off=True, retry_after=wait):
            return None, None, wait
    return None, None, None


def _stored(text: str) -> str:
    """The text as the columns can hold it."""
    return text.replace("\0", "\ufffd")[:255]


class Recorder:
    """Stores the results of one job.

    refused: why nothing may be called any more: the database refuses our statements, as its tables are of another
    version.
    """

    def __init__(self, lease: Lease, connections: Connections) -> None:
        self._lease, self._rows = lease, connections.results
        self.refused = ""

    async def store(self, answers: list[CallResult]) -> None:
        """Stores results; tries for a minute if the database is lost or refuses, then raises its error."""
        for pause in (0.1, 0.2, 0.5, 1, 2, 3, 5, 5, 5, 10, 10, 10):
            try:
                return await self._store(answers)
            except NO_DATABASE as error:
                log.warning("job %s: results wait for the database: %s", self._lease.job_id, error)
            except RowsError as error:  # somebody may restore the old tables
                self.refuse(error)
            await asyncio.sleep(pause)
        return await self._store(answers)

    async def _store(self, answers: list[CallResult]) -> None:
        async with self._rows.one() as connection:
            await record(connection, self._lease, answers)

    def refuse(self, error: Exception) -> str:
        """Notes that the database refused a statement; returns why nothing is called."""
        log.error("job %s: the schema does not match this version: %s", self._lease.job_id, error)
        self.refused = guard.OTHER_TABLES
        return self.refused


EXPIRE = """
WITH held AS (
    SELECT FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING'
), late AS (
    UPDATE campaigns_opsmessage SET error_code = 'expired',
        error_sub_type = to_char(put_off_at AT TIME ZONE 'UTC', '"put off since" YYYY-MM-DD HH24:MI "UTC"')
    WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
        AND EXISTS (SELECT FROM held)
        AND (%(put_off)s::interval IS NULL OR put_off_at <= clock_timestamp() - %(put_off)s::interval)
    RETURNING id
)
UPDATE campaigns_job SET expired = expired + (SELECT count(*) FROM late) WHERE id = %(job)s
"""


async def expire(
    connection: AsyncConnection[TupleRow], lease: Lease, first: int, end: int, put_off: timedelta | None = None
) -> None:
    """Lets messages expire that were not called: the campaign's deadline has passed.

    put_off: only those that the vendor has put off for that long.
    """
    params = {"job": lease.job_id, "fence": lease.fence, "first": first, "end": end, "put_off": put_off}
    await holding(connection, EXPIRE, params, jobs=[lease.job_id])


LEFT = f"""
SELECT ({REACHED}) < %(end)s OR (
    SELECT id FROM campaigns_opsmessage
    WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
    ORDER BY id LIMIT 1
) IS NOT NULL
"""


DUE = """
SELECT min(call_after) FROM campaigns_opsmessage
WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s AND sent_at IS NULL AND error_code IS NULL
HAVING min(coalesce(call_after, '-infinity')) > clock_timestamp()
"""


def due(connection: Connection, lease: Lease, first: int, end: int) -> datetime | None:
    """When the first message may be called if the vendor has put off all that are left; else None."""
    row = connection.execute(DUE, {"job": lease.job_id, "first": first, "end": end}).fetchone()
    return row[0] if row else None


def drain(connection: Connection, lease: Lease, first: int, end: int) -> bool:
    """SENDING -> SENT if nothing is left to claim or to enqueue; whether it did."""
    row = connection.execute(LEFT, {"job": lease.job_id, "first": first, "end": end}).fetchone()
    if row is None or row[0]:
        return False
    failpoints.here("before_drain")
    drained = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "drain") == 1
    failpoints.here("after_drain")
    return drained


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """Why the stream ended. drained: nothing was left. until: when it may go on; reason: why it waits.

    held: the job itself waits until then; else its credential does, which an operator may open earlier. paused: only an
    operator lets it go on.
    """

    drained: bool = False
    until: datetime | None = None
    reason: str = ""
    held: bool = False
    paused: bool = False


def put_off(until: datetime) -> StreamEnd:
    """The vendor has put off all that is left; no sender waits for it."""
    return StreamEnd(until=until, reason="some are to be tried again", held=True)


# A sender records every call that it started before it puts a job back. What else it has claimed it does not know of:
# the database's answer to that claim was lost.
UNCALLED = """
UPDATE campaigns_opsmessage o SET sent_at = NULL
FROM campaigns_job j
WHERE j.id = %(job)s AND o.id >= j.first_message AND o.id < j.first_message + j.size AND o.job_id = j.id
    AND o.fence = %(fence)s AND o.sent_at IS NOT NULL AND o.delivered_at IS NULL AND o.in_doubt_at IS NULL
"""


def put_back(job_id: int, fence: int, *, not_before: Any = None, waits_for: str = "", paused: bool = False) -> bool:
    """Puts back a job that has something left: it is DISPATCHED again, not to be taken before `not_before`.

    All calls must be recorded. paused: somebody has to resume it, and equal refusals are counted anew then. False: the
    job was stopped, or another sender has it.
    """
    changes = {"not_before": not_before, "waits_for": waits_for[:255], "heartbeat_at": None, "mailcaster": None}
    if paused:
        changes["refusals_from"] = Now()
    failpoints.here("before_put_back")
    with transaction.atomic(), django_connection.cursor() as cursor:
        hold([job_id])
        cursor.execute(UNCALLED, {"job": job_id, "fence": fence})
        done = move(Job.objects.filter(pk=job_id, fence=fence), "put_back", **changes) == 1
    failpoints.here("after_put_back")
    return done


def in_a_minute() -> datetime:
    """When to try again after a failure before any call."""
    return timezone.now() + timedelta(minutes=1)
