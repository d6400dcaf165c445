"""Step 1, accept: checks a list of recipients as a whole, then stores all of it or nothing.

- csv_reader reads CSV files, in the encoding that text_encoding finds, and spreadsheets (xlsx_reader).
- checking, with fields, finds the faults of a list; left_out keeps the rows left out.
- storage accepts a campaign in one transaction; requests stores many requests of the HTTP API in one statement.
"""

from campaigns.lists.intake.checking import AddressReader, check_rows
from campaigns.lists.intake.csv_reader import CheckedTable, Table, check_table
from campaigns.lists.intake.hours import Hours
from campaigns.lists.intake.left_out import LeftOut, write_left_out
from campaigns.lists.intake.storage import At, Recipients, allocate_ids, store_campaign
from campaigns.texts.bad_input import BadInput, RowError

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
    "allocate_ids",
    "check_rows",
    "check_table",
    "store_campaign",
    "write_left_out",
]
