"""What follows from an answer to a letter of a campaign, for calls and for repeats of doubts."""

from campaigns.models import Campaign
from vendors.outcomes import NotSent, Outcome, follow_cause, spare_credential


def follow_answer(outcome: Outcome, campaign: Campaign) -> Outcome:
    """Return what follows by the answer's cause. A refusal of the campaign's own sender spares the credential."""
    followed = follow_cause(outcome)
    return spare_for_sender(followed, campaign) if isinstance(followed, NotSent) else followed


def spare_for_sender(outcome: NotSent, campaign: Campaign) -> NotSent:
    """Return the outcome, which pauses the campaign alone if the vendor refuses the sender of its identity."""
    return spare_credential(outcome) if outcome.pause and campaign.identity_id is not None else outcome
