"""Recording the results of calls (append, then merge), and expiring messages not called in time."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import orjson
from django.db import Error as DjangoError
from psycopg import AsyncConnection, InterfaceError, InternalError, OperationalError, ProgrammingError
from psycopg import Error as RowsError
from psycopg.rows import TupleRow

from campaigns.engine import failpoints
from campaigns.engine.claiming.claims import PermittedCall
from campaigns.engine.claiming.letters import Lease
from campaigns.engine.connections import SharedRows
from campaigns.engine.failover import guard
from campaigns.engine.lifecycle import execute_holding, merge_answers
from campaigns.engine.refusal_runs.known_runs import KnownRuns, RunPart
from campaigns.engine.refusal_runs.run_rows import RunKey
from campaigns.engine.sending.receiver_runs import ReceiverRuns
from campaigns.engine.suppressed.recent import SuppressedRecipient
from campaigns.engine.threads import wait_for_event
from campaigns.models.states import OWN_ENDS
from vendors import alarms, histograms
from vendors.causes import AnswerCause
from vendors.condition.feeding import ConditionFeeds
from vendors.outcomes import RETRY_MAX, Accepted, InDoubt, NotSent, Outcome, Refused

log = logging.getLogger(__name__)

NO_DATABASE = (OperationalError, InterfaceError, InternalError, DjangoError)  # InternalError: it is read-only now
MERGE_AFTER = 0.3  # seconds from an answer to its merge, unless MERGE_FROM comes first
MERGE_PATIENCE = 2.0  # seconds that the end of a stream waits for its merge
MERGE_FROM = 1_000  # unmerged answers
EXPIRED_AT_ONCE = 20_000


class CallResult(NamedTuple):
    """A permitted call and its outcome."""

    call: PermittedCall
    outcome: Outcome | SuppressedRecipient


class JobResults(NamedTuple):
    """Call results of one job. key: the run of equal refusals extended by them, beside its credential's."""

    lease: Lease
    results: Sequence[CallResult]
    key: RunKey | None = None


APPEND = """
INSERT INTO campaigns_answerbatch
    (job_id, fence, claim_id, called_at, last, messages, kinds, codes, notes, causes, waits, units)
SELECT * FROM json_to_recordset(%(batches)s::json) AS a(job bigint, fence int, claim bigint, called_at timestamptz,
    last boolean, messages bigint[], kinds text, codes text[], notes text[], causes text[], waits float8[],
    units int[])
"""
EXISTING = "SELECT id FROM campaigns_job WHERE id = ANY(%(jobs)s)"
KINDS: dict[type, str] = dict(
    zip((Accepted, Refused, NotSent, InDoubt, SuppressedRecipient), ("a", "r", "n", "d", "s"), strict=True)
)


async def append_all(connection: AsyncConnection[TupleRow], answers: Sequence[JobResults], runs: KnownRuns) -> None:
    """Store call results like `append_results`, and extend runs of equal refusals with them."""
    parts = sorted(_split_by_run(answers, runs), key=lambda one: one.key)
    if not parts:
        await append_results(connection, answers)
        return
    full: list[bool] = []
    async with connection.transaction():
        for part in parts:
            code, sub_type, *_ = answer_columns(part.refusal)
            full.append(await part.note(connection, code or "", sub_type or ""))
        await append_results(connection, answers)
    for part, is_full in zip(parts, full, strict=True):
        runs.part_noted(part, is_full)


def _split_by_run(answers: Iterable[JobResults], runs: KnownRuns) -> Iterator[RunPart]:
    by_key = defaultdict[RunKey, list[JobResults]](list)
    for one in answers:
        for key in (one.key, one.key.credential_key) if one.key else ():
            by_key[key].append(one)
    for key, its in by_key.items():
        said = ((result.call.message.id, result.outcome) for one in its for result in one.results)
        if part := runs.read_part(key, said):
            yield part


async def append_results(connection: AsyncConnection[TupleRow], answers: Iterable[JobResults]) -> None:
    """Store call results, however late and from any sender. They are merged into the messages later.

    Storing them twice, or after the job was lost, does no harm (promise P3).
    """
    failpoints.here("before_record")
    batches = [batch for one in answers for batch in _answer_batches(one)]
    await connection.execute(APPEND, {"batches": orjson.dumps(batches).decode()})
    failpoints.here("after_record")


def _answer_batches(answers: JobResults) -> Iterator[dict[str, Any]]:
    """Yield rows of AnswerBatch, one for each claim."""
    of_claims: dict[int, list[CallResult]] = {}
    for result in answers.results:
        of_claims.setdefault(result.call.claim.id, []).append(result)
    for results in of_claims.values():
        claim = results[0].call.claim
        codes, notes, causes, waits = zip(*[answer_columns(result.outcome) for result in results], strict=True)
        units = [len(result.call.permits) for result in results]
        yield {
            "job": answers.lease.job_id,
            "fence": answers.lease.fence,
            "claim": claim.id,
            "called_at": claim.at,
            "last": claim.left == len(results),
            "messages": [result.call.message.id for result in results],
            "kinds": "".join([KINDS[type(result.outcome)] for result in results]),
            "codes": codes if any(code is not None for code in codes) else None,
            "notes": notes if any(notes) else None,
            "causes": causes if any(causes) else None,
            "waits": waits if any(waits) else None,
            "units": units if any(one != 1 for one in units) else None,
        }


class AnswerColumns(NamedTuple):
    """The stored part of an outcome. wait: seconds until the vendor takes the message or reports on it."""

    code: str | None = None
    note: str | None = None
    cause: str | None = None
    wait: float | None = None


def answer_columns(outcome: Outcome | SuppressedRecipient) -> AnswerColumns:
    """Return the stored part of an outcome, beside its kind."""
    match outcome:
        case Accepted(vendor_id):
            return AnswerColumns(_storable_answer_text(vendor_id))
        case Refused(code, sub_type, cause):
            code = _storable_answer_text(f"vendor: {code}" if code in OWN_ENDS else code)
            return AnswerColumns(code, _storable_answer_text(sub_type) or None, cause.value)
        case InDoubt(reason, wait=wait):
            return AnswerColumns(note=_storable_answer_text(reason), wait=wait or None)
        case SuppressedRecipient(reason):
            return AnswerColumns(note=_storable_answer_text(reason), cause=AnswerCause.RECIPIENT.value)
        case NotSent(cause=cause, retry_after=wait):
            known = None if cause == AnswerCause.UNKNOWN else cause.value  # often nobody was asked
            return AnswerColumns(cause=known, wait=min(wait or 0.0, RETRY_MAX) if outcome.puts_off else None)


def _storable_answer_text(text: str) -> str:
    """Return the text as a column can store it. One unstorable text would fail the whole batch."""
    if not text.isascii():
        text = text.encode(errors="replace").decode()
    return text.replace("\0", "\ufffd")[:255]


def tables_refuse(error: Exception) -> str:
    """Log that the database refused a statement; return why nothing is called."""
    alarms.OTHER_SCHEMA.log(log, error)
    return guard.OTHER_TABLES


class Recorder:
    """Stores the results of all streams of a process in batches, and merges them soon after.

    A result exists nowhere else until it is stored, so results have connections of their own and are retried for a
    minute. refusals: how often the database has refused our statements because its tables are of another version. A
    stream that began before the last refusal makes no more calls.
    """

    def __init__(self, rows: SharedRows) -> None:
        self.refusals, self._rows = 0, rows
        self.receiver_runs = ReceiverRuns()
        self.conditions = ConditionFeeds(rows)
        self.runs = KnownRuns()
        self._waiting: list[tuple[JobResults, asyncio.Future[None]]] = []
        self._due = float("inf")  # until then the waiting results may wait for more
        self._hurry = asyncio.Event()
        self._storing: asyncio.Task[None] | None = None
        self._unmerged: dict[int, int] = {}  # number of answers by job
        self._many = asyncio.Event()
        self._merging: asyncio.Task[None] | None = None
        self._ended: set[int] = set()  # jobs whose stream waits for their merge
        self._next: asyncio.Task[None] | None = None  # merges those in its turn
        self._merges: set[asyncio.Task[None]] = set()  # that task and the one before
        self._closing = False
        self._one_merge = asyncio.Lock()  # so that answers can be stored meanwhile

    async def store_results(
        self, lease: Lease, results: Sequence[CallResult], patience: float = 0.0, key: RunKey | None = None
    ) -> None:
        """Return once the results are stored. They wait up to `patience` seconds for others to share a commit.

        key: as in JobResults. Raises the database's error if storing has failed for a minute.
        """
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((JobResults(lease, results, key), stored))
        if (due := time.monotonic() + patience) < self._due:
            self._due = due
            self._hurry.set()
        if self._storing is None:
            self._storing = asyncio.create_task(self._store_all())
        await stored
        for result in results:
            result.call.claim.left -= 1
        self._is_unmerged(lease.job_id, len(results))
        if sum(self._unmerged.values()) >= MERGE_FROM:
            self._many.set()

    async def merge_ended(self, job_id: int) -> None:
        """Merge the answers of a job whose stream has ended, together with others that wait for the same.

        Any later lock of the job would merge them too, but with a statement that PostgreSQL has to plan first. Waits at
        most MERGE_PATIENCE; after that the merge continues in the background.
        """
        if job_id not in self._unmerged:
            return
        self._ended.add(job_id)
        if self._next is None:
            self._next = asyncio.create_task(self._merge_all_ended())
            self._merges.add(self._next)
            self._next.add_done_callback(self._merges.discard)
        await asyncio.wait([self._next], timeout=MERGE_PATIENCE)

    async def close(self) -> None:
        """Store and merge everything left; answers of locked jobs are left to the sweep."""
        self._closing = True
        self._due = 0.0
        self._hurry.set()
        self._many.set()
        for task in (self._storing, self._merging, *self._merges):
            if task is not None:
                await asyncio.wait([task])
        await self.conditions.close()

    async def _store_all(self) -> None:
        while self._waiting:
            while (wait := self._due - time.monotonic()) > 0:
                self._hurry.clear()
                await wait_for_event(self._hurry, wait)
            together, self._waiting, self._due = self._waiting, [], float("inf")
            failed = await self._store_batch([answers for answers, _ in together])
            ours = failed is not None and not isinstance(failed, RowsError | DjangoError)
            for answers, stored in together:
                # An error in one answer must not harm other streams.
                error = await self._store_batch([answers]) if ours else failed
                if stored.done():  # its stream was cut off
                    continue
                if error is None:
                    stored.set_result(None)
                else:
                    stored.set_exception(error)
        self._storing = None

    async def _store_batch(self, answers: Sequence[JobResults]) -> Exception | None:
        for pause in (0.1, 0.2, 0.5, 1, 2, 3, 5, 5, 5, 10, 10, 10, 0):
            try:
                async with self._rows.lend_connection() as connection:
                    began = time.monotonic()
                    await append_all(connection, answers, self.runs)
                    histograms.counts.observe_value(histograms.STATEMENT, "store", time.monotonic() - began)
                return None
            except NO_DATABASE as error:
                alarms.RESULTS_WAIT.log(log, sum(len(one.results) for one in answers), error)
                failed: Exception = error
            except RowsError as error:  # somebody may restore the old tables
                tables_refuse(error)
                self.refusals += 1
                failed = error
            except Exception as error:
                return error
            await asyncio.sleep(pause)
        return failed

    async def _merge_soon(self) -> None:
        while self._unmerged:
            await wait_for_event(self._many, MERGE_AFTER)
            self._many.clear()
            async with self._one_merge:
                await self._merge_jobs(list(self._unmerged))
        self._merging = None

    async def _merge_all_ended(self) -> None:
        async with self._one_merge:
            ended, self._ended, self._next = self._ended, set(), None
            await self._merge_jobs(job for job in ended if job in self._unmerged)

    def _is_unmerged(self, job_id: int, answers: int = 0) -> None:
        self._unmerged[job_id] = self._unmerged.get(job_id, 0) + answers
        if self._merging is None:
            self._merging = asyncio.create_task(self._merge_soon())

    async def _merge_jobs(self, unmerged: Iterable[int]) -> None:
        jobs = list(unmerged)
        for job in jobs:
            del self._unmerged[job]
        if not jobs:
            return
        try:
            async with self._rows.lend_connection() as connection:
                began = time.monotonic()
                merged = await merge_answers(connection, jobs, free=True)
                histograms.counts.observe_value(histograms.STATEMENT, "merge", time.monotonic() - began)
                locked = set(jobs) - merged
                if locked:
                    rows = await connection.execute(EXISTING, {"jobs": list(locked)})
                    locked = {job for (job,) in await rows.fetchall()}
        except ProgrammingError as error:  # as in `_store_batch`
            tables_refuse(error)
            self.refusals += 1
        except RowsError as error:  # the next lock of one of these jobs merges its answers too
            alarms.ANSWERS_NOT_MERGED.log(log, len(jobs), error)
        else:
            for job in () if self._closing else locked:
                self._is_unmerged(job)


# Messages in flight look as if they wait, but they are in a claim.
EXPIRE = """
WITH held AS (
    SELECT FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING'
), late AS (
    UPDATE campaigns_message SET dequeued_at = clock_timestamp(), error_code = 'expired',
        error_sub_type = coalesce(
            to_char(put_off_at AT TIME ZONE 'UTC', '"put off since" YYYY-MM-DD HH24:MI "UTC"'),
            to_char(call_after AT TIME ZONE 'UTC', '"quiet hours until" YYYY-MM-DD HH24:MI "UTC"'))
    WHERE id >= %(low)s AND id < %(high)s AND dequeued_at IS NULL AND EXISTS (SELECT FROM held)
        AND id NOT IN (SELECT unnest(c.messages) FROM campaigns_claim c
            WHERE c.job_id = %(job)s AND c.fence = %(fence)s)
        AND (%(put_off)s::interval IS NULL OR put_off_at <= clock_timestamp() - %(put_off)s::interval)
    RETURNING id
)
UPDATE campaigns_job SET expired = expired + (SELECT count(*) FROM late), heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND EXISTS (SELECT FROM held)
"""


async def expire_uncalled(
    connection: AsyncConnection[TupleRow], lease: Lease, first: int, end: int, put_off: timedelta | None = None
) -> None:
    """Expire messages not called by the campaign's deadline.

    put_off: only those that the vendor has put off for that long. Works in slices, so that a stop does not wait for
    long.
    """
    for low in range(first, end, EXPIRED_AT_ONCE):
        params = {"job": lease.job_id, "fence": lease.fence, "put_off": put_off}
        params |= {"low": low, "high": min(low + EXPIRED_AT_ONCE, end)}
        await execute_holding(connection, EXPIRE, params, jobs=[lease.job_id])
