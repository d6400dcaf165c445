"""The admin's pages about campaigns, jobs and messages: look-ups, progress, and the decisions of operators."""

from campaigns.admin import campaigns, jobs, messages

__all__ = ["campaigns", "jobs", "messages"]
