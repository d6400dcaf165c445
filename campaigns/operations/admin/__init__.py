"""The admin's pages about sponsors, campaigns, jobs, messages, suppressions and costs."""

from campaigns.admin import (
    answers,
    campaigns,
    complaints,
    costs,
    identities,
    jobs,
    messages,
    quotas,
    routes,
    sharing,
    suppressions,
)

__all__ = [
    "answers",
    "campaigns",
    "complaints",
    "costs",
    "identities",
    "jobs",
    "messages",
    "quotas",
    "routes",
    "sharing",
    "suppressions",
]
