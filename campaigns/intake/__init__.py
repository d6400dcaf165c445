"""Recipients in: checked wholly, then stored wholly, or not at all.

table, files: CSV. addresses, duplicates, checks: what a good list is. when: times. store: accept, in one transaction.
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
