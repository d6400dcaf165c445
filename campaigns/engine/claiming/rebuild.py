"""Rebuilding the throttle's window from the ledger of claims after Redis lost it (promise P4)."""

import asyncio
import logging
import threading
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Max
from django.db.models.functions import Now

from campaigns.engine import failpoints
from campaigns.engine.failover import guard
from campaigns.engine.lifecycle import LOCKED_BRIEFLY
from campaigns.engine.threads import locked_most
from vendors import alarms, locks, redis_clients
from vendors.limits.throttle import LedgerEntry, Rebuilt, Throttle, ThrottleUnreachable
from vendors.limits.values import Lost, Scope
from vendors.models import Minute, RateLimit, ReceiverLimit, Usage, Vendor

log = logging.getLogger(__name__)

PLACES_MOST = 2_000_000_000

# The calls allowed by each row: number of possibly open ones, and ends of the others (`ended`; `until`: unknown).
#
# A call counts as open until its deadline unless something proves otherwise. Either its claim is gone and its ledger
# row says when (ended_at), or its claim exists and its answer is stored, merged into the message or not. A message in a
# claim of an earlier sender proves nothing: it may be in doubt because that sender was lost during the call.
ENDS = """recent AS (
    SELECT id, credential_id, until, units, receivers, ended_at FROM vendors_usage
    WHERE vendor_id = %(vendor)s AND until > clock_timestamp() - %(reach)s * interval '1 second'
), call AS (
    SELECT c.ledger, coalesce(u.units, 1) AS units, CASE
        WHEN a.at IS NOT NULL THEN a.at
        WHEN c.fence = j.fence AND m.dequeued_at IS NOT NULL
            THEN coalesce(greatest(m.delivered_at, m.in_doubt_at), clock_timestamp()) END AS ended_at
    FROM campaigns_claim c JOIN recent r ON r.id = c.ledger JOIN campaigns_job j ON j.id = c.job_id
        CROSS JOIN LATERAL unnest(c.messages, c.units) AS u(id, units)
        LEFT JOIN campaigns_message m ON m.id = ANY(ARRAY[u.id])
        LEFT JOIN LATERAL (
            SELECT max(b.at) AS at FROM campaigns_answerbatch b
            WHERE b.job_id = c.job_id AND b.fence = c.fence AND b.claim_id = c.id AND b.called_at = c.at
                AND u.id = ANY(b.messages)
        ) a ON true
), of_row AS (
    SELECT ledger, coalesce(sum(units) FILTER (WHERE ended_at IS NULL), 0) AS open, max(ended_at) AS ended_at
    FROM call GROUP BY ledger
), known AS (
    SELECT r.*, least(greatest(r.ended_at, o.ended_at), r.until) AS ended, least(coalesce(o.open, 0), r.units) AS open
    FROM recent r LEFT JOIN of_row o ON o.ledger = r.id
)"""
# Allowed calls, with the latest moment at which each can have ended: seconds from now, negative if past.
LEDGER = f"""
WITH {ENDS}, split AS (
    SELECT credential_id, until AS ended, CASE WHEN ended < until THEN open ELSE units END AS units FROM known
    UNION ALL SELECT credential_id, ended, units - open FROM known WHERE ended < until
)
SELECT credential_id, extract(epoch FROM ended - clock_timestamp())::float8, units FROM split
WHERE units > 0 AND ended > clock_timestamp() - %(reach)s * interval '1 second'
"""

# The same of one receiver: any of a row's open calls may have gone there. A row that does not name the receiver was
# written without a limit of it, so all its calls may have gone there. So they may up to the row at which the receiver
# last gained a domain. `most`: more places, of the newest calls of a credential, no limit can count.
OF_RECEIVER = f"""
WITH {ENDS}, mine AS (
    SELECT k.credential_id, k.until, k.ended, k.open, coalesce(CASE
        WHEN k.id > coalesce((SELECT m.ledger FROM vendors_receivermove m WHERE m.receiver = %(receiver)s), 0)
        THEN (k.receivers ->> %(receiver)s)::bigint END, k.units) AS units
    FROM known k
), split AS (
    SELECT credential_id, until AS ended, CASE WHEN ended < until THEN least(open, units) ELSE units END AS units
    FROM mine
    UNION ALL SELECT credential_id, ended, units - least(open, units) FROM mine WHERE ended < until
), newest AS (
    SELECT *, sum(units) OVER (PARTITION BY credential_id ORDER BY ended DESC ROWS UNBOUNDED PRECEDING) - units AS newer
    FROM split WHERE units > 0 AND ended > clock_timestamp() - %(reach)s * interval '1 second'
)
SELECT credential_id, extract(epoch FROM ended - clock_timestamp())::float8, least(units, %(most)s)
FROM newest WHERE newer < %(most)s
"""
# The most places that the limits of a receiver can count while a present call is in one of their windows.
PLACES = f"""
SELECT r.receiver, max(r.seconds), max(least({PLACES_MOST}, CASE WHEN r.grows_from IS NULL THEN r.units
    ELSE r.units * power(r.growth, least(60, 2 + r.seconds / 86400 + greatest(0, current_date - r.grows_from)))
    END))::bigint
FROM vendors_receiverlimit r WHERE r.vendor_id = %(vendor)s GROUP BY r.receiver ORDER BY r.receiver
"""

PLOTTED = timedelta(days=8)  # the longest span that plots of the operations page show
KEPT_LEAST = 86_400.0  # seconds that ledger rows are kept: a new limit may have a longer window than those of before


def rebuild_window(throttle: Throttle, vendor_id: int, generation: int) -> bool:
    """Rewrite the window under the next generation. Returns False if another process just did.

    The vendor's row is locked: claims under the old generation are either committed and in the ledger, or claim
    nothing. If the transaction fails after Redis was written, the generations differ and the next call rebuilds again.
    Raises ThrottleUnreachable if Redis is away, if its clock is off, or if the store was taken over.
    """
    with transaction.atomic():
        if why := guard.halt_reason():  # the ledger of this store may lack the last calls
            raise ThrottleUnreachable(why)
        locks.take_turn(vendor_id)
        vendor = Vendor.objects.select_for_update().get(pk=vendor_id)
        if vendor.generation != generation:
            return False
        longest = RateLimit.objects.filter(vendor=vendor).aggregate(longest=Max("seconds"))["longest"] or 0.0
        entries = read_ledger(vendor_id, longest)
        vendor.generation = F("generation") + 1
        vendor.save(update_fields=["generation"])
        failpoints.here("before_rebuild")
        answer = throttle.rebuild(vendor_id, generation + 1, longest, entries)
        failpoints.here("mid_rebuild")
        if answer is None:
            answer = _rebuild_receivers(throttle, vendor_id, generation + 1, vendor.receivers_version)
        if answer is not None and not isinstance(answer, Lost):
            raise ThrottleUnreachable(f"its clock differs by {answer.seconds:.1f} s")
        if isinstance(answer, Lost):  # Redis already has this generation: the database was behind
            Vendor.objects.filter(pk=vendor_id).update(generation=F("generation") + 1)
    failpoints.here("after_rebuild")
    return True


def _rebuild_receivers(throttle: Throttle, vendor_id: int, generation: int, version: int) -> Rebuilt:
    """Rewrite the windows of all receivers with limits under the vendor's new generation."""
    with connection.cursor() as cursor:
        cursor.execute(PLACES, {"vendor": vendor_id})
        limited = cursor.fetchall()
    for receiver, longest, most in limited:
        entries = read_receiver_ledger(vendor_id, receiver, longest, max(1, most))
        answer = throttle.rebuild(vendor_id, generation, longest, entries, receiver, version)
        if answer is not None:
            return answer
    return None


def read_ledger(vendor_id: int, longest: float) -> list[LedgerEntry]:
    """Return the calls that a window of up to `longest` seconds may contain, as Throttle.rebuild takes them."""
    with connection.cursor() as cursor:
        cursor.execute(LEDGER, {"vendor": vendor_id, "reach": longest + 1})
        return [(credential, left, int(units)) for credential, left, units in cursor.fetchall()]


def read_receiver_ledger(vendor_id: int, receiver: str, longest: float, most: int) -> list[LedgerEntry]:
    """Return the calls that a receiver's windows of up to `longest` seconds and `most` places may contain."""
    with connection.cursor() as cursor:
        cursor.execute(OF_RECEIVER, {"vendor": vendor_id, "receiver": receiver, "reach": longest + 1, "most": most})
        return [(credential, left, int(units)) for credential, left, units in cursor.fetchall()]


async def rebuild_lost(scope: Scope) -> None:
    """Run `rebuild_window` in a thread, for a coroutine that found the window of this scope lost."""
    await asyncio.to_thread(_rebuild_lost, scope)


_one_at_a_time = threading.Lock()  # each needs a connection, and a restarted Redis has lost all windows


def _rebuild_lost(scope: Scope) -> None:
    with _one_at_a_time:
        _rebuild_now(scope)


def _rebuild_now(scope: Scope) -> None:
    redis = redis_clients.make_client(settings.REDIS_URL)
    locked_most.set(LOCKED_BRIEFLY)  # in this call's context: otherwise all would wait for one locked vendor
    try:
        if rebuild_window(Throttle(redis), scope.vendor_id, scope.generation):
            level = logging.WARNING if scope.generation else logging.INFO  # a new vendor has none to lose
            alarms.WINDOW_REBUILT.log(log, scope.vendor_id, level=level)
    finally:
        redis.close()
        connection.close()  # the connection of this thread


def forget_old_usage(older_than: timedelta) -> int:
    """Delete ledger rows that no window needs and minutes that no plot shows; return the number of ledger rows.

    Rows are kept for a day at least, so a new limit counts the calls of before in a window of up to a day. A new limit
    with a longer window than that, and than all others, counts only the rows still there.
    """
    Minute.objects.filter(at__lt=Now() - PLOTTED).delete()
    windows = [kind.objects.aggregate(longest=Max("seconds"))["longest"] or 0.0 for kind in (RateLimit, ReceiverLimit)]
    reach = timedelta(seconds=max(KEPT_LEAST, *windows)) + older_than
    vendors = list(Vendor.objects.values_list("pk", flat=True))  # the index starts with them
    return Usage.objects.filter(vendor__in=vendors, until__lt=Now() - reach).delete()[0]
