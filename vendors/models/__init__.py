"""Tables of vendors.

`vendors`: vendors, credentials, limits, mailcasters, the ledger of calls, minutes. `changes`: changes that wait for a
second person. `conditions`: the answers to the last calls. `prices`: what vendors charge. `histories`: sentences of the
history as data. `reports`: keys and counts of delivery reports. `receivers`: receiving domains that wait, limits of
theirs, and operators' own groups.
"""

from vendors.limits.values import AT_A_TIME
from vendors.models.changes import VendorChange
from vendors.models.conditions import VendorCondition
from vendors.models.histories import HistorySentence
from vendors.models.prices import Price
from vendors.models.receivers import ReceiverDomain, ReceiverLimit, ReceiverMove, ReceiverStamp, ReceiverWait
from vendors.models.reports import CauseCount, ReportCount, ReportKey
from vendors.models.vendors import (
    LONGEST_WINDOW,
    Credential,
    EncryptedJSONField,
    Mailcaster,
    Minute,
    RateLimit,
    Unreadable,
    Usage,
    Vendor,
    every_day,
    find_zone,
    known_zone,
    project_zone,
    queue_of,
)

__all__ = [
    "AT_A_TIME",
    "LONGEST_WINDOW",
    "CauseCount",
    "Credential",
    "EncryptedJSONField",
    "HistorySentence",
    "Mailcaster",
    "Minute",
    "Price",
    "RateLimit",
    "ReceiverDomain",
    "ReceiverLimit",
    "ReceiverMove",
    "ReceiverStamp",
    "ReceiverWait",
    "ReportCount",
    "ReportKey",
    "Unreadable",
    "Usage",
    "Vendor",
    "VendorChange",
    "VendorCondition",
    "every_day",
    "find_zone",
    "known_zone",
    "project_zone",
    "queue_of",
]
