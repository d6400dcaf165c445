"""Compares the grants that Redis remembers with the ledger after a crash of PostgreSQL, before calls start again.

Our sessions commit to the disk, so a crash loses nothing; a disk that lies is found here. A permit is returned when its
call has ended, and no call starts before its claim is committed. So a grant of which a permit was returned, and which
the ledger lacks, proves that a commit was lost. Then a person decides, as after a takeover (recovery.py). Any other
grant that the ledger lacks became no claim: its sender cancels the permits, or died, and then its time runs out.
"""

import logging
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Min
from django.db.models.functions import Now
from django.utils import timezone

from campaigns.failover import guard
from campaigns.failover import queries as failover_queries
from campaigns.models import Store
from vendors import redis_clients
from vendors.limits.throttle import Granted, Throttle
from vendors.models import Usage, Vendor

log = logging.getLogger(__name__)

LEDGER = timedelta(minutes=50)  # so far back the ledger is complete: the sweep keeps an hour of it
CLOCKS = timedelta(seconds=10)  # by which the clocks of Redis and of PostgreSQL differ at the most


def compare() -> str | None:
    """Compares if PostgreSQL has crashed. Returns why still no call may start; None: it may.

    Raises ThrottleUnreachable: without Redis nothing can be compared, nor granted.
    """
    with transaction.atomic():
        store = Store.objects.select_for_update(skip_locked=True).first()
        why = guard.halted()
        if store is None or why != guard.CRASHED:  # another process compares
            return why
        since, open_calls = _since(store.adopted_at), 0
        with redis_clients.connect(settings.REDIS_URL) as redis:
            throttle = Throttle(redis)
            for vendor in Vendor.objects.order_by("pk"):
                unknown = _unknown(throttle, vendor, since)
                if lost := [one for one in unknown if one.is_used]:
                    calls = sum(one.units for one in lost)
                    log.error("vendor %s: PostgreSQL has lost commits in a crash: %s calls", vendor.slug, calls)
                    Store.objects.filter(pk=store.pk).update(timeline=guard.NO_TIMELINE, noticed_at=Now())
                    return guard.LOST
                open_calls += sum(one.is_open for one in unknown)
        if open_calls:
            return guard.CRASHED
        failover_queries.mark_intact()
    log.warning("PostgreSQL has crashed: it has all that Redis remembers, so calls start again")
    return None


def _since(adopted: datetime) -> datetime:
    """From when on each grant that became a claim is in the ledger: what is older may have been deleted."""
    oldest = Usage.objects.aggregate(oldest=Min("until"))["oldest"]
    recent = timezone.now() - LEDGER
    return max(adopted, min(recent, oldest + CLOCKS) if oldest else recent)


def _unknown(throttle: Throttle, vendor: Vendor, since: datetime) -> list[Granted]:
    """Grants that the ledger does not have, of whatever generation: the rows may have lost the newest one.

    None where Redis has forgotten them: then there is no witness.
    """
    trail = throttle.granted(vendor.pk, None, since.timestamp())
    recent = [one for one in trail.grants if one.note] if trail else []
    if not recent:
        return []
    ids = [one.id for one in recent]
    known = set(Usage.objects.filter(vendor=vendor, grant__in=ids).values_list("grant", flat=True))
    return [one for one in recent if one.id not in known]
