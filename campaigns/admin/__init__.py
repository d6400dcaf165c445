"""The admin's pages about sponsors, campaigns, jobs, messages, suppressions, costs: look-ups, progress, decisions."""

from campaigns.admin import campaigns, costs, identities, jobs, messages, routes, suppressions

__all__ = ["campaigns", "costs", "identities", "jobs", "messages", "routes", "suppressions"]
