"""The admin's pages about campaigns, jobs, messages and suppressions: look-ups, progress, decisions."""

from campaigns.admin import campaigns, jobs, messages, suppressions

__all__ = ["campaigns", "jobs", "messages", "suppressions"]
