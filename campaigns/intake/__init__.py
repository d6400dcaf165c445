"""Step 1, accept: a list of recipients is checked as a whole and stored as a whole, or not at all.

csv_reader reads CSV files, checking finds what is wrong with a list, storage accepts a campaign in one transaction,
and requests stores those of the HTTP API, many at once.
"""

from campaigns.intake.checking import BadInput, RowError, address_reader, check
from campaigns.intake.csv_reader import CheckedTable, Table, check_table
from campaigns.intake.storage import At, Hours, Recipients, accept, allocate

__all__ = [
    "At",
    "BadInput",
    "CheckedTable",
    "Hours",
    "Recipients",
    "RowError",
    "Table",
    "accept",
    "address_reader",
    "allocate",
    "check",
    "check_table",
]
