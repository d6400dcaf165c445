"""A mailcaster takes its next job by its kind's priority order (document 003)."""

import re
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import Exists, OuterRef

from campaigns.claims import casting
from campaigns.claims.casting import Rank
from campaigns.hours import in_words, opens_at
from campaigns.models import Campaign, Job
from campaigns.split import child_size
from campaigns.states import PARENTS, RUNNING, S
from vendors.models import Credential, Mailcaster

KIND = Mailcaster.Kind
# Within a rank the oldest job goes first. Children are taken by those who cut: Small Only never recovers one.
SMALL = (Rank((S.RECOVERING,)), Rank((S.DISPATCHED,)))
PARENT = (Rank((S.P_ASSIGNING,)), Rank((S.P_QUEUED,)))
LARGE = (Rank((S.RECOVERING,), children=True), Rank((S.DISPATCHED,), children=True), *PARENT)
ORDER: dict[str, tuple[Rank, ...]] = {
    KIND.SMALL_ONLY: SMALL,
    KIND.SMALL_PRIORITY: SMALL + LARGE,
    KIND.LARGE_PRIORITY: LARGE + SMALL,
    KIND.LARGE_ONLY: LARGE,
}
ANY_PARENT = Rank((S.P_ASSIGNING, S.P_QUEUED))
WAITING = (S.DISPATCHED, S.RECOVERING, S.P_ASSIGNING, S.P_QUEUED)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A leaf job that a caster holds now. fence: the number of this claim. parent_id: of a child. size: messages."""

    job_id: int
    fence: int
    parent_id: int | None
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class _Closed:
    """A campaign whose jobs must wait until then."""

    campaign: Campaign
    until: datetime


def claim(caster_id: int, now: datetime) -> Claimed | None:
    """The caster's next job, in one short transaction; None: nothing for it now, or it is busy, off or being asked.

    A job comes out ENQUEUED and leased to the caster; a child is cut for it where a parent is its turn. Jobs outside
    their campaign's hours are put off on the way.
    """
    while True:
        with transaction.atomic():
            caster = casting.lock(caster_id)
            found = _find(caster, now) if caster else None
        if not isinstance(found, _Closed):
            return found
        with transaction.atomic():
            casting.postpone(found.campaign, WAITING, found.until, in_words(found.campaign, found.until))


def idle_casters(vendor_id: int) -> list[int]:
    """The vendor's enabled casters without a running job, in waking order: MC2 before MC10."""
    idle = Mailcaster.objects.filter(vendor=vendor_id, enabled=True)
    idle = idle.exclude(Exists(Job.objects.filter(mailcaster=OuterRef("pk"), status__in=RUNNING)))
    return [pk for pk, _ in sorted(idle.values_list("pk", "name"), key=lambda row: _natural(row[1]))]


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)]


def _find(caster: Mailcaster, now: datetime) -> Claimed | _Closed | None:
    holders = casting.holders(Credential.objects.filter(vendor=caster.vendor_id))
    ranks = casting.present(caster.vendor_id, ORDER[caster.kind])
    for rank in ranks:
        found = _first(caster, rank, holders, now)
        if found:
            return found
    # Another claim may just be cutting the only parent: it is worth the wait, there is more to cut.
    waits = any(rank in PARENT for rank in ranks)
    return _first(caster, ANY_PARENT, holders, now, wait=True) if waits else None


def _first(
    caster: Mailcaster, rank: Rank, holders: dict[int, int], now: datetime, *, wait: bool = False
) -> Claimed | _Closed | None:
    """The first job of the rank that the caster can have; holders learns what is found to be taken meanwhile."""
    while True:
        with transaction.atomic():
            job = casting.pick(caster.vendor_id, rank, holders, now, wait=wait)
            if job is None:
                return None
            until = opens_at(job.campaign, now)
            if until:
                return _Closed(job.campaign, until)
            holder = casting.admits(job)
            if holder is None:
                return _have(caster, job, now)
            holders[job.credential_id] = holder
            transaction.set_rollback(True)  # lets go of the job and of the credential


def _have(caster: Mailcaster, job: Job, now: datetime) -> Claimed:
    if job.status not in PARENTS:
        return Claimed(job.pk, casting.take(job, caster, now), job.parent_id, job.size)
    size = child_size(job.remaining, caster.min_size, caster.max_size, caster.percentage)
    child = casting.cut(job, caster, size, now)
    return Claimed(child.pk, child.fence, job.pk, size)
