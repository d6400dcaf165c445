"""The admin's pages about sender identities, entitlements, shares and quotas."""

from campaigns.senders.admin import identities, quotas, sharing

__all__ = ["identities", "quotas", "sharing"]
