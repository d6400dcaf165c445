"""The engine's port `suppressions`."""

from campaigns.suppression.by_reports import suppress_reported
from campaigns.suppression.refused import REFUSED_SO, suppress_recipient, suppress_refused

__all__ = ["REFUSED_SO", "suppress_recipient", "suppress_refused", "suppress_reported"]
