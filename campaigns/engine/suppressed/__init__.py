"""Who may not be written to, as claims, doubts and imports ask for it; `campaigns.suppression` changes it."""

from typing import Any

from campaigns.models import Campaign

# Whether a suppression s holds for a message of a campaign: with columns, or with the parameters of `asking_params`.
HOLDS = """(s.sponsor_id IS NULL OR s.sponsor_id = {sponsor})
    AND (s.until IS NULL OR s.until > clock_timestamp())
    AND (s.reason <> 'unsubscribed' OR NOT {transactional} AND (s.topic_id IS NULL OR s.topic_id = {topic}))"""
HOLDS_ASKED = HOLDS.format(sponsor="%(sponsor)s", topic="%(topic)s::bigint", transactional="%(transactional)s::bool")


def asking_params(campaign: Campaign) -> dict[str, Any]:
    """Return the parameters of HOLDS_ASKED for a campaign."""
    return {"sponsor": campaign.sponsor_id, "topic": campaign.topic_id, "transactional": campaign.transactional}
