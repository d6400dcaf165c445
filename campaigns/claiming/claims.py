"""Steps 4 and 5: take a job, load it, start it, enqueue its messages, claim them. One function a verb.

Statements walk the ops table by key range (with a partial index the planner read every sent row at each claim). Each
checks the fence, so only the holder of the job changes rows, and a sender that was thought dead claims nothing.
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
    """A sender's hold on a job. Statements under an older fence change nothing but late acceptances."""

    job_id: int
    fence: int


class ClaimedMessage(NamedTuple):
    """A message whose call may start: its sent_at is committed. reference: as Message.reference."""

    id: int
    reference: str
    recipient: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A leaf that one sender holds: all that it needs of the job, read once. end: one past the last message."""

    lease: Lease
    first: int
    end: int
    vendor_id: int
    credential_id: int
    campaign: Campaign
    content: templates.Content
    adapter: Adapter
    connection_key: bytes  # what the adapter was made from: connections are shared where it is equal

    @property
    def deadline(self) -> datetime | None:
        return self.campaign.deadline

    def letter(self, message: ClaimedMessage) -> Letter | Refused:
        """The message as the vendor gets it; Refused if its template cannot be rendered with its fields."""
        try:
            subject, body = self.content.render(message.recipient, message.params)
        except templates.TemplateError as error:
            return Refused("template", str(error))
        html = self.campaign.html
        return Letter(message.reference, message.recipient, subject, body, message.params, html)


class PermittedCall(NamedTuple):
    """A claimed message with its permits; no call may start after `latest` (seconds of time.monotonic).

    letter: if it is made already; Refused: it is not called.
    """

    message: ClaimedMessage
    permits: Sequence[str]
    latest: float
    letter: Letter | Refused | None = None


TAKE = """
UPDATE campaigns_job SET fence = fence + 1, heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND fence = %(fence)s AND status = 'ENQUEUED'
"""


def take(job_id: int, fence: int) -> Lease | None:
    """Takes the job that a mailcaster claimed under this fence; None: a doubled or late notification."""
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
    key = orjson.dumps([vendor.adapter, vendor.settings, login.secret])
    return LeasedJob(lease, job.first_message, job.end, vendor.pk, login.pk, job.campaign, content, adapter, key)


def start(lease: Lease) -> bool:
    """ENQUEUED -> SENDING."""
    started = move(Job.objects.filter(pk=lease.job_id, fence=lease.fence), "send", heartbeat_at=Now()) == 1
    failpoints.here("after_start")
    return started


# The job's row is locked until the slice is committed, so the next sender of the job finds all of it or nothing. This
# commit does not wait for the disk: the first claim of the slice does, and makes both durable.
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
    """Copies the waiting messages low .. high-1 to ops (document 001). False: the job is not ours any more.

    Slices are copied in the order of their ids, so that ops shows how far a job's senders got (`reached`).
    """
    failpoints.here("before_enqueue")
    params = {"job": lease.job_id, "fence": lease.fence, "low": low, "high": high}
    row = await (await connection.execute(ENQUEUE, params)).fetchone()
    failpoints.here("after_enqueue")
    return bool(row and row[0])


# ORDER BY .. LIMIT 1, because for min, max and EXISTS the planner may read the whole job or even the whole table.
REACHED = """
SELECT coalesce((
    SELECT id FROM campaigns_message WHERE id < %(end)s AND dequeued_at IS NULL AND id >= coalesce((
        SELECT id + 1 FROM campaigns_opsmessage WHERE id >= %(first)s AND id < %(end)s AND job_id = %(job)s
        ORDER BY id DESC LIMIT 1
    ), %(first)s) ORDER BY id LIMIT 1
), %(end)s)
"""


async def reached(connection: AsyncConnection[TupleRow], lease: Lease, first: int, end: int) -> int:
    """The first of a job's messages that is not enqueued yet; `end` if all are.

    Call it after `take`, which has waited for the slices of earlier senders.
    """
    cursor = await connection.execute(REACHED, {"job": lease.job_id, "first": first, "end": end})
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


# Nothing is claimed from a store that was taken over or has the tables of another version, nor by a sender that began
# before the last adoption. The vendor's row is locked: a rebuild of the window under a new generation, or an edit of
# the limits, waits for the claims before it and is seen by all after it. So is the job's row: once a stop has committed
# nothing is claimed any more. The time is read after these locks, and no call is allowed once the campaign has closed.
CLAIMING = """
WITH holder AS (
    SELECT id FROM campaigns_job WHERE id = %(job)s AND fence = %(fence)s AND status = 'SENDING' FOR SHARE
), gate AS (
    SELECT v.id FROM vendors_vendor v JOIN vendors_credential c ON c.id = %(credential)s
    WHERE v.id = %(vendor)s AND v.generation = %(generation)s AND v.limits_version = %(limits_version)s AND NOT v.paused
        AND NOT c.paused AND (c.retry_after_until IS NULL OR c.retry_after_until <= clock_timestamp())
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
    UPDATE campaigns_opsmessage o SET sent_at = (SELECT at FROM moment), fence = %(fence)s, units = {units}
    WHERE o.id = ANY(ARRAY(SELECT id FROM picked)) AND o.sent_at IS NULL RETURNING o.id, o.resend_no, o.units
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
    picked="""SELECT o.id FROM campaigns_opsmessage o WHERE o.id >= %(cursor)s AND o.id < %(end)s""",
    most="ORDER BY o.id LIMIT %(most)s",
    units="1",
)

# Where letters cost different numbers of units, the next messages are read first, and exactly those are claimed.
CLAIM_THESE = CLAIMING.format(
    known=guard.KNOWN,
    picked="""SELECT o.id FROM campaigns_opsmessage o WHERE o.id = ANY(%(ids)s::bigint[])""",
    most="",
    units="(%(units)s::int[])[array_position(%(ids)s::bigint[], o.id)]",
)


async def claim(
    connection: AsyncConnection[TupleRow], params: dict[str, Any], statement: str = ""
) -> list[ClaimedMessage]:
    """Claims at most `most` messages from `cursor` on and marks them as called. If none: limits.read says why.

    params: as CLAIM names them; closes: from when on nothing is claimed. statement: replaces CLAIM.
    """
    cursor = await connection.execute(statement or CLAIM, {"closes": None, "grant": None, **params})
    claimed = list(map(ClaimedMessage._make, await cursor.fetchall()))
    failpoints.here("after_claim")
    return claimed


async def claim_these(
    connection: AsyncConnection[Any], params: dict[str, Any], ids: list[int], units: list[int]
) -> list[ClaimedMessage]:
    """Claims those of these messages that still wait, each for its units; 0: it will be refused without a call."""
    return await claim(connection, params | {"ids": ids, "units": units}, CLAIM_THESE)


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
    """Reads the next waiting messages; claims nothing."""
    params = {"job": lease.job_id, "after": after, "end": end, "most": most}
    return list(map(ClaimedMessage._make, await (await connection.execute(AHEAD, params)).fetchall()))


async def letters_in_turn(job: LeasedJob, messages: Iterable[ClaimedMessage]) -> list[Letter | Refused]:
    """Makes the letters one by one; after one that took long the event loop runs other tasks, like the heartbeat."""
    letters = []
    for message in messages:
        began = time.monotonic()
        letters.append(job.letter(message))
        if time.monotonic() - began > LONG:
            await asyncio.sleep(0)
    return letters


HEARTBEAT = """
UPDATE campaigns_job SET heartbeat_at = clock_timestamp()
WHERE id = %(job)s AND fence = %(fence)s AND status IN ('SENDING', 'STOPPED')
"""


async def heartbeat(connection: AsyncConnection[TupleRow], lease: Lease) -> None:
    """Renews the lease: also after a stop, until what is in flight is recorded."""
    await connection.execute(HEARTBEAT, {"job": lease.job_id, "fence": lease.fence})
