"""Decides which campaigns need a second person's approval, records who asks for it, and bars a campaign without it.

A sponsor may require it above a number of recipients. Code that stores a campaign asks here, in the same transaction.
The campaign begins paused, and pausing/pauses.py does not resume it while it is undecided or refused. The need is
decided once, on storing; a change of the sponsor's rule applies to later campaigns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from campaigns.approvals.frozen_parts import FROZEN
from campaigns.models import Approval, Campaign
from vendors.history import Actor
from vendors.said import Said, gettext_noop

Kind, Verdict = Approval.Kind, Approval.Verdict
WAITS = gettext_noop("waits for approval, asked for by %(name)s")


@dataclass(frozen=True, slots=True)
class Party:
    """The one who asks or decides, by kind (Approval.Kind) and name. user: id of the user, or of an API key's maker."""

    kind: str
    name: str
    user: int | None = None

    @classmethod
    def of(cls, actor: Actor) -> "Party":
        """Return the party for a user of the pages or a shell."""
        return cls(Kind.SHELL if actor.id is None else Kind.USER, actor.name, actor.id)


HOLD_BACK = """
WITH asked AS (
    SELECT j.campaign_id, a.name FROM unnest(%(jobs)s::bigint[], %(names)s::text[]) AS a (job, name)
    JOIN campaigns_job j ON j.id = a.job
), campaigns AS (
    UPDATE campaigns_campaign c SET paused_at = clock_timestamp(), paused_by = 'mailhub',
        paused_reason = replace(%(form)s, '%%(name)s', a.name),
        paused_reason_said = jsonb_build_object('form', %(form)s::text, 'values', jsonb_build_object('name', a.name))
    FROM asked a WHERE c.id = a.campaign_id RETURNING c.id, c.paused_at
)
UPDATE campaigns_job j SET paused_at = c.paused_at FROM campaigns c WHERE j.campaign_id = c.id RETURNING c.id
"""
ASK = f"""
WITH frozen AS ({FROZEN})
INSERT INTO campaigns_approval (campaign_id, asked_kind, asked_by, asked_user, asked_at, recipients, frozen, digest)
SELECT f.id, a.kind, a.name, a.number, clock_timestamp(), c.size, f.frozen,
    encode(sha256(convert_to(f.frozen::text, 'UTF8')), 'hex')
FROM unnest(%(jobs)s::bigint[], %(kinds)s::text[], %(names)s::text[], %(users)s::int[]) AS a (job, kind, name, number)
JOIN campaigns_job j ON j.id = a.job JOIN campaigns_campaign c ON c.id = j.campaign_id JOIN frozen f ON f.id = c.id
"""


def ask_for_approval(cursor: Any, askers: Mapping[int, Party]) -> None:
    """Pause the campaigns of these jobs and store their frozen state, with the party that asks for each.

    Runs in the transaction that stores the campaigns. cursor: of Django or of psycopg.
    """
    who = list(askers.values())
    names = [one.name[:150] for one in who]
    cursor.execute(HOLD_BACK, {"jobs": list(askers), "names": names, "form": WAITS})
    asked = {"jobs": list(askers), "kinds": [str(one.kind) for one in who], "names": names}
    campaigns = [campaign for (campaign,) in cursor.fetchall()]
    cursor.execute(ASK, {**asked, "users": [one.user for one in who], "campaigns": campaigns})


def bar_reason(campaign_id: int) -> str:
    """Return the reason nothing of the campaign may be sent, or "" if it needs no approval or has it."""
    found = Approval.objects.filter(campaign=campaign_id).exclude(verdict=Verdict.APPROVED).first()
    return refusal_reason(found) if found else ""


def is_barred(campaign: Campaign) -> bool:
    """Return True if the campaign lacks its approval. The campaign comes with its approval, or it is read."""
    found = getattr(campaign, "approval", None)  # none is needed
    return found is not None and found.verdict != Verdict.APPROVED


def is_undecided(campaign: Campaign) -> bool:
    """Return True if another person has yet to decide."""
    found = getattr(campaign, "approval", None)
    return found is not None and found.verdict is None


def refusal_reason(approval: Approval) -> str:
    if approval.verdict == Verdict.REFUSED:
        by = {"name": approval.decided_by, "remark": approval.remark}
        if approval.remark:
            return Said(gettext_noop("refused by %(name)s: %(remark)s; it never goes out"), **by)
        return Said(gettext_noop("refused by %(name)s; it never goes out"), **by)
    return Said(
        gettext_noop("waits for approval: %(name)s has asked for it, and somebody else decides (approve_campaign)"),
        name=approval.asked_by,
    )


def may_go_on() -> Q:
    """Select campaigns that need no approval, or have it."""
    return Q(approval=None) | Q(approval__verdict=Verdict.APPROVED)
