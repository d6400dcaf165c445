"""What a mailcaster does to rows: lock itself, pick, take a leaf, cut a child from a parent (document 003).

Locks are taken in one order: the caster, the job, its exclusive credential. Rows that another claim holds are passed
over, so claims do not wait for each other, but for an exclusive credential and for the last parent there is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Exists, F, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from campaigns import failpoints
from campaigns.models import HOLDING, Campaign, Job
from campaigns.states import RUNNING, S, Status, move
from vendors.models import Credential, Mailcaster, Vendor

# Large texts and secrets: not needed to choose a job.
HEAVY = ("campaign__subject", "campaign__body", "credential__secret")
# So long everything waits that was just put back. What is overdue but could not even be made to expire would be taken
# again at once, without end and before all younger jobs.
SOON = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Rank:
    """One step of a priority order: jobs in these states; leaf jobs either small ones or children."""

    statuses: tuple[Status, ...]
    children: bool = False


def lock(caster_id: int) -> Mailcaster | None:
    """The caster, locked, if it may take a job: enabled, without a running job, nobody at it."""
    free = Mailcaster.objects.filter(pk=caster_id, enabled=True)
    caster = free.select_related("vendor").select_for_update(of=("self",), no_key=True, skip_locked=True).first()
    if caster is None or Job.objects.filter(mailcaster=caster, status__in=RUNNING).exists():
        return None
    return caster


def present(vendor_id: int, ranks: Sequence[Rank]) -> list[Rank]:
    """Those of the ranks that have any job at all, in one statement; most have none."""
    row = Vendor.objects.filter(pk=vendor_id).values_list(*(Exists(_of(vendor_id, rank)) for rank in ranks)).get()
    return [rank for rank, some in zip(ranks, row, strict=True) if some]


def _of(vendor_id: int, rank: Rank) -> "QuerySet[Job]":
    return Job.objects.filter(vendor=vendor_id, status__in=rank.statuses, parent__isnull=not rank.children)


def pick(vendor_id: int, rank: Rank, holders: Mapping[int, int], now: datetime, *, wait: bool = False) -> Job | None:
    """The oldest job of the rank that may go now, locked; with its campaign and credential.

    holders: exclusive credentials in use, and the campaign whose jobs they still take. wait: for a row that somebody
    holds, too, instead of passing it over.
    """
    overdue = Q(campaign__deadline__lte=now)  # it has no call to wait for, and must be seen to expire
    jobs = _of(vendor_id, rank)
    jobs = jobs.filter(Q(not_before=None) | Q(not_before__lte=now) | overdue & Q(not_before__gt=now + SOON))
    for until in ("credential__closed_until", "credential__full_until"):
        jobs = jobs.filter(overdue | Q(**{until: None}) | Q(**{f"{until}__lte": now}))
    going = Q(vendor__paused=False, credential__paused=False)
    jobs = jobs.filter(overdue | going).exclude(status=S.P_ASSIGNING, remaining=0)
    for credential_id, campaign_id in holders.items():
        jobs = jobs.exclude(~Q(campaign=campaign_id), credential=credential_id)
    locked = jobs.select_for_update(of=("self",), no_key=True, skip_locked=not wait)
    return locked.select_related("campaign", "credential").defer(*HEAVY).order_by("id").first()


def holders(credentials: "QuerySet[Credential]") -> dict[int, int]:
    """Which campaign holds which of these exclusive credentials (document 001).

    Started jobs come before parents that are between two children: a parent that a person retries while another
    campaign is being sent waits for it, and of two such parents the older one goes on.
    """
    jobs = Job.objects.filter(HOLDING, credential__in=credentials.filter(exclusive=True))
    jobs = jobs.annotate(between=Q(status__in=(S.P_ASSIGNING, S.P_ASSIGNED)))
    rows = jobs.order_by("credential_id", "between", "id").distinct("credential_id")
    return dict(rows.values_list("credential_id", "campaign_id"))


def admits(job: Job) -> int | None:
    """Locks the job's credential if it is exclusive: None if it takes this job, else the campaign that holds it."""
    if not job.credential.exclusive:
        return None
    login = Credential.objects.filter(pk=job.credential_id)
    login.select_for_update(no_key=True).values_list("pk").get()  # of two claims, one sees what the other did
    holder = holders(login).get(job.credential_id)
    return None if holder == job.campaign_id else holder


def take(job: Job, caster: Mailcaster, now: datetime) -> int:
    """A leaf job becomes the caster's; returns the fence of this claim."""
    move(
        Job.objects.filter(pk=job.pk),
        "enqueue",
        fence=F("fence") + 1,
        heartbeat_at=Now(),
        mailcaster=caster,
        started_at=Coalesce("started_at", now),
        not_before=None,
        waits_for="",
    )
    failpoints.here("after_pick")
    return job.fence + 1


def cut(parent: Job, caster: Mailcaster, size: int, now: datetime) -> Job:
    """The next messages of a locked parent become a child, which is the caster's at once (fence 1)."""
    child = Job.objects.create(
        campaign_id=parent.campaign_id,
        sponsor_id=parent.sponsor_id,
        vendor_id=parent.vendor_id,
        credential_id=parent.credential_id,
        parent=parent,
        mailcaster=caster,
        status=S.ENQUEUED,
        first_message=parent.end - parent.remaining,
        size=size,
        fence=1,
        heartbeat_at=Now(),
        created_at=now,
        dispatched_at=now,
        started_at=now,
    )
    mine = Job.objects.filter(pk=parent.pk)
    if parent.status == S.P_QUEUED:
        move(mine, "assign", started_at=now)
    mine.update(remaining=parent.remaining - size, not_before=None, waits_for="")
    if size == parent.remaining:
        move(mine, "assigned")
    failpoints.here("after_cut")
    return child


def postpone(campaign: Campaign, statuses: Sequence[Status], until: datetime, reason: str) -> int:
    """All jobs of a campaign in these states wait until then. Jobs that somebody holds are passed over."""
    jobs = Job.objects.filter(campaign=campaign, status__in=statuses).exclude(not_before__gt=until)
    mine = jobs.order_by("id").select_for_update(no_key=True, skip_locked=True).values("pk")
    return Job.objects.filter(pk__in=mine).update(not_before=until, waits_for=reason[:255])
