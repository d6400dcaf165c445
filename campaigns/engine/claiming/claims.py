"""Steps 4 and 5: start a job, claim its messages, begin a new pass. One function for each verb.

A claim is one row with the ids of the messages whose calls may start. It commits before the first of those calls. The
statement checks the fence, so only the sender that has the lease can claim; one given up for dead gets nothing. A
sender claims forward, one claim after another. Before another pass, or before another sender takes the job, every
claimed message has an end or is known to wait. So no message is called under two claims.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import orjson
from django.db import connection as django_connection
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from campaigns.engine import failpoints
from campaigns.engine.claiming.letters import ClaimedMessage, Lease
from campaigns.engine.claiming.limits import Need
from campaigns.engine.failover import guard
from campaigns.engine.lifecycle import execute_holding, move_statement
from vendors import locks
from vendors.adapters.base import Letter
from vendors.condition import brake
from vendors.limits.values import AcquireResult, Scope
from vendors.outcomes import Refused


@dataclass(slots=True)
class OpenClaim:
    """A claim with `left` unanswered messages. at: when its calls became allowed."""

    id: int
    at: datetime
    left: int


class PermittedCall(NamedTuple):
    """A claimed message with its permits. No call may start after `latest` (seconds of time.monotonic).

    letter: set if it has been made already; a Refused means that the message is not called. receiver: set if it has
    limits, so that the permits count in its windows, too.
    """

    message: ClaimedMessage
    claim: OpenClaim
    permits: Sequence[str]
    latest: float
    letter: Letter | Refused | None = None
    receiver: str = ""


STARTED = "fence = fence + 1", "heartbeat_at = statement_timestamp()"
START = f"""{move_statement("send", "id = %(job)s AND fence = %(fence)s", *STARTED)}
RETURNING (SELECT id FROM campaigns_message WHERE id >= coalesce(next_message, first_message)
    AND id < first_message + campaigns_job.size AND dequeued_at IS NULL ORDER BY id LIMIT 1) IS NOT NULL,
    (SELECT adoptions FROM campaigns_store WHERE id = 1)"""


class Started(NamedTuple):
    """The lease of a job that has been started. waits: a message waits at the starting position or after it.

    If none does, earlier messages may still wait; draining the job finds them. adoptions: of the store that started it.
    """

    lease: Lease
    waits: bool
    adoptions: int | None = None


def start_job(job_id: int, fence: int) -> Started | None:
    """Move the job ENQUEUED -> SENDING, if a mailcaster claimed it under this fence.

    Returns None for a duplicate or late notification, or if the job was stopped meanwhile.
    """
    failpoints.here("before_start")
    with django_connection.cursor() as cursor:
        cursor.execute(START, {"job": job_id, "fence": fence})
        row = cursor.fetchone()
    failpoints.here("after_start")
    return Started(Lease(job_id, fence + 1), *row) if row else None


class ToClaim(NamedTuple):
    """The request of one job's sender: claim at most `most` waiting messages from `cursor` on, before `end`.

    closes: nothing is claimed from this time on. units: set where letters differ in cost, or receivers wait or have
    limits: the messages that may be claimed, each with its cost; 0 means it will be refused without a call. Such a job
    claims alone. destination: address, account and key of its adapter's calls (vendors/destinations.py); nothing is
    claimed if the vendor or credential calls elsewhere by now. receivers: for the ledger: the units of each receiver
    with limits.
    """

    lease: Lease
    cursor: int
    end: int
    most: int
    closes: datetime | None = None
    units: Mapping[int, int] | None = None
    destination: int | None = None
    receivers: Mapping[str, int] | None = None

    def cost_of(self, messages: Sequence[ClaimedMessage]) -> int:
        """Return the total units of these messages."""
        return len(messages) if self.units is None else sum(self.units[one.id] for one in messages)


# One statement claims for several jobs of a credential, with a row for each. A job that may not claim gets no row.
#
# Nothing is claimed if the store was taken over or has another version's tables, nor by a sender that began before the
# last adoption. Locks are taken in the usual order. First the jobs' rows, by id: once a stop or a pause has committed,
# nothing more is claimed. Then the vendor's row, then the credential's. A writer of either row waits for earlier claims
# and is seen by later ones: a pause, a brake, a Retry-After, a rebuild of the window, an edit of the limits, a new
# suppression.
# count(*) reads all of `holder`, so every job is locked by then. Everything else is read as of the start of the
# statement; any change of the store raises limits_version (a trigger). The time is read after the locks, and no call is
# allowed once the campaign has closed. If one of the rows stays locked, the statement fails soon
# (lifecycle.LOCKED_BRIEFLY), and LOCKED says which jobs have to wait.
#
# Between the jobs and those two rows, the claim takes its turn behind waiting writers (vendors/locks.py). If it took
# the turn before the jobs, a pause would wait for a claim that itself waits for a job.
#
# An adapter made before the vendor's settings or secret changed calls nobody. The claim stores its destination, because
# a doubt is settled only there.
#
# Messages are read as of the start of the statement, so one of them may have been accepted since by a delivery report
# or a late answer. Nothing is therefore claimed for a job that learned anything during the wait for the locks, nor
# while answers of its previous sender are unmerged.
IN_ORDER = """
            SELECT m.id, m.uuid, m.resend_no, m.recipient, m.params, NULL::int AS cost FROM campaigns_message m
            WHERE m.id >= a.cursor AND m.id < a."end"
                AND m.dequeued_at IS NULL AND (m.call_after IS NULL OR m.call_after <= a.at)
            ORDER BY m.id LIMIT a.most
        """
# Looks up each of the ids, so that the plan does not depend on statistics: many messages that wait for something else
# may stand between them.
LISTED = """
            SELECT m.id, m.uuid, m.resend_no, m.recipient, m.params, u.cost
            FROM unnest(a.ids, a.units) AS u(id, cost)
                CROSS JOIN LATERAL (SELECT * FROM campaigns_message WHERE id = u.id OFFSET 0) m
            WHERE m.dequeued_at IS NULL AND (m.call_after IS NULL OR m.call_after <= a.at)
            ORDER BY m.id LIMIT a.most
        """
CLAIM = f"""
WITH holder AS (
    SELECT a.*, j.learned FROM json_to_recordset(%(asked)s::json) AS a(number int, job bigint, fence int, cursor bigint,
        "end" bigint, most int, closes timestamptz, ids bigint[], units int[], adapter bigint)
    JOIN campaigns_job j ON j.id = a.job
    WHERE j.fence = a.fence AND j.status = 'SENDING' AND j.paused_at IS NULL ORDER BY j.id FOR SHARE OF j
), gate AS (
    SELECT v.suppressions, v.destination + c.destination AS destination
    FROM vendors_vendor v JOIN vendors_credential c ON c.id = %(credential)s
    WHERE v.id = %(vendor)s AND v.generation = %(generation)s AND v.limits_version = %(limits_version)s AND NOT v.paused
        AND NOT c.paused AND {brake.OPEN}
        AND (SELECT {locks.SHARED} FROM (SELECT count(*) AS jobs FROM holder) held WHERE jobs > 0)
        AND EXISTS ({guard.KNOWN} AND s.adoptions = %(adoptions)s)
    FOR SHARE OF v, c
), moment AS (
    SELECT clock_timestamp() AS at, suppressions, destination, nextval('vendors_usage_id_seq') AS ledger FROM gate
), allowed AS (
    SELECT h.*, moment.*, nextval('campaigns_claim_id_seq') AS claim FROM moment, holder h
    WHERE moment.at < coalesce(h.closes, 'infinity') AND coalesce(h.adapter, moment.destination) = moment.destination
        AND h.learned = (SELECT learned FROM campaigns_job WHERE id = h.job)
        AND NOT EXISTS (SELECT FROM campaigns_answerbatch WHERE job_id = h.job AND fence < h.fence)
), picked AS (
    SELECT a.*, p.* FROM allowed a CROSS JOIN LATERAL (
        SELECT array_agg(m.id) AS messages, coalesce(sum(m.cost), count(*)) AS total,
            array_agg(m.cost) FILTER (WHERE m.cost IS NOT NULL) AS costs,
            json_agg(json_build_array(m.id, m.uuid || '-' || m.resend_no, m.recipient, m.params)) AS letters
        FROM ({IN_ORDER}) m
    ) p
), claim AS (
    INSERT INTO campaigns_claim (id, job_id, fence, at, messages, units, destination, ledger)
    SELECT claim, job, fence, at, messages, costs, destination, ledger FROM picked WHERE messages IS NOT NULL
), ledger AS (
    INSERT INTO vendors_usage (id, vendor_id, credential_id, at, until, units, "grant", receivers)
    SELECT ledger, %(vendor)s, %(credential)s, clock_timestamp(), clock_timestamp() + %(hold)s * interval '1 second',
        sum(total), %(grant)s::text, %(receivers)s::jsonb
    FROM picked GROUP BY ledger HAVING sum(total) > 0
)
SELECT number, claim, at, suppressions, letters FROM picked
"""
CLAIM_LISTED = CLAIM.replace(IN_ORDER, LISTED)  # for one job, whose messages are named
# Locks what CLAIM locks for these jobs, in the same order. The turns refer to a row of `j`, which is locked by then.
UNLOCKED = """
WITH j AS (
    SELECT id, vendor_id, credential_id FROM campaigns_job WHERE id = ANY(%(jobs)s) ORDER BY id FOR SHARE{skip}
)
SELECT j.id FROM j JOIN vendors_vendor v ON v.id = j.vendor_id JOIN vendors_credential c ON c.id = j.credential_id
WHERE {turns} FOR SHARE OF v, c{skip}
"""
_NOW_UNLOCKED = UNLOCKED.format(turns=locks.FREE_OF_ROW, skip=" SKIP LOCKED")
# The jobs for which CLAIM would have to wait now. This statement itself never waits.
LOCKED = f"SELECT id FROM campaigns_job WHERE id = ANY(%(jobs)s) AND id <> ALL(ARRAY({_NOW_UNLOCKED}))"


class Claimed(NamedTuple):
    """The result of a claim for one job. claim: None if it was not allowed, or if nothing waits.

    nothing_waits: from the cursor on. suppressions: the position of the last suppression stored before this claim.
    """

    messages: list[ClaimedMessage]
    claim: OpenClaim | None = None
    nothing_waits: bool = False
    suppressions: int = 0


async def claim_for_jobs(
    connection: AsyncConnection[TupleRow], params: Mapping[str, Any], asked: Sequence[ToClaim]
) -> list[Claimed]:
    """Claim for these jobs of one credential and return an item for each, in order.

    Where a claim was not allowed, contexts.read_contexts may say why. params: those that CLAIM names, except `asked`.
    """
    found = [Claimed([])] * len(asked)
    of_receivers = next((orjson.dumps(one.receivers).decode() for one in asked if one.receivers), None)
    known = {"grant": None, "probe": None, **params, "asked": _asks_as_json(asked), "receivers": of_receivers}
    rows = await connection.execute(CLAIM_LISTED if asked[0].units is not None else CLAIM, known)
    for number, claim_id, at, suppressions, letters in await rows.fetchall():
        if letters is None:
            found[number] = Claimed([], nothing_waits=not asked[number].units)
        else:
            messages = list(map(ClaimedMessage._make, letters))
            found[number] = Claimed(messages, OpenClaim(claim_id, at, len(messages)), suppressions=suppressions)
    failpoints.here("after_claim")
    return found


async def find_locked_jobs(connection: Any, jobs: Iterable[int]) -> set[int]:
    """Return the jobs that cannot claim now, because they, their vendor or their credential are locked."""
    rows = await connection.execute(LOCKED, {"jobs": list(jobs)})
    return {job_id for (job_id,) in await rows.fetchall()}


async def queue_for_locks(connection: Any, job_id: int) -> None:
    """Queue for the job's locks. Raises LockNotAvailable if that takes longer than LOCKED_BRIEFLY."""
    await connection.execute(UNLOCKED.format(turns=locks.SHARED_OF_ROW, skip=""), {"jobs": [job_id]})


def _asks_as_json(asked: Sequence[ToClaim]) -> str:
    rows = [
        {
            "number": number,
            "job": one.lease.job_id,
            "fence": one.lease.fence,
            "cursor": one.cursor,
            "end": one.end,
            "most": one.most,
            "closes": one.closes,
            "ids": None if one.units is None else list(one.units),
            "units": None if one.units is None else list(one.units.values()),
            "adapter": one.destination,
        }
        for number, one in enumerate(asked)
    ]
    return orjson.dumps(rows).decode()


class Claimer(Protocol):
    """Decides what one stream claims next, and builds the calls permitted by that claim."""

    async def read_ahead(self, connection: Any, scope: Scope, cursor: int, most: int) -> None:
        """Prepare to claim at most `most` messages from the cursor on."""

    def need(self, most: int) -> Need:
        """Return the permits needed for at most `most` of these messages."""

    def note_answer(self, answer: AcquireResult) -> None:
        """Take over the throttle's answer to a need with letters."""

    def fit_messages(self, units: int) -> tuple[int, dict[int, int] | None]:
        """Return (how many of them these permits cover, which ones: see ToClaim.units)."""

    def allot_permits(
        self, asked: ToClaim, messages: Sequence[ClaimedMessage], permits: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return (the permits of the claimed messages, in their order; the unused ones)."""

    def calls(self, claimed: Claimed, permits: Sequence[str], latest: float) -> list[PermittedCall]:
        """Return the calls for the claimed messages, in order of id. latest: see PermittedCall."""

    def cursor_after(self, calls: Sequence[PermittedCall], end: int) -> int:
        """Return from where on to claim next, after these calls. end: where the job ends, if there were none."""

    def note(self, cursor: int, end: int, want: int) -> str:
        """Return the purpose of a grant, as failover/recovery.py reads it: three numbers for each range of messages."""

    def receivers(self) -> Mapping[str, int] | None:
        """Return what of it `fit_messages` allots to receivers with limits."""


class InOrder:
    """The part of claimers that take the waiting messages in order, from a cursor on."""

    def note_answer(self, answer: AcquireResult) -> None:
        pass

    def allot_permits(
        self, asked: ToClaim, messages: Sequence[ClaimedMessage], permits: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        used = asked.cost_of(messages) if messages else 0
        return permits[:used], permits[used:]

    def cursor_after(self, calls: Sequence[PermittedCall], end: int) -> int:
        return calls[-1].message.id + 1 if calls else end

    def note(self, cursor: int, end: int, want: int) -> str:
        return f"{cursor} {end} {want}"

    def receivers(self) -> Mapping[str, int] | None:
        return None


class ByCount(InOrder):
    """A claimer for letters of one unit each. They are made after the claim."""

    async def read_ahead(self, connection: Any, scope: Scope, cursor: int, most: int) -> None:
        pass

    def need(self, most: int) -> Need:
        return Need(most, 1)

    def fit_messages(self, units: int) -> tuple[int, dict[int, int] | None]:
        return units, None

    def calls(self, claimed: Claimed, permits: Sequence[str], latest: float) -> list[PermittedCall]:
        if claimed.claim is None:
            return []
        claim = claimed.claim
        pairs = zip(claimed.messages, permits, strict=False)
        return [PermittedCall(one, claim, (permit,), latest) for one, permit in pairs]


AHEAD = """
SELECT m.id, m.uuid || '-' || m.resend_no, m.recipient, m.params FROM campaigns_message m
WHERE m.id >= %(after)s AND m.id < %(end)s AND m.dequeued_at IS NULL
    AND (m.call_after IS NULL OR m.call_after <= clock_timestamp())
ORDER BY m.id LIMIT %(most)s
"""


async def read_waiting_messages(
    connection: AsyncConnection[Any], after: int, end: int, most: int
) -> list[ClaimedMessage]:
    """Read the next waiting messages without claiming them."""
    params = {"after": after, "end": end, "most": most}
    return list(map(ClaimedMessage._make, await (await connection.execute(AHEAD, params)).fetchall()))


# Every call that the sender started is answered. Any other claim under its fence is one whose commit it never heard of,
# so it started no call. The ledger is told that no call of these claims is open.
_GONE = """WITH gone AS (
    DELETE FROM campaigns_claim WHERE {which} RETURNING ledger
)"""
_ENDED = """UPDATE vendors_usage u SET ended_at = greatest(u.ended_at, clock_timestamp())
    FROM (SELECT DISTINCT ledger FROM gone ORDER BY ledger) g WHERE u.id = ANY(ARRAY[g.ledger])"""
_OF_SENDER = _GONE.format(which="job_id = %(job)s AND fence = %(fence)s")
UNCALLED = f"{_OF_SENDER} {_ENDED}"
RELEASE = f"{_GONE.format(which='id = %(claim)s')} {_ENDED}"
FIRST_WAITING = """
SELECT coalesce((
    SELECT id FROM campaigns_message WHERE id >= %(first)s AND id < %(end)s AND dequeued_at IS NULL ORDER BY id LIMIT 1
), %(end)s)
"""


NEW_PASS = f"""{_OF_SENDER}, ended AS ({_ENDED})
UPDATE campaigns_job SET next_message = ({FIRST_WAITING}) WHERE id = %(job)s AND fence = %(fence)s
RETURNING next_message
"""


async def new_pass(connection: AsyncConnection[Any], lease: Lease, first: int, end: int) -> int:
    """Begin a new pass once all calls are answered. Returns the first message that still waits, or `end`."""
    params = {"job": lease.job_id, "fence": lease.fence, "first": first, "end": end}
    row = await (await execute_holding(connection, NEW_PASS, params, jobs=[lease.job_id])).fetchone()
    return int(row[0]) if row else end


async def delete_claim(connection: AsyncConnection[Any], lease: Lease, claim: OpenClaim) -> None:
    """Delete a claim without a started call: its stream ended before it heard of the claim."""
    await execute_holding(connection, RELEASE, {"claim": claim.id}, jobs=[lease.job_id])
