"""The tables of vendors.

vendors: vendors, credentials, limits, mailcasters, keys of reports, the ledger of calls, minutes. prices: what they
charge.
"""

from vendors.models.prices import Price
from vendors.models.vendors import (
    LONGEST_WINDOW,
    Credential,
    EncryptedJSONField,
    Mailcaster,
    Minute,
    RateLimit,
    ReportCount,
    ReportKey,
    Unreadable,
    Usage,
    Vendor,
    every_day,
    known_zone,
    project_zone,
    queue_of,
)

__all__ = [
    "LONGEST_WINDOW",
    "Credential",
    "EncryptedJSONField",
    "Mailcaster",
    "Minute",
    "Price",
    "RateLimit",
    "ReportCount",
    "ReportKey",
    "Unreadable",
    "Usage",
    "Vendor",
    "every_day",
    "known_zone",
    "project_zone",
    "queue_of",
]
