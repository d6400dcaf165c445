"""The admin's pages about sponsors, campaigns, jobs, messages and suppressions: look-ups, progress, decisions."""

from campaigns.admin import campaigns, identities, jobs, messages, routes, suppressions

__all__ = ["campaigns", "identities", "jobs", "messages", "routes", "suppressions"]
