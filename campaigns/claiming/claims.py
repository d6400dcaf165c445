"""What a sender does to rows: take, start, enqueue, claim, record. One function a verb, one statement each.

The ops table is walked by key range (a partial index made the planner read every sent row at each claim), and only
by the holder of the job: its fence is checked by every statement, so a sender that was thought dead claims nothing.
What the vendor accepted is recorded whoever reports it and however late (promise P3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection as django_connection
from django.db.models.functions import Now
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from campaigns import failpoints, ground_truth
from campaigns.failover import guard
from campaigns.lifecycle import HOLD, move
from campaigns.models import Job
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds a job: statements under an older fence change nothing but late acceptances."""

    job_id: int
    fence: int


class ClaimedMessage(NamedTuple):
    """A message whose call may start now: its sent_at is committed. reference: as Message.reference."""

    id: int
    reference: str
    recipient: str
    params: dict[str, Any]


TAKE = """
UPDATE campaigns_job SET fence = fence + 1, heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND fence = %(fence)s AND status = 'ENQUEUED'
"""


def take(job_id: int, fence: int) -> Lease | None:
    """The bell's receiver takes the job that a caster claimed under this fence; a doubled bell takes nothing."""
    failpoints.here("before_take")
    with django_connection.cursor() as cursor:
        cursor.execute(TAKE, {"job": job_id, "fence": fence})
        if not cursor.rowcount:
            return None
    failpoints.here("after_take")
    return Lease(job_id, fence + 1)


def start(lease: Lease) -> bool:
    """ENQUEUED -> SENDING."""
    started = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "send", heartbeat_at=Now()) == 1
    failpoints.here("after_start")
    return started


# The job's row is held until the slice is committed: whoever takes the job after us finds all of it or nothing. That
# commit does not wait for the disk: the first claim out of the slice does, and carries it along.
ENQUEUE = """
WITH holder AS (
    UPDATE campaigns_job SET heartbeat_at = clock_timestamp()
    WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING' RETURNING id
), taken AS (
    UPDATE campaigns_message SET dequeued_at = clock_timestamp()
    WHERE id >= %(low)s AND id < %(high)s AND dequeued_at IS NULL AND EXISTS (SELECT FROM holder)
    RETURNING id, resend_no
), copied AS (
    INSERT INTO campaigns_opsmessage (id, job_id, resend_no) SELECT id, %(job)s, resend_no FROM taken
)
SELECT EXISTS (SELECT FROM holder), set_config('synchronous_commit', 'off', true)
"""


async def enqueue(connection: AsyncConnection[TupleRow], lease: Lease, low: int, high: int) -> bool:
    """Copies the messages low .. high-1 that wait to ops (document 001). False: the job is no longer ours.

    A job's slices are copied in the order of their ids, so that ops tells how far its senders got (`reached`).
    """
    failpoints.here("before_enqueue")
    words = {"job": lease.job_id, "fence": lease.fence, "low": low, "high": high}
    row = await (await connection.execute(ENQUEUE, words)).fetchone()
    failpoints.here("after_enqueue")
    return bool(row and row[0])


# First and last by ORDER BY .. LIMIT 1: for min, max and EXISTS the planner may read the whole job, or the whole table.
REACHED = """
SELECT coalesce((
    SELECT id FROM campaigns_message WHERE id < %(end)s AND dequeued_at IS NULL AND id >= coalesce((
        SELECT id + 1 FROM campaigns_opsmessage WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s
        ORDER BY id DESC LIMIT 1
    ), %(first)s) ORDER BY id LIMIT 1
), %(end)s)
"""


async def reached(connection: AsyncConnection[TupleRow], lease: Lease, first: int, end: int) -> int:
    """The first of a job's messages that is still to be enqueued; `end`: none is.

    To be asked under a fence of our own: whoever took it has waited for the slices of all before.
    """
    cursor = await connection.execute(REACHED, {"job": lease.job_id, "first": first, "end": end})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


# Of a store that was taken over, or whose tables are another version's, nothing is claimed; nor by a sender that was
# there before its last adoption. The vendor's row is read under a lock: a rebuild of the throttle's window under a new
# generation, or an edit of the limits, waits for the claims before it and is seen by all after it. The job's row
# likewise: after a stop has committed, nothing is claimed any more. The moment is read once these locks are held, and
# no call is allowed from the moment on that the campaign closes.
CLAIMING = """
WITH holder AS (
    SELECT id FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING' FOR SHARE
), gate AS (
    SELECT v.id FROM vendors_vendor v JOIN vendors_credential c ON c.id = %(credential)s
    WHERE v.id = %(vendor)s AND v.generation = %(generation)s AND v.terms = %(terms)s AND NOT v.paused
        AND NOT c.paused AND (c.closed_until IS NULL OR c.closed_until <= clock_timestamp())
        AND EXISTS (SELECT FROM holder) AND EXISTS ({known} AND s.adoptions = %(adoptions)s)
    FOR SHARE OF v
), moment AS (
    SELECT clock_timestamp() AS at FROM gate
), picked AS (
    {picked}
        AND o.job_id = %(job)s AND o.sent_at IS NULL AND o.error_code IS NULL
        AND (SELECT at FROM moment) < coalesce(%(closes)s::timestamptz, 'infinity')
        AND (o.call_after IS NULL OR o.call_after <= (SELECT at FROM moment))
    {most}
), marked AS (
    UPDATE campaigns_opsmessage o SET sent_at = (SELECT at FROM moment), fence = %(fence)s, units = picked.units
    FROM picked WHERE o.id = picked.id AND o.sent_at IS NULL RETURNING o.id, o.resend_no, o.units
), ledger AS (
    INSERT INTO vendors_usage (vendor_id, credential_id, at, until, units, "grant")
    SELECT %(vendor)s, %(credential)s, clock_timestamp(), clock_timestamp() + %(hold)s * interval '1 second',
        sum(units), %(grant)s::text
    FROM marked HAVING sum(units) > 0
)
SELECT m.id, m.uuid || '-' || marked.resend_no, m.recipient, m.params
FROM marked JOIN campaigns_message m USING (id) ORDER BY m.id
"""
CLAIM = CLAIMING.format(
    known=guard.KNOWN,
    picked="""SELECT o.id, 1 AS units FROM campaigns_opsmessage o WHERE o.id >= %(cursor)s AND o.id < %(end)s""",
    most="ORDER BY o.id LIMIT %(most)s",
)


async def claim(
    connection: AsyncConnection[TupleRow], words: dict[str, Any], statement: str = ""
) -> list[ClaimedMessage]:
    """At most `most` messages of ours from `cursor` on, marked as called. None at all: ask `standing` why.

    closes: from when on none is. statement: instead of CLAIM.
    """
    cursor = await connection.execute(statement or CLAIM, {"closes": None, "grant": None, **words})
    claimed = list(map(ClaimedMessage._make, await cursor.fetchall()))
    failpoints.here("after_claim")
    return claimed


# One row for each answer. Acceptance always wins. A refusal, or a proof that nothing was sent, counts only for the
# attempt that it belongs to: the row must still carry that attempt's fence. Whom the vendor puts off again waits for as
# long as it has waited since the first time, from a minute to an hour, and up to half as long more, so that not all
# come back at once. One statement with its hold, because it is the busiest: the job is locked first, and of what others
# may change it decides only by the rows that it changes, or has locked, as they are then.
RECORDING = """
WITH held AS ({hold}), answer AS (
    SELECT * FROM unnest(
        %(ids)s::bigint[], string_to_array(%(kinds)s, NULL), %(codes)s::text[], %(notes)s::text[], %(waits)s::float8[]
    ) AS a(id, kind, code, note, wait)
), {before} told AS (
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
    WHERE o.id = a.id AND o.job_id = (SELECT id FROM held) AND o.message_id IS NULL {only}
        AND (a.kind = 'a' OR o.fence = %(fence)s AND o.sent_at IS NOT NULL AND o.delivered_at IS NULL)
    RETURNING o.id, o.units, a.kind, {doubted} AS doubted, {failed} AS failed
), sums AS (
    SELECT count(*) FILTER (WHERE kind = 'a') AS accepted, count(*) FILTER (WHERE kind = 'r') AS refused,
        count(*) FILTER (WHERE kind = 'd' AND NOT doubted) - count(*) FILTER (WHERE kind <> 'd' AND doubted) AS doubts,
        count(*) FILTER (WHERE failed) AS unfailed,
        coalesce(sum(units) FILTER (WHERE kind <> 'n' AND NOT doubted AND NOT failed), 0) AS units
    FROM told
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
SELECT array_agg(id) FROM told
"""
# The first answer to a call, which nearly all are: what the row was need not be read.
RECORD = RECORDING.format(
    hold=HOLD, before="", answers="answer", only="AND o.in_doubt_at IS NULL AND o.error_code IS NULL",
    doubted="false", failed="false",
)  # fmt: skip
# For all others: the row is locked and read before, which costs a fifth more.
RECORD_AGAIN = RECORDING.format(
    hold=HOLD, answers="before", only="", doubted="a.in_doubt_at IS NOT NULL", failed="a.error_code IS NOT NULL",
    before="""before AS (
    SELECT a.*, o.in_doubt_at, o.error_code FROM answer a JOIN campaigns_opsmessage o USING (id)
    WHERE o.job_id = (SELECT id FROM held) FOR NO KEY UPDATE OF o
),""",
)  # fmt: skip

KINDS = {Accepted: "a", Refused: "r", NotSent: "n", InDoubt: "d"}


async def record(connection: AsyncConnection[TupleRow], lease: Lease, answers: Sequence[tuple[int, Outcome]]) -> None:
    """Stores what calls came to. Recording twice, or by a sender that has lost the job, does no harm."""
    failpoints.here("before_record")
    left = answers
    for statement in (RECORD, RECORD_AGAIN):
        told = await _record(connection, lease, left, statement)
        left = [answer for answer in left if answer[0] not in told]
        if not left:
            break
    else:
        late = [(id, _stored(answer.vendor_id)) for id, answer in left if isinstance(answer, Accepted)]
        if late:  # its job was finalised meanwhile
            await ground_truth.accept(connection, late)
    failpoints.here("after_record")


async def _record(
    connection: AsyncConnection[TupleRow], lease: Lease, answers: Sequence[tuple[int, Outcome]], statement: str
) -> set[int]:
    """The messages that it has changed."""
    rows = [(str(id), KINDS[type(outcome)], *_words(outcome)) for id, outcome in answers]
    ids, kinds, *columns = zip(*rows, strict=True)
    # Making a list a parameter costs more than all else here; where nothing stands in one, NULL says the same.
    codes, notes, waits = (list(column) if any(column) else None for column in columns)
    words: dict[str, Any] = {"ids": f"{{{','.join(ids)}}}", "kinds": "".join(kinds)}
    words |= {"codes": codes, "notes": notes, "waits": waits}
    words |= {"job": lease.job_id, "jobs": [lease.job_id], "fence": lease.fence}
    row = await (await connection.execute(statement, words)).fetchone()
    return set(row[0] or ()) if row else set()


def _words(outcome: Outcome) -> tuple[str | None, str | None, float | None]:
    """Code, note, and the seconds for which the vendor puts off this one message, by its own word."""
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
    """As the columns can hold it."""
    return text.replace("\0", "\ufffd")[:255]


HEARTBEAT = """
UPDATE campaigns_job SET heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND fence = %(fence)s AND status IN ('SENDING', 'STOPPED')
"""


async def heartbeat(connection: AsyncConnection[TupleRow], lease: Lease) -> None:
    """Says that we live: also after a stop, until what is in flight is recorded."""
    await connection.execute(HEARTBEAT, {"job": lease.job_id, "fence": lease.fence})
