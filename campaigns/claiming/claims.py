"""What a sender does to rows before a call: take, load, start, enqueue, claim. One function a verb, one statement each.

The ops table is walked by key range (a partial index made the planner read every sent row at each claim), and only
by the holder of the job: its fence is checked by every statement, so a sender that was thought dead claims nothing.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson
from django.db import connection as django_connection
from django.db.models.functions import Now
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from campaigns import failpoints
from campaigns.content import templates
from campaigns.failover import guard
from campaigns.lifecycle import move
from campaigns.models import Campaign, Job
from vendors import adapters
from vendors.adapters.base import Adapter, Letter
from vendors.outcomes import Refused

LONG = 0.001  # seconds that it may take to fill a template, before others have their turn


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


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A leaf job in the hands of one sender: all that it needs of the job, read once."""

    lease: Lease
    first: int
    end: int
    vendor_id: int
    credential_id: int
    campaign: Campaign
    content: templates.Content
    adapter: Adapter
    way: bytes  # what the adapter was made from: the same way, the same connections

    @property
    def deadline(self) -> datetime | None:
        return self.campaign.deadline

    def letter(self, message: ClaimedMessage) -> Letter | Refused:
        """The message as the vendor gets it; Refused if its template cannot be filled with its fields."""
        try:
            subject, body = self.content.render(message.recipient, message.params)
        except templates.TemplateError as error:
            return Refused("template", str(error))
        html = self.campaign.html
        return Letter(message.reference, message.recipient, subject, body, message.params, html)


class PermittedCall(NamedTuple):
    """A claimed message with its places in the vendor's window; no call may start after `latest` (monotonic).

    letter: if it is made already; Refused: it is not called.
    """

    message: ClaimedMessage
    places: Sequence[str]
    latest: float
    letter: Letter | Refused | None = None


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


def load(lease: Lease) -> LeasedJob:
    """The job with its content and adapter. Raises what one of them says if it cannot be made ready."""
    job: Any = Job.objects.select_related("campaign", "vendor", "credential").get(pk=lease.job_id)
    adapter = adapters.load(job.vendor.adapter)(job.vendor.settings, job.credential.secret)
    content = templates.compile(job.campaign.subject, job.campaign.body, html=job.campaign.html)
    vendor, login = job.vendor, job.credential
    way = orjson.dumps([vendor.adapter, vendor.settings, login.secret])
    return LeasedJob(lease, job.first_message, job.end, vendor.pk, login.pk, job.campaign, content, adapter, way)


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

# Where letters cost different numbers of places: what is next is looked at first, then exactly that is claimed.
CLAIM_THESE = CLAIMING.format(
    known=guard.KNOWN,
    picked="""SELECT p.id, p.units FROM unnest(%(ids)s::bigint[], %(units)s::int[]) AS p(id, units)
    JOIN campaigns_opsmessage o USING (id) WHERE true""",
    most="",
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


async def claim_these(
    connection: AsyncConnection[Any], words: dict[str, Any], ids: list[int], units: list[int]
) -> list[ClaimedMessage]:
    """Those of them that still wait, marked as called for so many units each; 0: it is refused without a call."""
    return await claim(connection, words | {"ids": ids, "units": units}, CLAIM_THESE)


AHEAD = """
SELECT m.id, m.uuid || '-' || o.resend_no, m.recipient, m.params
FROM campaigns_opsmessage o JOIN campaigns_message m USING (id)
WHERE o.id >= %(after)s AND o.id < %(end)s AND o.job_id = %(job)s AND o.sent_at IS NULL AND o.error_code IS NULL
    AND (o.call_after IS NULL OR o.call_after <= clock_timestamp())
ORDER BY o.id LIMIT %(most)s
"""


async def ahead(
    connection: AsyncConnection[Any], lease: Lease, after: int, end: int, most: int
) -> list[ClaimedMessage]:
    """The next messages that wait; nothing is claimed."""
    words = {"job": lease.job_id, "after": after, "end": end, "most": most}
    return list(map(ClaimedMessage._make, await (await connection.execute(AHEAD, words)).fetchall()))


async def letters_in_turn(work: LeasedJob, messages: Iterable[ClaimedMessage]) -> list[Letter | Refused]:
    """Each as `LeasedJob.letter`; after one that took long, others have their turn, the heartbeat above all."""
    letters = []
    for message in messages:
        began = time.monotonic()
        letters.append(work.letter(message))
        if time.monotonic() - began > LONG:
            await asyncio.sleep(0)
    return letters


HEARTBEAT = """
UPDATE campaigns_job SET heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND fence = %(fence)s AND status IN ('SENDING', 'STOPPED')
"""


async def heartbeat(connection: AsyncConnection[TupleRow], lease: Lease) -> None:
    """Says that we live: also after a stop, until what is in flight is recorded."""
    await connection.execute(HEARTBEAT, {"job": lease.job_id, "fence": lease.fence})
