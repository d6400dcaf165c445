"""What a store that was taken over may have lost, in numbers; and on a person's word it goes on.

The throttle's Redis is the witness. It remembers each grant of places and for which messages it was; the ledger tells
which of them became claims. So what was called and is not known is known by name, and the rest goes on. Where the
witness was not there all the time, everything of the vendor that waits and may have been called is in doubt: doubt is
never called blindly, and a second letter cannot be taken back.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from campaigns.failover import guard
from campaigns.failover import queries as failover_queries
from campaigns.models import Store
from vendors import history, redis_clients
from vendors.history import Actor
from vendors.limits.throttle import Granted, Throttle, ThrottleUnreachable, Trail
from vendors.models import Credential, RateLimit, Usage, Vendor

HOLD = timedelta(minutes=5)  # no call starts so long after its grant, nor does it last so long


@dataclass(frozen=True, slots=True)
class Loss:
    """What the rows do not know of one vendor.

    witnessed: Redis was there all the time; calls: then, how many it let through that the ledger does not know;
    messages: what goes into doubt. The rest of the calls is of what the store has lost altogether.
    """

    vendor: str
    witnessed: bool
    calls: int
    messages: int

    @property
    def lost(self) -> int:
        """Calls for messages that the rows do not know, or not as waiting."""
        return max(0, self.calls - self.messages)


@dataclass(frozen=True, slots=True)
class Halt:
    """Why nothing is called. taken_over: a person has to decide; since: when that was first seen."""

    why: str
    taken_over: bool
    since: datetime | None


class Changed(Exception):
    """It is no longer so as the person was told. Nothing was done."""


class _Undone(Exception):
    pass


def preview(since: datetime | None = None, without: list[int] | None = None) -> list[Loss]:
    """What `recover` would do; changes nothing."""
    found: list[Loss] = []
    try:
        with transaction.atomic():
            found = _doubts(since, without or [])
            raise _Undone
    except _Undone:
        return found


def recover(
    by: Actor,
    reason: str,
    since: datetime | None = None,
    without: list[int] | None = None,
    shown: str | None = None,
) -> list[Loss]:
    """Puts in doubt what may have been called, adopts the store, and writes down who said so.

    shown: the picture that the person decides on. Raises Changed.
    """
    with transaction.atomic():
        found = _doubts(since, without or [])
        if since is None and needed() is None:
            raise Changed("The store was recovered in the meantime: nothing was done.")
        if shown is not None and shown != version(found):
            raise Changed("The numbers have changed since they were shown: nothing was done. Look at the new ones.")
        failover_queries.adopt()
        history.record(by, Store, [(1, f"recovered: {describe(found)}")], reason)
    return found


def version(found: list[Loss]) -> str:
    """What tells a stale page: this takeover, and its numbers."""
    adoptions = Store.objects.values_list("adoptions", flat=True).first()
    return f"{adoptions}: {describe(found)}"


def describe(found: list[Loss]) -> str:
    """One sentence a vendor."""
    return "; ".join(map(_sentence, found)) or "no vendor has anything that may have been called"


def _sentence(loss: Loss) -> str:
    if not loss.witnessed:
        return f"{loss.vendor}: nobody knows what was called, all that waits is in doubt: {loss.messages:,} messages"
    rest = f", {loss.lost:,} of which the rows know no message that waits" if loss.lost else ""
    return f"{loss.vendor}: {loss.calls:,} calls that the rows do not know{rest}; in doubt: {loss.messages:,} messages"


def _doubts(since: datetime | None, without: list[int]) -> list[Loss]:
    failover_queries.hold()
    newest = Usage.objects.aggregate(newest=Max("at"))["newest"]
    begin = min((at for at in (since, newest) if at is not None), default=None)
    redis = redis_clients.connect(settings.REDIS_URL)
    try:
        found = [_vendor(Throttle(redis), vendor, begin, without) for vendor in Vendor.objects.order_by("pk")]
    finally:
        redis.close()
    return [loss for loss in found if loss.calls or loss.messages]


def _vendor(throttle: Throttle, vendor: Vendor, begin: datetime | None, without: list[int]) -> Loss:
    trail = _witness(throttle, vendor, begin)
    if trail is not None:
        unknown = _unknown(vendor, trail, begin)
        doubted = sum(_one(vendor, grant, following) for grant, following in pairwise([*unknown, None]) if grant)
        return Loss(vendor.slug, True, sum(grant.units for grant in unknown), doubted)
    at = begin or timezone.now()
    messages = failover_queries.doubt_all(vendor.pk, at, failover_queries.noticed(), without)
    longest = RateLimit.objects.filter(vendor=vendor).aggregate(longest=Max("seconds"))["longest"]
    if longest:  # the windows know nothing of these calls either
        until = timezone.now() + timedelta(seconds=longest)
        Credential.objects.filter(vendor=vendor).exclude(closed_until__gt=until).update(closed_until=until)
    return Loss(vendor.slug, False, 0, messages)


def _witness(throttle: Throttle, vendor: Vendor, begin: datetime | None) -> Trail | None:
    """All that Redis let through since the rows were whole; None: it cannot say.

    Under a generation that the rows know claims have come only from grants of after its making. What is cut off at
    the old end must be older than the last claim that the rows know.
    """
    try:
        trail = throttle.granted(vendor.pk, vendor.generation)
    except ThrottleUnreachable:
        return None
    if trail is None or not trail.cut:
        return trail
    oldest = min((grant.at for grant in trail.grants), default=None)
    return trail if begin and oldest and oldest <= (begin - HOLD).timestamp() else None


def _unknown(vendor: Vendor, trail: Trail, begin: datetime | None) -> list[Granted]:
    """Grants for messages that became no claim in these rows: by jobs, oldest first."""
    recent = [one for one in trail.grants if one.note and (begin is None or one.at >= (begin - HOLD).timestamp())]
    known = set(Usage.objects.filter(vendor=vendor, grant__isnull=False).values_list("grant", flat=True))
    return sorted((one for one in recent if one.id not in known), key=lambda one: (_note(one)[2], one.at))


def _one(vendor: Vendor, grant: Granted, following: Granted | None) -> int:
    """Puts in doubt whom the grant was for, and in the ledger what it allowed. How many messages."""
    credential, first, end = _note(grant)
    at = datetime.fromtimestamp(grant.at, UTC)
    columns = {"at": at, "until": at + HOLD, "units": grant.units, "grant": grant.id}
    Usage.objects.create(vendor=vendor, credential_id=credential, **columns)
    upto = first
    if following is not None and _note(following)[::2] == (credential, end):
        upto = max(first, _note(following)[1])
    return failover_queries.doubt_granted(first, upto, end, grant.units, at)


def _note(grant: Granted) -> tuple[int, int, int]:
    """Credential, the first message that was to be claimed, the end of its job."""
    credential, first, end = map(int, grant.note.split())
    return credential, first, end


def facts(loss: Loss) -> dict[str, Any]:
    """For programs."""
    return asdict(loss)


def halt() -> Halt | None:
    """For pages: why nothing is called, and since when; None: calls start."""
    why = guard.halted()
    if why is None:
        return None
    taken_over = why == guard.TAKEN_OVER
    return Halt(why, taken_over, failover_queries.noticed() if taken_over else None)


def needed() -> str | None:
    """Why a person has to decide; None: the store is the one that it was."""
    why = guard.halted()
    return why if why == guard.TAKEN_OVER else None
