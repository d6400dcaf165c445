"""What operators see: look-ups of jobs, campaigns and messages; stop and retry. Sums and words, never a guess."""

from campaigns.admin import campaigns, jobs, messages

__all__ = ["campaigns", "jobs", "messages"]
