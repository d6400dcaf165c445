"""Statements about messages in doubt: lease due ones, allow a call, put off the next attempt.

campaigns.engine.ground_truth writes the outcome that settles a doubt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from psycopg import AsyncConnection

from campaigns.engine.failover import guard
from campaigns.engine.lifecycle import execute_holding
from campaigns.engine.routes import whose
from campaigns.engine.suppressed import HOLDS_ASKED
from campaigns.models import Campaign, Identity
from vendors import destinations, locks
from vendors.condition import brake
from vendors.limits.values import Scope
from vendors.models import EncryptedJSONField
from vendors.receivers import receiver_of


@dataclass(frozen=True, slots=True)
class Doubt:
    """A message in doubt that this process is settling.

    age: seconds since its first call was allowed. disproved: a look-up has proved that the vendor does not have that
    call. repeatable: its job is not stopped or paused, the message is not behind its job's first N, and its deadline
    has not passed. digest: of its recipient; None: nobody is suppressed. suppressed: why its recipient is suppressed.
    """

    id: int
    uuid: UUID
    resend_no: int
    recipient: str
    params: dict[str, Any]
    campaign_id: int
    sent_at: datetime
    age: float
    disproved: bool
    repeatable: bool
    sponsor_id: int
    topic_id: int | None
    transactional: bool
    digest: int | None = None
    suppressed: str | None = None

    @property
    def vendor_reference(self) -> str:
        return f"{self.uuid}-{self.resend_no}"

    @property
    def asking_params(self) -> dict[str, Any]:
        """The parameters of suppressed.HOLDS_ASKED."""
        return {"sponsor": self.sponsor_id, "topic": self.topic_id, "transactional": self.transactional}


# The jobs that contain a message: its leaf and that leaf's parent.
AROUND = "j.campaign_id = m.campaign_id AND m.id >= j.first_message AND m.id < j.first_message + j.size"
DUE = f"""
WITH due AS (
    SELECT m.id FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
    WHERE m.in_doubt_at IS NOT NULL AND m.settle_at <= clock_timestamp() AND {whose.CREDENTIAL} = %(credential)s
        AND NOT {whose.LOST_MOVE} AND coalesce(m.destination, 0) = (
            SELECT {destinations.NUMBER} FROM vendors_credential l JOIN vendors_vendor v ON v.id = l.vendor_id
            WHERE l.id = %(credential)s)
    ORDER BY m.settle_at LIMIT %(most)s FOR UPDATE OF m SKIP LOCKED
)
UPDATE campaigns_message m SET settle_at = clock_timestamp() + %(lease)s * interval '1 second'
FROM due JOIN campaigns_message USING (id) JOIN campaigns_campaign c ON c.id = campaign_id WHERE m.id = due.id
RETURNING m.id, m.uuid, m.resend_no, m.recipient, m.params, m.campaign_id, m.sent_at,
    extract(epoch FROM clock_timestamp() - m.sent_at)::float8, m.disproved IS NOT DISTINCT FROM m.sent_at,
    coalesce(c.deadline > clock_timestamp(), true)
        AND NOT EXISTS (SELECT FROM campaigns_job j WHERE {AROUND}
            AND (coalesce(j.stopped_at, j.paused_at) IS NOT NULL OR m.id >= j.first_message + j.wait_after)),
    c.sponsor_id, c.topic_id, c.transactional
"""
# Calls made at another destination wait for a person. The vendor is not asked about them at its new one.
SET_ASIDE = f"""
UPDATE campaigns_message m SET settle_at = NULL FROM campaigns_campaign c
WHERE m.in_doubt_at IS NOT NULL AND m.settle_at <= clock_timestamp() AND c.id = m.campaign_id AND {whose.IS_ELSEWHERE}
"""
REASON = f"SELECT min(s.reason) FROM campaigns_suppression s WHERE s.digest = %(digest)s AND {HOLDS_ASKED}"


async def lease_due_doubts(
    connection: AsyncConnection[Any], credential_id: int, most: int, lease: float
) -> list[Doubt]:
    """Lease due doubts for `lease` seconds, except those called at another destination."""
    cursor = await connection.execute(DUE, {"credential": credential_id, "most": most, "lease": lease})
    return [Doubt(*row) for row in await cursor.fetchall()]


async def compare_suppressions(connection: AsyncConnection[Any], doubt: Doubt, digest: int) -> Doubt:
    """Return the doubt with the digest of its recipient and the reason the recipient is suppressed, if any."""
    [(reason,)] = await (await connection.execute(REASON, {"digest": digest, **doubt.asking_params})).fetchall()
    return replace(doubt, digest=digest, suppressed=reason)


async def give_doubts_back(connection: AsyncConnection[Any], doubts: Sequence[Doubt]) -> None:
    """Give back doubts nobody asked about; they are due again now."""
    await connection.execute(
        "UPDATE campaigns_message SET settle_at = clock_timestamp() WHERE id = ANY(%s) AND in_doubt_at IS NOT NULL",
        [[doubt.id for doubt in doubts]],
    )


CONTENT = ("subject", "body", "html", "text", "headers", "file_fields", "has_files")
ABOUT = ("sponsor_id", "topic_id", "transactional", "identity_id")
NEEDED = (*CONTENT, *ABOUT, "deadline", "send_at", "hours_from", "hours_to", "each_from", "each_to", "time_zone")


async def load_campaign_and_time(connection: AsyncConnection[Any], doubt: Doubt) -> tuple[Campaign, datetime]:
    """Load the doubt's campaign with the columns that a call needs, and the database's time."""
    statement = f"SELECT {', '.join(NEEDED)}, clock_timestamp() FROM campaigns_campaign WHERE id = %s"
    row = await (await connection.execute(statement, [doubt.campaign_id])).fetchone()
    assert row is not None, "campaigns with messages are never deleted"
    *values, now = row
    found = Campaign(pk=doubt.campaign_id, **dict(zip(NEEDED, values, strict=True)))
    if found.identity_id:
        found.identity = await _load_origin(connection, found.identity_id)
    return found, now


OF_MAIL = ("from_address", "from_name", "reply_to", "return_path", "verp", "dkim_domain", "dkim_selector", "secret")
ORIGIN = (*OF_MAIL, "channel", "sender_id", "numbers")


async def _load_origin(connection: AsyncConnection[Any], identity_id: int) -> Identity:
    statement = f"SELECT {', '.join(ORIGIN)} FROM campaigns_identity WHERE id = %s"
    row = await (await connection.execute(statement, [identity_id])).fetchone()
    assert row is not None, "identities with campaigns are never deleted"
    known = dict(zip(ORIGIN, row, strict=True))
    known["secret"] = EncryptedJSONField().from_db_value(known["secret"], None, None)
    return Identity(pk=identity_id, **known)


# A call for a doubt is checked and counted like any other: generation, limits, pauses, and a ledger row before it
# starts. It also has to go to the destination of the first call, because an answer from another one proves nothing.
# Vendor and credential are locked in the order of a claim: once a pause or a new destination has committed, no call is
# allowed.
CALL = """
WITH {jobs}gate AS (
    SELECT v.suppressions FROM vendors_vendor v
        JOIN vendors_credential c ON c.vendor_id = v.id AND c.id = %(credential)s
    WHERE v.id = %(vendor)s AND v.generation = %(generation)s AND v.limits_version = %(limits_version)s
        AND v.destination + c.destination = %(destination)s AND NOT v.paused AND NOT c.paused
        AND {is_open}
        AND EXISTS ({known})
        AND (SELECT {turns})
    FOR SHARE OF v, c
), ours AS (
    UPDATE campaigns_message m SET {sets}asked_destination = %(destination)s
    WHERE {may} AND m.id = %(id)s AND m.in_doubt_at IS NOT NULL AND m.resend_no = %(resend_no)s
        AND m.sent_at = %(sent_at)s AND coalesce(m.destination, 0) = %(destination)s AND EXISTS (SELECT FROM gate)
    RETURNING m.id
), ledger AS (
    INSERT INTO vendors_usage (vendor_id, credential_id, at, until, units, "grant", receivers)
    SELECT %(vendor)s, %(credential)s, clock_timestamp(), clock_timestamp() + %(hold)s * interval '1 second', %(units)s,
        %(grant)s::text, %(receivers)s::jsonb
    FROM ours
){counted}
SELECT EXISTS (SELECT FROM gate), EXISTS (SELECT FROM ours)
"""
# A look-up sends no letter, so a brake does not keep it away. A repeat does: it has to take the probe.
LOOK_UP = CALL.format(
    known=guard.KNOWN,
    turns=locks.SHARED,
    jobs="",
    sets="",
    may="true",
    counted="",
    is_open="""(c.braked_at IS NOT NULL OR coalesce(c.retry_after_until <= clock_timestamp(), true))
        AND c.brake_held_at IS NULL""",
)

# Why each condition stands here: The key may have expired while we waited for a permit. A call in the future, left by a
# wrong clock, has an unknown age. Once a look-up has proved that the vendor has nothing, the repeat is the first call.
# The proof covers one call only, so of two processes with a proof one repeats. Each repeat changes sent_at, if only by
# a microsecond, so that a late refusal of the first call cannot settle the repeat. No call is made for a stopped or
# paused job (promise P5), behind its first N while the rest waits (after a recovery those are in doubt, too), after the
# deadline, outside the sending hours, or to a receiver to which complaints have paused the sponsor's bulk mail (a pause
# raises limits_version). The jobs around the message are locked. No suppressed recipient is called. A
# suppression added while the statement waited for the vendor's row is not visible yet, so the statement then allows no
# call.
REPEAT = CALL.format(
    is_open=brake.OPEN,
    known=guard.KNOWN,
    turns=locks.SHARED,
    jobs=f"""jobs AS (
    SELECT j.* FROM campaigns_message m JOIN campaigns_job j ON {AROUND} WHERE m.id = %(id)s
), """,
    sets="""
        sent_at = CASE WHEN %(proved)s THEN clock_timestamp() ELSE m.sent_at - interval '1 microsecond' END,
        units = nullif(%(units)s, 1), """,
    may=f"""clock_timestamp() < coalesce(%(closes)s::timestamptz, 'infinity')
        AND CASE WHEN %(proved)s THEN m.disproved = m.sent_at
            ELSE m.sent_at BETWEEN clock_timestamp() - %(young)s * interval '1 second'
                AND clock_timestamp() + interval '10 seconds' END
        AND NOT EXISTS (SELECT FROM campaigns_complaintpause p JOIN campaigns_campaign k ON k.id = m.campaign_id
                JOIN vendors_vendor v ON v.id = %(vendor)s
            WHERE p.sponsor_id = k.sponsor_id AND p.receiver = %(receiver)s AND p.resumed_at IS NULL AND k.size > 1
                AND NOT k.transactional AND v.channel = 'email' AND NOT v.sandbox)
        AND NOT EXISTS (SELECT FROM jobs
            WHERE coalesce(stopped_at, paused_at) IS NOT NULL OR m.id >= first_message + wait_after)
        AND (SELECT suppressions FROM gate) = (SELECT suppressions FROM vendors_vendor WHERE id = %(vendor)s)
        AND NOT EXISTS (SELECT FROM campaigns_suppression s WHERE s.digest = %(digest)s::bigint AND {HOLDS_ASKED})
        AND (%(digest)s::bigint IS NOT NULL OR NOT EXISTS (SELECT FROM campaigns_suppressionkey))""",
    counted=""", counted AS (
    UPDATE campaigns_job j SET units = j.units + %(units)s FROM jobs, ours WHERE j.id = jobs.id
), plotted AS (
    INSERT INTO vendors_minute AS was (vendor_id, sponsor, at, share, accepted, refused, in_doubt, units)
    SELECT vendor_id, sponsor_id, date_trunc('minute', now()), leaf.id %% 16, 0, 0, 0, %(units)s
    FROM (SELECT * FROM jobs ORDER BY parent_id NULLS LAST LIMIT 1) leaf, ours
    ON CONFLICT (at, vendor_id, sponsor, share) DO UPDATE SET units = was.units + excluded.units
)""",
)
FOR_EVER = 1e10  # seconds


async def allow_look_up(
    connection: AsyncConnection[Any], scope: Scope, doubt: Doubt, hold: float, *, grant: str | None = None
) -> bool | None:
    """Allow a look-up and write it to the ledger. False: the doubt is settled. None: the vendor may not be called.

    grant: identifies the ledger row for calls.tell_ended.
    """
    reaches = _ledger_of(scope, {})
    return await _run_allowing(connection, LOOK_UP, scope, doubt, hold, (), units=1, grant=grant, receivers=reaches)


async def allow_repeat(
    connection: AsyncConnection[Any],
    scope: Scope,
    doubt: Doubt,
    hold: float,
    *,
    units: int,
    young: float | None,
    closes: datetime | None,
    grant: str | None = None,
    probe: int | None = None,
) -> bool | None:
    """Allow a repeat and write it to the ledger. False: it may not be repeated. None: the vendor may not be called.

    closes: the end of the time in which the campaign may be called. young: the first call must be younger than this
    many seconds; None: that call was disproved. grant: as in `allow_look_up`. probe: the probe taken for this call, if
    the credential is braked (vendors/condition/brake.py).
    """
    receiver = receiver_of(doubt.recipient)
    params = {
        "units": units, "closes": closes, "proved": young is None, "young": min(young or 0.0, FOR_EVER),
        "receivers": _ledger_of(scope, {receiver: units}), "receiver": receiver, "probe": probe,
    }  # fmt: skip
    return await _run_allowing(connection, REPEAT, scope, doubt, hold, [doubt.id], grant=grant, **params)


def _ledger_of(scope: Scope, units: Mapping[str, int]) -> str | None:
    """Return the units of each receiver with limits, for the ledger."""
    known = {receiver: units.get(receiver, 0) for receiver in scope.receivers}
    return orjson.dumps(known).decode() if known else None


async def _run_allowing(
    connection: AsyncConnection[Any],
    statement: str,
    scope: Scope,
    doubt: Doubt,
    hold: float,
    held: Sequence[int],
    **more: Any,
) -> bool | None:
    """Run the statement. held: messages whose jobs stay locked meanwhile."""
    params = {
        "vendor": scope.vendor_id, "credential": scope.credential_id, "generation": scope.generation,
        "limits_version": scope.limits_version, "destination": scope.destination, "hold": hold, "id": doubt.id,
        "resend_no": doubt.resend_no, "sent_at": doubt.sent_at, "digest": doubt.digest, **doubt.asking_params, **more,
    }  # fmt: skip
    row = await (await execute_holding(connection, statement, params, messages=held)).fetchone()
    assert row is not None
    is_open, ours = row
    return ours if is_open else None


async def record_disproved(connection: AsyncConnection[Any], doubt: Doubt) -> None:
    """Record that the look-up did not find the call."""
    await connection.execute(
        "UPDATE campaigns_message SET disproved = sent_at, error_sub_type = 'look-up: the vendor does not have it'"
        " WHERE id = %s AND in_doubt_at IS NOT NULL AND resend_no = %s AND sent_at = %s",
        [doubt.id, doubt.resend_no, doubt.sent_at],
    )


LATER = """
UPDATE campaigns_message SET settle_at = clock_timestamp() + %(wait)s * interval '1 second',
    error_sub_type = coalesce(%(note)s, error_sub_type)
WHERE id = %(id)s AND in_doubt_at IS NOT NULL
"""


async def postpone_doubt(
    connection: AsyncConnection[Any], doubt: Doubt, seconds: float | None, note: str | None
) -> None:
    """Keep the doubt and make it due in this many seconds; None: only an operator can settle it."""
    await connection.execute(LATER, {"id": doubt.id, "wait": seconds, "note": note and note[:255]})
