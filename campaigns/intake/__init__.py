"""Step 1, accept: a list of recipients is checked as a whole and stored as a whole, or not at all.

csv_reader reads CSV files, in the encoding that text_encoding finds, and spreadsheets (xlsx_reader); checking
(with fields) finds what is wrong with a list, and left_out keeps what is left out of it. storage accepts a campaign in
one transaction, and requests stores those of the HTTP API, many at once.
"""

from campaigns.intake.checking import AddressReader, BadInput, RowError, check
from campaigns.intake.csv_reader import CheckedTable, Table, check_table
from campaigns.intake.hours import Hours
from campaigns.intake.left_out import LeftOut, write_left_out
from campaigns.intake.storage import At, Recipients, accept, allocate

__all__ = [
    "AddressReader",
    "At",
    "BadInput",
    "CheckedTable",
    "Hours",
    "LeftOut",
    "Recipients",
    "RowError",
    "Table",
    "accept",
    "allocate",
    "check",
    "check_table",
    "write_left_out",
]
