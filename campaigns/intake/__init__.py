"""Recipients in: checked wholly, then stored wholly, or not at all.

table, files: CSV. addresses, duplicates, checks: what a good list is. when: times. store: accept, in one transaction.
"""

from campaigns.intake.addresses import reader
from campaigns.intake.checking import check
from campaigns.intake.csv_reader import Table
from campaigns.intake.csv_recipients import CheckedTable, check_table
from campaigns.intake.problems import BadInput, RowError
from campaigns.intake.storage import Recipients, accept, allocate
from campaigns.intake.times import At, Hours

__all__ = [
    "At",
    "BadInput",
    "CheckedTable",
    "Hours",
    "Recipients",
    "RowError",
    "Table",
    "accept",
    "allocate",
    "check",
    "check_table",
    "reader",
]
