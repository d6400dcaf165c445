"""Recipients in: checked wholly, then stored wholly, or not at all.

csv_reader: CSV. checking: what a good list is. storage: accept, in one transaction, and times. requests: those of the
HTTP API, many at once.
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
