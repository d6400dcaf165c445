"""Decisions about campaigns, by their jobs: pause, resume, and set limits; each one is recorded.

A campaign is one content for one list, so a pause of any of its jobs covers the whole campaign. One transaction for
each job, as in actions.py.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from django.db import transaction
from django.db.models import QuerySet

from campaigns.approvals import approval_rules
from campaigns.engine import decisions, lifecycle
from campaigns.engine.decisions import JobDecision, Verdict
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.pausing import complaints, pauses, rates
from campaigns.lists.intake.storage import PauseRules
from campaigns.models import Campaign, ComplaintPause, Job
from campaigns.senders import entitlements
from campaigns.tasks import notify_webhooks
from vendors import history
from vendors.history import Actor
from vendors.said import Said, gettext_noop


def pause_jobs(
    job_ids: Iterable[int], by: Actor | str, reason: str = "", revision: int | None = None
) -> list[JobDecision]:
    """Pause the campaigns of these jobs: once this has committed, no new call is allowed until they are resumed.

    by, revision: as in actions.stop_jobs. Pausing a paused campaign changes nothing, unless it waits for its approval:
    then it stays paused after the approval.
    """
    return [_pause_job(job_id, by, reason, revision) for job_id in dict.fromkeys(job_ids)]


@transaction.atomic
def _pause_job(job_id: int, by: Actor | str, reason: str, revision: int | None) -> JobDecision:
    job = _hold_campaign_jobs(job_id)
    if job is None:
        return decisions.unknown_job(job_id)
    waits = job.paused_at and approval_rules.is_undecided(job.campaign) and not job.campaign.stays_paused
    if job.paused_at and not waits:
        return JobDecision(
            job_id,
            Verdict.ALREADY,
            Said(gettext_noop("job %(job)s is paused already: %(why)s"), job=str(job_id), why=job.campaign.why_paused),
        )
    if revision not in (None, job.revision):
        return decisions.stale_decision(job_id)
    if not pauses.anything_to_pause(job.campaign_id):
        over = Said(
            gettext_noop("job %(job)s is %(status)s: nothing is left to pause"),
            job=str(job_id), status=Said(job.get_status_display()),
        )  # fmt: skip
        return JobDecision(job_id, Verdict.ALREADY, over)
    name = by.name if isinstance(by, Actor) else by
    why = reason.strip() or Said(gettext_noop("by %(name)s"), name=name or Said(gettext_noop("somebody")))
    if waits:
        pauses.hold_longer(job.campaign_id, name, why)
        said = gettext_noop("job %(job)s's campaign waits for approval, and stays paused after it until it is resumed")
        return _record_pause_decision(JobDecision(job_id, Verdict.DONE, Said(said, job=str(job_id))), by, reason)
    pauses.pause_campaign(job.campaign_id, name, why)
    transaction.on_commit(notify_webhooks)
    said = gettext_noop("job %(job)s's campaign paused: no new call starts until it is resumed")
    return _record_pause_decision(JobDecision(job_id, Verdict.DONE, Said(said, job=str(job_id))), by, reason)


def resume_jobs(
    job_ids: Iterable[int], by: Actor | str, reason: str = "", revision: int | None = None
) -> list[JobDecision]:
    """Resume paused campaigns, also those that wait after their first messages; others stay unchanged.

    Only uncalled messages go on. Until its first messages are sent, a campaign still waits after them. It stays paused
    if it lacks its approval, or while its sponsor may not send it (approval_rules.bar_reason,
    entitlements.find_held_reason). A campaign that paused itself does so again only if its rates get worse than now.
    by, revision: as in actions.stop_jobs; with a revision, a repeat cannot end a later pause, such as the one after the
    first N.
    """
    return [_resume_job(job_id, by, reason, revision) for job_id in dict.fromkeys(job_ids)]


@transaction.atomic
def _resume_job(job_id: int, by: Actor | str, reason: str, revision: int | None) -> JobDecision:
    job = _hold_campaign_jobs(job_id)
    if job is None:
        return decisions.unknown_job(job_id)
    first = Job.objects.filter(campaign=job.campaign_id, wait_after__isnull=False)
    if not job.campaign.paused_at:
        return JobDecision(job_id, Verdict.ALREADY, _choose_form(NOT_PAUSED, job_id, first))
    if revision not in (None, job.revision):
        return decisions.stale_decision(job_id)
    if why := approval_rules.bar_reason(job.campaign_id):
        return JobDecision(
            job_id, Verdict.BUSY, Said(gettext_noop("job %(job)s's campaign: %(why)s"), job=str(job_id), why=why)
        )
    live = dict(decisions.called_next(job.campaign_id).values_list("pk", "vendor"))
    if why := entitlements.find_held_reason(live):
        return JobDecision(job_id, Verdict.BUSY, Said(gettext_noop("job %(job)s is %(why)s"), job=str(job_id), why=why))
    pauses.resume_campaign(job.campaign_id, rates.accepted_rates(job.campaign))
    transaction.on_commit(lambda: dispatcher.notify_vendors(set(live.values())))
    return _record_pause_decision(
        JobDecision(job_id, Verdict.DONE, _choose_form(GOES_ON, job_id, first.all())), by, reason
    )


def resume_receiver(pause_id: int, by: Actor, reason: str = "") -> ComplaintPause | None:
    """Resume a sponsor's bulk mail to one provider after complaints. Returns None if it was over already.

    The present rates are accepted, as engine/pausing/complaints.py says.
    """
    resumed = complaints.resume_receiver(pause_id, by, reason)
    if resumed:  # committed: without the rest, the jobs go on at their time
        dispatcher.notify_vendors(complaints.let_go_on(resumed))
    return resumed


def set_limits(
    job_ids: Iterable[int], limits: Mapping[str, float | None], by: Actor, reason: str = ""
) -> list[JobDecision]:
    """Change the rates at which the campaigns of these jobs pause themselves, from the next check on.

    limits: those of `bounce_limit` and `complaint_limit` that change, in percent; None: the installation's; 0: never. A
    paused campaign stays so until it is resumed. Recorded with old and new values, also for an API key. Raises BadInput
    for an invalid percentage.
    """
    PauseRules(None, **limits)
    return [_set_limits(job_id, limits, by, reason) for job_id in dict.fromkeys(job_ids)]


@transaction.atomic
def _set_limits(job_id: int, limits: Mapping[str, float | None], by: Actor, reason: str) -> JobDecision:
    job = _hold_campaign_jobs(job_id)
    if job is None:
        return decisions.unknown_job(job_id)
    campaign = job.campaign
    changed = {name: value for name, value in limits.items() if getattr(campaign, name) != value}
    if not changed:
        return JobDecision(
            job_id,
            Verdict.ALREADY,
            Said(gettext_noop("job %(job)s's campaign has these limits already"), job=str(job_id)),
        )
    news = (
        history.change_sentence(name, _percent_text(getattr(campaign, name)), _percent_text(changed[name]))
        for name in changed
    )
    said = Said(gettext_noop("job %(job)s's campaign: %(why)s"), job=str(job_id), why=Said.join_parts(", ", news))
    answer = JobDecision(job_id, Verdict.DONE, said)
    Campaign.objects.filter(pk=campaign.pk).update(**changed)
    history.record_changes(by, Campaign, [(campaign.pk, answer.message)], reason)
    return _record_pause_decision(answer, by, reason)


def _percent_text(limit: float | None) -> str:
    if limit is None:
        return Said(gettext_noop("as the installation"))
    if not limit:
        return Said(gettext_noop("none"))
    return Said(gettext_noop("%(share)s%%"), share=Decimal(f"{limit:g}"))


NOT_PAUSED = (
    gettext_noop("job %(job)s is not paused"),
    gettext_noop("job %(job)s is not paused, and waits after its first %(first)s"),
)
GOES_ON = (
    gettext_noop("job %(job)s's campaign goes on"),
    gettext_noop("job %(job)s's campaign goes on, and waits after its first %(first)s"),
)


def _choose_form(forms: tuple[str, str], job_id: int, jobs: "QuerySet[Job]") -> Said:
    """Return the first sentence, or the second one if one of these jobs waits after its first messages."""
    waits = jobs.first()
    if waits is None:
        return Said(forms[0], job=str(job_id))
    return Said(forms[1], job=str(job_id), first=waits.wait_after)


def _hold_campaign_jobs(job_id: int) -> Job | None:
    """Lock all jobs of the job's campaign, then read the job with its campaign; None if it does not exist."""
    campaign = Job.objects.filter(pk=job_id).values_list("campaign", flat=True).first()
    if campaign is None:
        return None
    lifecycle.hold_campaign(campaign)
    return Job.objects.select_related("campaign").get(pk=job_id)


def _record_pause_decision(answer: JobDecision, by: Actor | str, reason: str) -> JobDecision:
    if isinstance(by, Actor):
        history.record_changes(by, Job, [(answer.job_id, answer.message)], reason)
    return answer
