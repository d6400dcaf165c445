"""Statements for the recovery after a failover or a restore: put messages in doubt, adopt the store.

For a message put in doubt, sent_at is the earliest time its call can have been made. It is not later than a stop of its
job, because no call starts after one. For a campaign with a route, the rows may have lost which vendor was called: only
a person settles such a doubt.
"""

from datetime import datetime
from typing import Any

from django.db import connection

from campaigns.engine import lifecycle
from campaigns.engine.failover import guard
from campaigns.engine.lifecycle import sql_list
from campaigns.models import Job, Store
from campaigns.models.states import PARENTS
from vendors import destinations
from vendors.said import Said

# Messages in flight by the rows go in doubt when their sender is found to be lost.
NEVER_CALLED = """m.dequeued_at IS NULL AND m.id NOT IN (SELECT unnest(c.messages)
    FROM campaigns_claim c JOIN campaigns_job j ON j.id = c.job_id AND j.fence = c.fence)"""
# The job had ended by then and was sent again: messages that had failed may have been called.
AGAIN = """m.message_id IS NULL AND m.in_doubt_at IS NULL AND m.error_code IS NOT NULL AND EXISTS (
    SELECT FROM campaigns_job j WHERE j.campaign_id = m.campaign_id AND m.id >= j.first_message
        AND m.id < j.first_message + j.size AND j.status = 'LOGGED' AND j.finished_at < %(at)s)"""
DOUBT = """
WITH picked AS ({picked}), found AS MATERIALIZED (SELECT clock_timestamp() AS at), doubted AS (
    UPDATE campaigns_message m SET dequeued_at = coalesce(m.dequeued_at, clock_timestamp()),
        sent_at = least(%(at)s, (SELECT min(least(j.stopped_at, j.paused_at)) FROM campaigns_job j
            WHERE j.campaign_id = m.campaign_id AND m.id >= j.first_message AND m.id < j.first_message + j.size)),
        in_doubt_at = found.at, taken_over_at = found.at, delivered_at = NULL,
        settle_at = CASE WHEN NOT (SELECT c.routed FROM campaigns_campaign c WHERE c.id = m.campaign_id)
            THEN clock_timestamp() END, error_code = NULL, cause = NULL,
        error_sub_type = 'may have been called before the store was taken over',
        destination = {destination}, asked_destination = NULL
    FROM picked, found WHERE m.id = picked.id
    RETURNING m.id, m.campaign_id, picked.error
), counted AS (
    UPDATE campaigns_job j SET in_doubt = j.in_doubt + s.doubts, refused = greatest(0, j.refused - s.refused),
        expired = greatest(0, j.expired - s.expired), suppressed = greatest(0, j.suppressed - s.suppressed),
        learned = j.learned + 1
    FROM (
        SELECT k.id, count(*) AS doubts, count(*) FILTER (WHERE d.error = 'suppressed') AS suppressed,
            count(*) FILTER (WHERE d.error <> ALL(ARRAY['expired', 'suppressed'])) AS refused,
            count(*) FILTER (WHERE d.error = 'expired') AS expired
        FROM doubted d JOIN campaigns_job k ON k.campaign_id = d.campaign_id AND d.id >= k.first_message
            AND d.id < k.first_message + k.size
        GROUP BY k.id
    ) s WHERE j.id = s.id
)
SELECT count(*) FROM doubted
"""
# A stream claims the first waiting messages from its position on, up to its next request (`upto`) at most. It may skip
# messages that its vendor has put off.
GRANTED = DOUBT.format(
    destination="%(destination)s",
    picked=f"""
    SELECT m.id, m.error_code AS error FROM campaigns_message m JOIN campaigns_campaign c ON c.id = m.campaign_id
    WHERE m.id >= %(first)s AND m.id < %(end)s AND c.created_at <= %(at)s + interval '2 seconds'
        AND ({NEVER_CALLED} OR {AGAIN})
    ORDER BY m.id LIMIT greatest(%(units)s, %(upto)s - %(first)s) + (
        SELECT count(*) FROM campaigns_message m WHERE m.id >= %(first)s AND m.id < %(end)s AND m.dequeued_at IS NULL
            AND m.put_off_at IS NOT NULL)""",
)
# Of a parent, its uncut rest. A stopped child has lost no call since its stop.
WHOLE = DOUBT.format(
    destination=f"""(SELECT {destinations.NUMBER} FROM campaigns_campaign c JOIN vendors_credential l
            ON l.id = c.credential_id JOIN vendors_vendor v ON v.id = l.vendor_id WHERE c.id = m.campaign_id)""",
    picked=f"""
    SELECT DISTINCT m.id, m.error_code AS error FROM campaigns_job j JOIN campaigns_campaign c ON c.id = j.campaign_id
    JOIN campaigns_message m ON m.campaign_id = j.campaign_id AND m.id < j.first_message + j.size
        AND m.id >= j.first_message + CASE WHEN j.status IN {sql_list(PARENTS)} THEN j.size - j.remaining ELSE 0 END
    WHERE (j.vendor_id = %(vendor)s OR c.routed AND EXISTS (
            SELECT FROM campaigns_routeentry e JOIN vendors_credential l ON l.id = e.credential_id
            WHERE e.route_id = c.route_id AND l.vendor_id = %(vendor)s))
        AND j.finished_at IS NULL AND j.stopped_at IS NULL AND NOT j.id = ANY(%(without)s)
        AND coalesce(c.send_at <= clock_timestamp(), true)
        AND c.created_at <= coalesce(%(noticed)s, clock_timestamp()) AND {NEVER_CALLED}""",
)


def hold_all_jobs() -> None:
    """Lock every job that may change, then the store, until the transaction ends: one recovery at a time."""
    lifecycle.hold_jobs(Job.objects.filter(finished_at=None).values_list("pk", flat=True))
    list(Store.objects.select_for_update())


def doubt_granted(first: int, upto: int, end: int, units: int, at: datetime, destination: int | None = None) -> int:
    """Put in doubt the messages that a grant unknown to the rows may have let call. Returns their number.

    destination: where they were called, which the rows may have lost.
    """
    params = {"first": first, "upto": upto, "end": end, "units": units, "at": at, "destination": destination}
    return _count_doubted(GRANTED, params)


def doubt_all(vendor_id: int, at: datetime, noticed: datetime | None, without: list[int]) -> int:
    """Put in doubt all waiting messages of the vendor's jobs, except jobs since the takeover. Returns their number."""
    return _count_doubted(WHOLE, {"vendor": vendor_id, "at": at, "noticed": noticed, "without": without})


def _count_doubted(statement: str, params: dict[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return int(cursor.fetchone()[0])


MARK_INTACT = "INSERT INTO campaigns_intact VALUES (1) ON CONFLICT DO NOTHING"


def mark_intact() -> None:
    """Let calls start from now on, until PostgreSQL crashes."""
    with connection.cursor() as cursor:
        cursor.execute(MARK_INTACT)


FORGET_PROOFS = "UPDATE campaigns_message SET disproved = NULL WHERE in_doubt_at IS NOT NULL AND disproved IS NOT NULL"
ADOPT = f"""
UPDATE campaigns_store SET system = {guard.SYSTEM}, timeline = {guard.TIMELINE}, noticed_at = NULL,
    relation = tableoid::bigint, adoptions = adoptions + 1, adopted_at = clock_timestamp(),
    mark = nullif(held->'mark', 'null'), held = NULL
"""


def adopt_store() -> None:
    """Adopt the store. Senders that begin after this make calls again.

    Deletes proofs of look-ups: a lost repeat may have used them.
    """
    with connection.cursor() as cursor:
        cursor.execute(FORGET_PROOFS)
        cursor.execute(ADOPT)
    mark_intact()


def notice_halt() -> Said | None:
    """Return the reason no call may start, or None. Stores the time a takeover was first seen."""
    why = guard.halt_reason()
    if why in guard.FOR_A_PERSON:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE campaigns_store SET noticed_at = clock_timestamp() WHERE noticed_at IS NULL")
    return why


def takeover_noticed_at() -> datetime | None:
    """Return the time the takeover was first seen."""
    return Store.objects.values_list("noticed_at", flat=True).first()
