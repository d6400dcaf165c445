"""The admin's pages about suppressions."""

from campaigns.suppression.admin import suppressions

__all__ = ["suppressions"]
