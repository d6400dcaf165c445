"""Compares the grants in Redis with the ledger after a crash of PostgreSQL, before calls start again.

Our sessions commit to disk, so a crash should lose nothing; this finds a disk that lies. A permit is returned when its
call has ended, and no call starts before its claim is committed. A grant with a returned permit that the ledger lacks
therefore proves a lost commit. Then a person decides, as after a takeover (recovery.py). Any other grant that the
ledger lacks never became a claim: its sender will cancel the permits, or has died and they expire.
"""

import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Min
from django.db.models.functions import Now
from django.utils import timezone

from campaigns.engine.failover import guard
from campaigns.engine.failover import queries as failover_queries
from campaigns.models import Store
from vendors import alarms, redis_clients
from vendors.limits.throttle import Granted, Throttle, ThrottleUnreachable
from vendors.limits.values import Scope
from vendors.models import Usage, Vendor
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)

LEDGER = timedelta(minutes=50)  # how far back the ledger is complete; the sweep keeps an hour of it
CLOCKS = timedelta(seconds=10)  # a limit to the clock skew between Redis and PostgreSQL
PATIENCE = 1.0  # seconds for Redis's answer to a page
UNTIL = gettext_noop("%(why)s, until %(at)s at the latest")


def compare_after_crash() -> Said | None:
    """Compare if PostgreSQL has crashed. Returns the reason calls still may not start, or None.

    Raises ThrottleUnreachable: without Redis there is nothing to compare, and no permit.
    """
    with transaction.atomic():
        store = Store.objects.select_for_update(skip_locked=True).first()
        why = guard.halt_reason()
        if store is None or why != guard.CRASHED:  # another process is comparing
            return why
        since, open_calls = _complete_since(store.adopted_at), 0
        with redis_clients.make_client(settings.REDIS_URL) as redis:
            throttle = Throttle(redis)
            for vendor in Vendor.objects.order_by("pk"):
                unknown = _unknown_grants(throttle, vendor, since)
                if lost := [one for one in unknown if one.is_used]:
                    calls = sum(one.units for one in lost)
                    alarms.COMMITS_LOST.log(log, vendor.slug, calls)
                    Store.objects.filter(pk=store.pk).update(timeline=guard.NO_TIMELINE, noticed_at=Now())
                    return guard.LOST
                open_calls += sum(one.is_open for one in unknown)
        if open_calls:
            return guard.CRASHED
        failover_queries.mark_intact()
    alarms.DATABASE_CRASHED.log(log)
    return None


def name_end(why: Said) -> Said:
    """Return the reason for a halt; of a comparison with the time when it is over at the latest, if Redis knows it.

    The comparison ends with the last call that may be open.
    """
    end = _latest_call_end() if why == guard.CRASHED else None
    return Said(UNTIL, why=why, at=f"{timezone.localtime(end):%H:%M:%S}") if end else why


def _latest_call_end() -> datetime | None:
    """Return the latest possible end of the calls in flight; None if there is none, or Redis does not answer."""
    vendors = [(Scope(pk, 0, 0), 1) for pk in Vendor.objects.values_list("pk", flat=True)]
    found: list[tuple[list[float], list[float]]] = []
    with suppress(ThrottleUnreachable), redis_clients.make_client(settings.REDIS_URL, PATIENCE) as redis:
        found = Throttle(redis).places_of(vendors)
    ends = (datetime.fromtimestamp(at, UTC) for of_vendor, _ in found for at in of_vendor)
    return max((end for end in ends if end > timezone.now()), default=None)


def _complete_since(adopted: datetime) -> datetime:
    """Return the time since which every claimed grant is in the ledger; older rows may have been deleted."""
    oldest = Usage.objects.aggregate(oldest=Min("until"))["oldest"]
    recent = timezone.now() - LEDGER
    return max(adopted, min(recent, oldest + CLOCKS) if oldest else recent)


def _unknown_grants(throttle: Throttle, vendor: Vendor, since: datetime) -> list[Granted]:
    """Return grants missing from the ledger, of any generation, because the rows may have lost the newest one.

    Returns none if Redis has forgotten its grants: then a witness is missing.
    """
    trail = throttle.granted(vendor.pk, None, since.timestamp())
    recent = [one for one in trail.grants if one.note] if trail else []
    if not recent:
        return []
    ids = [one.id for one in recent]
    known = set(Usage.objects.filter(vendor=vendor, grant__in=ids).values_list("grant", flat=True))
    return [one for one in recent if one.id not in known]
