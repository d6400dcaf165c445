"""The throttle's window, rebuilt from the ledger of claims when Redis has lost it (promise P4)."""

import asyncio
import logging
import threading
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Max
from django.db.models.functions import Now

from campaigns import failpoints
from campaigns.failover import guard
from campaigns.lifecycle import LOCKED_BRIEFLY
from campaigns.threads import locked_most
from vendors import redis_clients
from vendors.limits.throttle import Throttle, ThrottleUnreachable
from vendors.limits.values import Lost, Scope
from vendors.models import Minute, RateLimit, Usage, Vendor

log = logging.getLogger(__name__)

PLOTTED = timedelta(days=8)  # as long as the plots of the operations page may look back


def rebuild(throttle: Throttle, vendor_id: int, generation: int) -> bool:
    """Writes the window anew under the next generation; False if another process just did.

    The vendor's row is locked: claims under the old generation are committed and in the ledger, or claim nothing. If
    the transaction fails after Redis was written, the generations differ and the next call rebuilds. Raises
    ThrottleUnreachable if Redis is away or its clock is off, or if the store was taken over.
    """
    with transaction.atomic():
        if why := guard.halted():  # its ledger may lack the last calls
            raise ThrottleUnreachable(why)
        vendor = Vendor.objects.select_for_update().get(pk=vendor_id)
        if vendor.generation != generation:
            return False
        longest = RateLimit.objects.filter(vendor=vendor).aggregate(longest=Max("seconds"))["longest"] or 0.0
        recent = Usage.objects.filter(vendor=vendor, until__gt=Now() - timedelta(seconds=longest + 1))
        rows = recent.annotate(left=F("until") - Now()).values_list("credential_id", "left", "units")
        entries = [(credential, left.total_seconds(), units) for credential, left, units in rows]
        vendor.generation = F("generation") + 1
        vendor.save(update_fields=["generation"])
        failpoints.here("before_rebuild")
        answer = throttle.rebuild(vendor_id, generation + 1, longest, entries)
        failpoints.here("mid_rebuild")
        if answer is not None and not isinstance(answer, Lost):
            raise ThrottleUnreachable(f"its clock differs by {answer.seconds:.1f} s")
        if isinstance(answer, Lost):  # Redis has this generation already: the database was behind
            Vendor.objects.filter(pk=vendor_id).update(generation=F("generation") + 1)
    failpoints.here("after_rebuild")
    return True


async def rebuild_lost(scope: Scope) -> None:
    """`rebuild` in a thread, for a coroutine that read this scope and found its window lost."""
    await asyncio.to_thread(_rebuild_lost, scope)


_one_at_a_time = threading.Lock()  # each has a connection, and a Redis that was restarted lost all windows


def _rebuild_lost(scope: Scope) -> None:
    with _one_at_a_time:
        _rebuild_now(scope)


def _rebuild_now(scope: Scope) -> None:
    redis = redis_clients.connect(settings.REDIS_URL)
    locked_most.set(LOCKED_BRIEFLY)  # in the context of this call: else all wait for a vendor that somebody has locked
    try:
        if rebuild(Throttle(redis), scope.vendor_id, scope.generation):
            level = logging.WARNING if scope.generation else logging.INFO  # a new vendor has none to lose
            log.log(level, "vendor %s: the throttle's window was rebuilt from the ledger", scope.vendor_id)
    finally:
        redis.close()
        connection.close()  # this thread's own


def forget(older_than: timedelta) -> int:
    """Deletes rows of the ledger that no window needs any more, and minutes that no plot does; returns how many."""
    Minute.objects.filter(at__lt=Now() - PLOTTED).delete()
    longest = RateLimit.objects.aggregate(longest=Max("seconds"))["longest"] or 0.0
    reach = timedelta(seconds=longest) + older_than
    vendors = list(Vendor.objects.values_list("pk", flat=True))  # the index starts with them
    return Usage.objects.filter(vendor__in=vendors, until__lt=Now() - reach).delete()[0]
