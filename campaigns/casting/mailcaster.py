"""A mailcaster takes its next job by its kind's priority order (document 003)."""

import re
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from campaigns.casting import queries as casting_queries
from campaigns.casting.queries import PickedJob, Rank
from campaigns.casting.splitting import child_size
from campaigns.lifecycle import PARENTS, S
from campaigns.models import Campaign, Job
from campaigns.sending_hours import describe_opening, opens_at
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
class ClaimedJob:
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


class _Refused:
    """The picked job's exclusive credential went to another campaign meanwhile."""


def claim(caster_id: int, now: datetime) -> ClaimedJob | None:
    """The caster's next job, in one short transaction; None: nothing for it now, or it is busy, off or being asked.

    A job comes out ENQUEUED and leased to the caster; a child is cut for it where a parent is its turn. Jobs outside
    their campaign's hours are put off on the way.
    """
    while True:
        with transaction.atomic():
            caster = casting_queries.lock(caster_id)
            found = _find(caster, now) if caster else None
        if isinstance(found, _Closed):
            with transaction.atomic():
                casting_queries.postpone(
                    found.campaign, WAITING, found.until, describe_opening(found.campaign, found.until)
                )
        elif not isinstance(found, _Refused):  # with its end the transaction let go of that job and its credential
            return found


def idle_casters(vendor_id: int) -> list[int]:
    """The vendor's enabled casters without a running job, in waking order: MC2 before MC10."""
    return [pk for pk, _ in sorted(casting_queries.idle(vendor_id), key=lambda row: _natural(row[1]))]


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)]


def _find(caster: Mailcaster, now: datetime) -> ClaimedJob | _Closed | _Refused | None:
    seen = casting_queries.look(caster, ORDER[caster.kind])
    if seen is None:
        return None
    holders = casting_queries.holders(Credential.objects.filter(vendor=caster.vendor_id)) if seen.exclusive else {}
    for rank in seen.ranks:
        found = _first(caster, casting_queries.pick(caster.vendor_id, rank, holders, now), now)
        if found:
            return found
    # Another claim may just be cutting the only parent: it is worth the wait, there is more to cut.
    if any(rank in PARENT for rank in seen.ranks):
        return _first(caster, casting_queries.pick(caster.vendor_id, ANY_PARENT, holders, now, wait=True), now)
    return None


def _first(caster: Mailcaster, found: PickedJob | None, now: datetime) -> ClaimedJob | _Closed | _Refused | None:
    if found is None:
        return None
    until = opens_at(found.job.campaign, now) if found.timed else None
    if until:
        return _Closed(found.job.campaign, until)
    if found.exclusive and not casting_queries.admits(found.job):
        return _Refused()
    return _have(caster, found.job, now)


def _have(caster: Mailcaster, job: Job, now: datetime) -> ClaimedJob:
    if job.status not in PARENTS:
        return ClaimedJob(job.pk, casting_queries.take(job, caster, now), job.parent_id, job.size)
    size = child_size(job.remaining, caster.min_size, caster.max_size, caster.percentage)
    child = casting_queries.cut(job, caster, size, now)
    return ClaimedJob(child.pk, child.fence, job.pk, size)
