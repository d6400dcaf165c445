"""Recovery after a failover or a restore: shows possible losses of the store, and continues on an operator's decision.

The throttle's Redis keeps an independent record: each grant, with its messages. The ledger says which grants became
claims. The difference may have been called and goes in doubt; the rest is sent. If the record is incomplete, every
waiting message of the vendor that may have been called goes in doubt. A doubt is never called blindly, whereas a second
letter cannot be taken back.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from campaigns.engine.failover import crash, guard, holding
from campaigns.engine.failover import queries as failover_queries
from campaigns.models import Store
from vendors import history, locks, redis_clients
from vendors.history import Actor
from vendors.limits.throttle import Granted, Throttle, ThrottleUnreachable, Trail
from vendors.limits.values import share_out
from vendors.models import Credential, RateLimit, ReceiverLimit, Usage, Vendor
from vendors.said import Said, gettext_noop

HOLD = timedelta(minutes=5)  # a call starts within this time after its grant, and takes less


@dataclass(frozen=True, slots=True)
class Loss:
    """The possible losses in the rows of one vendor.

    witnessed: Redis's record is complete (the name is part of the command's JSON). calls: if so, those it let through
    and the ledger lacks. messages: those that go in doubt. The other calls were for messages lost from the store
    altogether.
    """

    vendor: str
    witnessed: bool
    calls: int
    messages: int

    @property
    def lost(self) -> int:
        """Calls for messages missing from the rows, or not waiting."""
        return max(0, self.calls - self.messages)


@dataclass(frozen=True, slots=True)
class Halt:
    """The reason nothing is called.

    taken_over: an operator has to decide, after a takeover or because a crash has lost commits. since: the time of
    its discovery. held: the reason to ask a person if no other installation has these rows.
    """

    why: Said
    taken_over: bool
    since: datetime | None
    held: str | None = None

    @property
    def lost(self) -> bool:
        return self.why == guard.LOST


class Changed(Exception):
    """The numbers have changed since they were shown. Nothing was done."""


class _Undone(Exception):
    pass


def preview_recovery(since: datetime | None = None, without: list[int] | None = None) -> list[Loss]:
    """Show the effect of `recover_store` without changing anything. since: start of the backup. without: jobs
    left out.
    """
    found: list[Loss] = []
    try:
        with transaction.atomic():
            found = _doubt_possible_calls(since, without or [])
            raise _Undone
    except _Undone:
        return found


def recover_store(
    by: Actor,
    reason: str,
    since: datetime | None = None,
    without: list[int] | None = None,
    shown: str | None = None,
) -> list[Loss]:
    """Put in doubt what may have been called, adopt the store, and record who decided.

    since, without: as in `preview_recovery`. shown: the version on which the decision was made. Raises Changed.
    """
    with transaction.atomic():
        found = _doubt_possible_calls(since, without or [])
        if since is None and person_needed_reason() is None:
            raise Changed(Said(gettext_noop("The store was recovered in the meantime: nothing was done.")))
        if shown is not None and shown != version_of_takeover(found):
            changed = gettext_noop(
                "The numbers have changed since they were shown: nothing was done. Look at the new ones."
            )
            raise Changed(Said(changed))
        failover_queries.adopt_store()
        history.record_changes(
            by, Store, [(1, Said(gettext_noop("recovered: %(losses)s"), losses=describe_losses(found)))], reason
        )
    return found


def version_of_takeover(found: list[Loss]) -> str:
    """Return a text for this takeover and its numbers, to recognise a stale page."""
    adoptions = Store.objects.values_list("adoptions", flat=True).first()
    return f"{adoptions}: {describe_losses(found)}"


def describe_losses(found: list[Loss]) -> Said:
    """Return one sentence for each vendor."""
    if not found:
        return Said(gettext_noop("no vendor has anything that may have been called"))
    return Said.join_parts("; ", map(_loss_sentence, found))


UNWITNESSED = gettext_noop(
    "%(vendor)s: nobody knows what was called, all that waits is in doubt: %(messages)s messages"
)
LOST = gettext_noop(
    "%(vendor)s: %(calls)s calls that the rows do not know, "
    "%(lost)s of which the rows know no message that waits; in doubt: %(messages)s messages"
)
CALLED = gettext_noop("%(vendor)s: %(calls)s calls that the rows do not know; in doubt: %(messages)s messages")


def _loss_sentence(loss: Loss) -> Said:
    form = (LOST if loss.lost else CALLED) if loss.witnessed else UNWITNESSED
    return Said(form, vendor=loss.vendor, calls=loss.calls, lost=loss.lost, messages=loss.messages)


def _doubt_possible_calls(since: datetime | None, without: list[int]) -> list[Loss]:
    failover_queries.hold_all_jobs()
    newest = Usage.objects.aggregate(newest=Max("at"))["newest"]
    begin = min((at for at in (since, newest) if at is not None), default=None)
    redis = redis_clients.make_client(settings.REDIS_URL)
    try:
        found = [
            _doubt_calls_of_vendor(Throttle(redis), vendor, begin, without) for vendor in Vendor.objects.order_by("pk")
        ]
    finally:
        redis.close()
    return [loss for loss in found if loss.calls or loss.messages]


def _doubt_calls_of_vendor(throttle: Throttle, vendor: Vendor, begin: datetime | None, without: list[int]) -> Loss:
    trail = _read_grant_record(throttle, vendor, begin)
    if trail is not None:
        unknown = _grants_without_claim(vendor, trail, begin)
        for grant in unknown:
            _enter_in_ledger(vendor, grant)
        parts = sorted((part for grant in unknown for part in _parts_of_grant(grant)), key=lambda part: part[:5])
        doubted = sum(_doubt_part(part, following) for part, following in pairwise([*parts, None]) if part)
        return Loss(vendor.slug, True, sum(grant.units for grant in unknown), doubted)
    at = begin or timezone.now()
    messages = failover_queries.doubt_all(vendor.pk, at, failover_queries.takeover_noticed_at(), without)
    spans = (
        kind.objects.filter(vendor=vendor).aggregate(longest=Max("seconds"))["longest"] or 0.0
        for kind in (RateLimit, ReceiverLimit)
    )
    longest = max(spans)
    if longest:  # the windows lack these calls, too
        locks.take_turn(vendor.pk)
        until = timezone.now() + timedelta(seconds=longest)
        Credential.objects.filter(vendor=vendor).update(braked_at=None)  # its probes would end this wait
        Credential.objects.filter(vendor=vendor).exclude(retry_after_until__gt=until).update(
            retry_after_until=until, asked_wait=None
        )
    return Loss(vendor.slug, False, 0, messages)


def _read_grant_record(throttle: Throttle, vendor: Vendor, begin: datetime | None) -> Trail | None:
    """Return the grants since the rows were complete, or None if Redis cannot say.

    Claims under a generation in the rows come only from grants made after it began. If the old end of the trail was cut
    off, the trail must still reach back beyond the last claim in the rows.
    """
    try:
        trail = throttle.granted(vendor.pk, vendor.generation)
    except ThrottleUnreachable:
        return None
    if trail is None or not trail.cut:
        return trail
    oldest = min((grant.at for grant in trail.grants), default=None)
    return trail if begin and oldest and oldest <= (begin - HOLD).timestamp() else None


def _grants_without_claim(vendor: Vendor, trail: Trail, begin: datetime | None) -> list[Granted]:
    """Return the grants that became no claim in these rows."""
    recent = [one for one in trail.grants if one.note and (begin is None or one.at >= (begin - HOLD).timestamp())]
    known = set(Usage.objects.filter(vendor=vendor, grant__isnull=False).values_list("grant", flat=True))
    return [one for one in recent if one.id not in known]


def _enter_in_ledger(vendor: Vendor, grant: Granted) -> None:
    """Write the grant's units to the ledger."""
    at = datetime.fromtimestamp(grant.at, UTC)
    columns = {"at": at, "until": at + HOLD, "units": grant.units, "grant": grant.id}
    Usage.objects.create(vendor=vendor, credential_id=_caller_of_grant(grant)[0], **columns)


def _caller_of_grant(grant: Granted) -> tuple[int, int | None]:
    """Return the credential and the destination it called; None: noted by a version without destinations."""
    credential, _, destination = grant.note.split()[0].partition("@")
    return int(credential), int(destination) if destination else None


class _Part(NamedTuple):
    """A job's share of a grant; sorts by job, oldest first. first: the next message to claim. end: of the job."""

    credential: int
    end: int
    at: float
    first: int
    units: int
    destination: int | None


def _parts_of_grant(grant: Granted) -> Iterator[_Part]:
    """Yield one part for each job of the grant. The note has each job's first message, end, and wanted units.

    Negative units: the grant was for messages of one job out of order, and any of this range may have been called
    (claiming/receiving.py).
    """
    (credential, destination), rest = _caller_of_grant(grant), [*map(int, grant.note.split()[1:])]
    if len(rest) == 2:  # of a version that claimed for one job at a time
        rest.append(grant.given)
    jobs = list(zip(rest[::3], rest[1::3], rest[2::3], strict=True))
    if any(want < 0 for *_, want in jobs):
        yield from (_Part(credential, end, grant.at, first, end - first, destination) for first, end, _ in jobs)
        return
    for (first, end, _), share in zip(jobs, share_out(grant.given, [want for *_, want in jobs]), strict=True):
        if share:
            yield _Part(credential, end, grant.at, first, min(share, grant.units), destination)


def _doubt_part(part: _Part, following: _Part | None) -> int:
    """Put in doubt the messages that the grant was for. Returns their number."""
    upto = part.first
    if following is not None and (following.credential, following.end) == (part.credential, part.end):
        upto = max(upto, following.first)
    at = datetime.fromtimestamp(part.at, UTC)
    return failover_queries.doubt_granted(part.first, upto, part.end, part.units, at, part.destination)


def loss_facts(loss: Loss) -> dict[str, Any]:
    """Return a loss for --json."""
    return asdict(loss)


def current_halt() -> Halt | None:
    """Return why nothing is called and since when, for pages, or None if calls start."""
    why = guard.halt_reason()
    if why is None:
        return None
    taken_over, held = why in (guard.TAKEN_OVER, guard.LOST), why == guard.HELD
    since = failover_queries.takeover_noticed_at() if taken_over or held else None
    return Halt(crash.name_end(why), taken_over, since, holding.hold_reason() if held else None)


def person_needed_reason() -> str | None:
    """Return the reason an operator has to decide, or None: no takeover, and nothing lost in a crash."""
    why = guard.halt_reason()
    return why if why in (guard.TAKEN_OVER, guard.LOST) else None
