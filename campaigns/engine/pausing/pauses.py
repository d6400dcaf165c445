"""Pauses and resumes campaigns, in a transaction whose caller has locked all their jobs (lifecycle.hold_campaign).

A claim reads the row of the job it locks, so each job of the campaign carries `paused_at`; a child inherits it from its
parent when cut. Once a pause has committed, no new call is allowed (promise P5). Calls allowed earlier finish and are
recorded, deadlines pass, and nothing more is cut.

Resuming changes these columns only. A pause does not touch the messages, so no message that has ended or is in doubt is
called again.
"""

import logging
from collections.abc import Sequence
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from campaigns.engine import ports
from campaigns.engine.lifecycle import hold_campaign, passes_locked, wait_at_most
from campaigns.models import Campaign, Job
from campaigns.models.states import S, Status
from vendors import alarms, history, said
from vendors.history import Actor
from vendors.said import Said, gettext_noop

log = logging.getLogger(__name__)
SENDER_REFUSED = gettext_noop(
    "the vendor does not take its sender: %(reply)s. Correct the sender, or have the vendor allow it; then resume"
)
ITSELF = "mailhub"  # the name in `paused_by` if a campaign paused itself


def pause_campaign(campaign_id: int, by: str, reason: str) -> bool:
    """Pause a campaign whose jobs the caller has locked, and store the events. False: it is paused already."""
    mine = Campaign.objects.filter(pk=campaign_id, paused_at=None)
    # Read after the locks, so that every earlier call has an earlier time; the audit of P5 compares them.
    if not mine.update(paused_at=Now(), paused_by=by[:150], **said.columns("paused_reason", reason)):
        return False
    paused = Campaign.objects.get(pk=campaign_id)
    Job.objects.filter(campaign=campaign_id).update(paused_at=paused.paused_at, revision=F("revision") + 1)
    ports.events.campaign_paused(paused)
    return True


def hold_longer(campaign_id: int, by: str, reason: str) -> bool:
    """Keep a campaign paused after its approval. Its jobs are locked by the caller.

    Returns False if it does not wait for approval, or if somebody has paused it already.
    """
    campaign = Campaign.objects.select_related("approval").get(pk=campaign_id)
    if not ports.gates.waits_for_approval(campaign) or campaign.stays_paused:
        return False
    Campaign.objects.filter(pk=campaign_id).update(paused_by=by[:150], stays_paused=reason[:255])
    Job.objects.filter(campaign=campaign_id).update(revision=F("revision") + 1)
    return True


def stay_paused(campaign_id: int, reason: str) -> None:
    """Store the reason that keeps a campaign paused after another person's decision. The caller has locked its jobs."""
    Campaign.objects.filter(pk=campaign_id).update(**said.columns("paused_reason", reason), stays_paused="")


def pause_itself(campaign_id: int, reason: str) -> bool:
    """Pause a campaign on its own account, as `pause_campaign` does, and record it for its jobs."""
    if not pause_campaign(campaign_id, ITSELF, reason):
        return False
    whole = Job.objects.filter(campaign=campaign_id, parent=None).values_list("pk", flat=True)
    history.record_changes(Actor(ITSELF), Job, [(job_id, _paused_job_sentence(job_id)) for job_id in whole], reason)
    alarms.CAMPAIGN_PAUSED.log(log, campaign_id, reason)
    return True


def _paused_job_sentence(job_id: int) -> Said:
    return Said(gettext_noop("job %(job)s's campaign paused"), job=str(job_id))


@transaction.atomic
def pause_for(campaign_id: int, reason: str) -> bool:
    """Lock the campaign's jobs and call `pause_itself`. Returns False if it is paused or has nothing left to pause."""
    hold_campaign(campaign_id)
    return anything_to_pause(campaign_id) and pause_itself(campaign_id, reason)


def resume_campaign(campaign_id: int, judged: dict[str, Any] | None) -> bool:
    """Resume a paused campaign whose jobs the caller has locked. False: it is not paused or lacks its approval.

    If its first messages are sent, the rest goes, too. Otherwise it still waits after them, however many resumes there
    are. judged: the figures that the person saw (rates.accepted_rates).
    """
    mine = Campaign.objects.filter(ports.gates.may_resume(), pk=campaign_id, paused_at__isnull=False)
    cleared = {**said.columns("paused_reason", ""), "stays_paused": ""}
    if not mine.update(paused_at=None, paused_by="", **cleared, judged=judged):
        return False
    jobs = Job.objects.filter(campaign=campaign_id)
    first_sent = [job.pk for job in jobs.filter(wait_after__isnull=False) if are_first_sent(job)]
    jobs.filter(pk__in=first_sent).update(wait_after=None)
    jobs.update(paused_at=None, revision=F("revision") + 1)
    jobs.filter(status=S.DISPATCHED, not_before=None).update(waits_for="")  # a job put back for the pause lacks a time
    jobs.filter(status__in=(S.DISPATCHED, S.P_QUEUED, S.P_ASSIGNING)).update(status_at=Now())  # the wait starts anew
    return True


def are_first_sent(job: Job) -> bool:
    """Return True if all messages before the job's wait for a person are called."""
    cut = job.remaining > 0 and job.is_kept_back  # before its dispatch `remaining` is 0, too
    return cut and not job.children.exclude(status=Status.LOGGED).exists()


def anything_to_pause(campaign_id: int) -> bool:
    """Return True if a job of the campaign may still start calls."""
    over = (S.SENT, S.STOPPED, S.LOGGED, S.P_STOPPED, S.P_FINISHED)
    live = Job.objects.filter(campaign=campaign_id).exclude(status__in=over)
    return live.exclude(status=S.P_ASSIGNED).exists()


def pause_after_first(most: int = 1000) -> list[int]:
    """Pause the campaigns whose first messages are sent. Returns their jobs."""
    cutting = Job.objects.filter(status__in=(S.P_ASSIGNING,), wait_after__isnull=False, paused_at=None)
    found = [job for job in cutting.order_by("id")[:most] if are_first_sent(job)]
    paused = []
    for job in found:
        with passes_locked():
            if _pause_after_first(job):
                paused.append(job.pk)
    return paused


@transaction.atomic
def _pause_after_first(job: Job) -> bool:
    wait_at_most()
    hold_campaign(job.campaign_id)
    now = Job.objects.get(pk=job.pk)  # somebody may just have released the rest
    if now.status != S.P_ASSIGNING or now.paused_at or not are_first_sent(now):
        return False
    gettext_noop("its first %(count)s of %(size)s are called; %(sums)s")  # rows of earlier versions keep this form
    called = Said(
        gettext_noop("its first %(count)s of %(size)s are done; %(sums)s"),
        count=now.wait_after, size=now.size, sums=_came_of(now),
    )  # fmt: skip
    return pause_itself(job.campaign_id, called)


CAME_OF = """
SELECT sum(accepted), sum(refused), sum(bounced), sum(in_doubt), sum(expired), sum(suppressed)
FROM campaigns_job WHERE parent_id = %s
"""
NAMES = ("accepted", "refused", "bounced", "in doubt", "expired", "suppressed")


def _came_of(parent: Job) -> str:
    with connection.cursor() as cursor:
        cursor.execute(CAME_OF, [parent.pk])
        return join_counts(NAMES, cursor.fetchone())


def join_counts(names: Sequence[str], counts: Sequence[int | None]) -> str:
    """Join the counts other than 0: 480 accepted, 20 refused."""
    pairs = zip(names, counts, strict=True)
    return Said.join_parts(", ", (Said("%(count)s %(name)s", count=n, name=Said(name)) for name, n in pairs if n))
