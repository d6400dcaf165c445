"""Which campaigns need the approval of a second person, who asks for it, and what bars a campaign.

A sponsor may demand it above so many recipients. Whatever stores a campaign asks here, in the transaction that stores
it: the campaign begins paused, and pausing/pauses.py lets nothing go on that is undecided or refused. Whether it is
needed is decided once, when it is stored; a change of the sponsor's rule holds for what is stored afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from campaigns.frozen_parts import FROZEN
from campaigns.models import Approval, Campaign
from vendors.history import Actor

Kind, Verdict = Approval.Kind, Approval.Verdict
WAITS = "waits for approval"


@dataclass(frozen=True, slots=True)
class Party:
    """Who asks or decides, by kind (Approval.Kind) and name. user: a user's number; of a key, its maker's."""

    kind: str
    name: str
    user: int | None = None

    @classmethod
    def of(cls, actor: Actor) -> "Party":
        """A user of the pages, or of a shell."""
        return cls(Kind.SHELL if actor.id is None else Kind.USER, actor.name, actor.id)


HOLD_BACK = f"""
WITH asked AS (
    SELECT j.campaign_id, a.name FROM unnest(%(jobs)s::bigint[], %(names)s::text[]) AS a (job, name)
    JOIN campaigns_job j ON j.id = a.job
), campaigns AS (
    UPDATE campaigns_campaign c SET paused_at = clock_timestamp(), paused_by = 'mailhub',
        paused_reason = '{WAITS}, asked for by ' || a.name
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


def ask(cursor: Any, askers: Mapping[int, Party]) -> None:
    """Pauses the campaigns of these jobs, by who asks for each, and stores what is frozen of them.

    In the transaction that stores the campaigns. cursor: of Django or of psycopg.
    """
    who = list(askers.values())
    names = [one.name[:150] for one in who]
    cursor.execute(HOLD_BACK, {"jobs": list(askers), "names": names})
    asked = {"jobs": list(askers), "kinds": [str(one.kind) for one in who], "names": names}
    campaigns = [campaign for (campaign,) in cursor.fetchall()]
    cursor.execute(ASK, {**asked, "users": [one.user for one in who], "campaigns": campaigns})


def bars(campaign_id: int) -> str:
    """Why nothing of the campaign may go, to be said of it; empty: it needs no approval, or has it."""
    found = Approval.objects.filter(campaign=campaign_id).exclude(verdict=Verdict.APPROVED).first()
    return why(found) if found else ""


def is_barred(campaign: Campaign) -> bool:
    """The same without a word. The campaign comes with its approval, or it is read."""
    found = getattr(campaign, "approval", None)  # none: it needs none
    return found is not None and found.verdict != Verdict.APPROVED


def waits(campaign: Campaign) -> bool:
    """Whether another person has yet to decide."""
    found = getattr(campaign, "approval", None)
    return found is not None and found.verdict is None


def why(approval: Approval) -> str:
    if approval.verdict == Verdict.REFUSED:
        remark = f": {approval.remark}" if approval.remark else ""
        return f"refused by {approval.decided_by}{remark}; it never goes out"
    return f"{WAITS}: {approval.asked_by} has asked for it, and somebody else decides (approve_campaign)"


def may_go_on() -> Q:
    """Campaigns that need no approval, or have it."""
    return Q(approval=None) | Q(approval__verdict=Verdict.APPROVED)
