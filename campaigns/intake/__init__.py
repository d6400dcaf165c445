"""Recipients in: checked wholly, then stored wholly, or not at all.

table, files: CSV. addresses, duplicates, checks: what a good list is. when: times. store: accept, in one transaction.
"""

from campaigns.intake.addresses import reader
from campaigns.intake.checks import check
from campaigns.intake.files import CheckedTable, check_table
from campaigns.intake.problems import BadInput, Problem
from campaigns.intake.store import Recipients, accept, allocate
from campaigns.intake.table import Table
from campaigns.intake.when import At, Hours

__all__ = [
    "At",
    "BadInput",
    "CheckedTable",
    "Hours",
    "Problem",
    "Recipients",
    "Table",
    "accept",
    "allocate",
    "check",
    "check_table",
    "reader",
]
