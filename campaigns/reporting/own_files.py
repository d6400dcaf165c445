"""Files that mailhub has written and reads again: reports of campaigns, and rows left out of a list.

Their columns identify them. CSV has a quote before texts that a spreadsheet would run as a formula
(formulas.make_harmless); reading takes it off. Reading also drops the columns that a report adds, so the list comes
back as it was.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import count

LEFT_OUT = ["row in the list", "left out because"]  # the last columns of a file of left-out rows
REPORT = ("state", "reason", "code", "vendor id", "sent at", "reported at", "sendings", "cause")
SUPPRESSIONS = ("address", "reason", "source", "since", "until", "topic")
# Columns that hardly any other list has; two are enough to know a report, even with some columns removed.
TELLING = {"vendor id", "sent at", "reported at", "sendings"}
SUFFIX = re.compile(r" \(mailhub(?: \d{1,9})?\)\Z")
TYPED = ("mailhub", "cells as they are")  # a property of our spreadsheets, name and value: no cell has a quote more


def name_report_columns(fields: Collection[str]) -> list[str]:
    """Return a name for each column that a report adds, different from these fields' names, also in templates."""
    taken = {_plain_name(name) for name in ("recipient", *fields)}
    return [next(one for one in _possible_names(name) if _plain_name(one) not in taken) for name in REPORT]


def _possible_names(name: str) -> Iterator[str]:
    yield from (name, f"{name} (mailhub)")
    yield from (f"{name} (mailhub {number})" for number in count(2))


def _plain_name(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower()


def find_report_columns(header: Sequence[str]) -> slice | None:
    """Return the slice of the columns that a report added. Empty: only some are left; None: no report."""
    known = [SUFFIX.sub("", name) for name in header]
    if len(TELLING.intersection(known)) < 2:
        return None
    first = max((number for number, name in enumerate(known) if number and name == REPORT[0]), default=0)
    end = first
    while first and end < len(known) and known[end] in REPORT:
        end += 1
    return slice(first, end if TELLING.issubset(known[first:end]) else first)
