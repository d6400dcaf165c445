"""The second person's decision to approve or refuse a campaign, for pages and the command.

The decision needs a user who has the permission and sees the campaign's sponsor. To approve, it must not be the user
who asked. A shell names a user of mailhub but cannot prove who is there, so requests from a shell are approved on a
page. An API key decides nothing.
"""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from campaigns.approvals import frozen_parts
from campaigns.approvals.approval_rules import Kind
from campaigns.engine import decisions, lifecycle
from campaigns.engine.dispatch import dispatcher
from campaigns.engine.pausing import pauses, rates
from campaigns.models import Approval, Campaign, Job
from campaigns.models.approvals import APPROVE
from campaigns.models.campaigns import sponsors_of
from campaigns.operations import actions
from campaigns.senders import entitlements
from vendors import history
from vendors.history import Actor
from vendors.ownership import ALL_SPONSORS
from vendors.said import Said, gettext_noop


class CannotDecide(ValueError):
    """A sentence with the reason this person cannot make this decision."""


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """The result. changed: False if it was decided before. message: a sentence."""

    changed: bool
    message: str


def may_decide(user: Any) -> bool:
    """Return True if the user may decide about other people's campaigns at all."""
    return bool(user.is_active and user.has_perm(APPROVE))


def approval_obstacle(approval: Approval, user: Any, shell: str = "") -> str:
    """Return a sentence with the reason this user cannot approve it, or "". shell: as in `decide_approval`."""
    if not may_decide(user):
        return Said(gettext_noop("%(name)s has not the permission to approve campaigns"), name=user.get_username())
    if approval.asked_kind == Kind.SHELL and shell:
        return Said(gettext_noop("it was asked for at a shell, so somebody approves it on its page"))
    asked = approval.asked_user == user.pk
    if approval.asked_kind == Kind.SHELL:
        asked = approval.asked_by == user.get_username()
    said = gettext_noop("%(name)s has asked for it: another person approves it")
    return Said(said, name=user.get_username()) if asked else ""


def waiting_conditions() -> tuple[Q, ...]:
    """Return conditions for undecided approvals of campaigns that could still send something."""
    live = Job.objects.filter(campaign=OuterRef("campaign"), parent=None, finished_at=None)
    return (Q(verdict=None), Q(Exists(live)))


# Each page and poll of owners asks this. The same conditions as `waiting_conditions`.
COUNT_WAITING = """
SELECT count(*) FROM (
    SELECT FROM campaigns_approval a WHERE a.verdict IS NULL
    AND (%(all)s OR a.sponsor_id IN (SELECT sponsor_id FROM campaigns_sponsor_users WHERE user_id = %(user)s))
    AND EXISTS (
        SELECT FROM campaigns_job j
        WHERE j.campaign_id = a.campaign_id AND j.parent_id IS NULL AND j.finished_at IS NULL
    ) LIMIT %(most)s
) waiting
"""


def count_waiting(user: Any, most: int) -> int:
    """Count the waiting campaigns of the sponsors that the user may see, up to `most`."""
    with connection.cursor() as cursor:
        cursor.execute(COUNT_WAITING, {"all": user.has_perm(ALL_SPONSORS), "user": user.pk, "most": most})
        ((count,),) = cursor.fetchall()
    return int(count)


APPROVED = gettext_noop("approved (1 recipient): %(why)s"), gettext_noop("approved (%(count)s recipients): %(why)s")
REFUSED = gettext_noop("refused (1 recipient): %(why)s"), gettext_noop("refused (%(count)s recipients): %(why)s")


@transaction.atomic
def decide_approval(
    campaign_id: int, verdict: str, user: User, remark: str = "", shell: str = "", seen: str = ""
) -> ApprovalDecision:
    """Approve a campaign, which resumes it, or refuse it, which stops it for good.

    A decision is final: a second one changes nothing and reports the first. The campaign is approved as it was frozen.
    If its sender, route or topic has changed since, `seen` (frozen_parts.changes_token) must name those changes. shell:
    the user of the shell at which `user` was named. Raises CannotDecide; nothing is changed then.
    """
    remark = remark.strip()
    lifecycle.hold_campaign(campaign_id)
    mine = Approval.objects.of_sponsors(sponsors_of(user)).filter(campaign=campaign_id)
    found = mine.first()  # read after locking the jobs, so nobody else decides meanwhile
    if found is None:
        none = gettext_noop("campaign %(campaign)s needs no approval, or %(name)s does not see it")
        raise CannotDecide(Said(none, campaign=str(campaign_id), name=user.get_username()))
    if found.verdict:
        said = gettext_noop("campaign %(campaign)s was %(verdict)s by %(name)s already")
        verdict = Said(found.verdict)
        return ApprovalDecision(False, Said(said, campaign=str(campaign_id), verdict=verdict, name=found.decided_by))
    approved = verdict == Approval.Verdict.APPROVED
    _check_decision(found, approved, user, remark, shell)
    changed = _changes_since_request(found, seen) if approved else None
    by = f"{user.get_username()} (at the shell of {shell})" if shell else user.get_username()
    kind = Kind.SHELL if shell else Kind.USER
    facts = {
        "verdict": verdict,
        "decided_kind": kind,
        "decided_by": by[:150],
        "decided_user": user.pk,
        "changed": changed,
    }
    Approval.objects.filter(pk=found.pk, verdict=None).update(**facts, decided_at=Now(), remark=remark)
    actor = Actor(user.get_username(), user.pk)
    rest = _let_campaign_go(found, by) if approved else _stop_refused(found, actor, remark)
    what = Said.count_form(*(APPROVED if approved else REFUSED), count=found.recipients, why=rest)
    history.record_changes(actor, Campaign, [(campaign_id, what)], remark)
    said = gettext_noop("campaign %(campaign)s %(verdict)s: %(why)s")
    return ApprovalDecision(True, Said(said, campaign=str(campaign_id), verdict=Said(verdict), why=rest))


def _check_decision(found: Approval, approved: bool, user: User, remark: str, shell: str) -> None:
    if not may_decide(user):
        raise CannotDecide(approval_obstacle(found, user, shell))
    if "\0" in remark:
        raise CannotDecide(Said(gettext_noop("there is a NUL character in the remark")))
    if not approved and not remark:
        raise CannotDecide(Said(gettext_noop("give a reason for the refusal: the campaign's author reads it")))
    if approved and (why := approval_obstacle(found, user, shell)):
        raise CannotDecide(why)


def _changes_since_request(found: Approval, seen: str) -> dict[str, Any] | None:
    """Return the changes since the request, after checking them against `seen`. Raises CannotDecide."""
    changed = frozen_parts.list_changes(found)
    if any(one.part not in frozen_parts.SHARED for one in changed):
        parts = Said.join_parts(", ", (Said(one.part) for one in changed))
        raise CannotDecide(
            Said(gettext_noop("it is not as it was when its approval was asked for: %(what)s"), what=parts)
        )
    if (token := frozen_parts.changes_token(changed)) != seen:
        what = "; ".join(map(str, changed)) or "all is again as it was asked for"
        changed_so = gettext_noop("it has changed: %(what)s. Look at it and decide again (as %(token)s)")
        raise CannotDecide(Said(changed_so, what=what, token=token or "before"))
    return {one.part: one.now for one in changed} or None


def _let_campaign_go(found: Approval, by: str) -> str:
    campaign = Campaign.objects.get(pk=found.campaign_id)
    if why := campaign.stays_paused:
        pauses.stay_paused(campaign.pk, why)
        stays = gettext_noop("it stays paused, as %(name)s has paused it: %(why)s")
        return Said(stays, name=campaign.paused_by or Said(gettext_noop("somebody")), why=why)
    live = dict(decisions.called_next(campaign.pk).values_list("pk", "vendor"))
    if held := entitlements.find_held_reason(live):
        pauses.stay_paused(campaign.pk, Said(gettext_noop("approved by %(name)s; %(why)s"), name=by, why=held))
        return Said(gettext_noop("it stays paused, %(why)s"), why=held)
    pauses.resume_campaign(campaign.pk, rates.accepted_rates(campaign))
    transaction.on_commit(lambda: dispatcher.notify_vendors(set(live.values())))
    return Said(gettext_noop("it goes on"))


def _stop_refused(found: Approval, actor: Actor, remark: str) -> str:
    whole = Job.objects.filter(campaign=found.campaign_id, parent=None).values_list("pk", flat=True)
    actions.stop_jobs(list(whole), actor, remark)
    refused = Said(gettext_noop("refused by %(name)s: %(remark)s"), name=actor.name, remark=remark)
    pauses.stay_paused(found.campaign_id, refused)
    return Said(gettext_noop("it never goes out"))
