"""Finds the delimiter of a CSV file by its first rows, not by its first line alone."""

import csv
import io
import re
from contextlib import suppress
from itertools import islice

DELIMITERS = ",;\t|"
SAMPLE = 100_000  # characters
ROWS = 100
ADDRESS = re.compile(r"\s*[^@\s,;<>]+@[^@\s,;<>]+\.[^@\s,;<>]+\s*")


def find_delimiter(sample: str) -> str:
    """Return the delimiter that gives most rows the header's width and addresses cells of their own.

    If several do so equally well, the first one in the header; without any, a comma.
    """
    ranked = [(_score_delimiter(sample, delimiter), delimiter) for delimiter in DELIMITERS]
    return max(ranked, key=lambda one: one[0])[1]


def _score_delimiter(sample: str, delimiter: str) -> tuple[float, int]:
    rows = _sample_rows(sample, delimiter)
    if not rows or len(rows[0]) < 2:
        return 0, 0
    width = len(rows[0])
    fitting = sum(_fits_header(cells, width) for cells in rows)
    with_address = sum(any(map(ADDRESS.fullmatch, cells)) for cells in rows[1:])
    first = len(rows[0][0])
    return fitting / len(rows) + with_address / len(rows), -first


def _fits_header(cells: list[str], width: int) -> bool:
    return len(cells) == width or (len(cells) > width and not any(map(str.strip, cells[width:])))


def _sample_rows(sample: str, delimiter: str) -> list[list[str]]:
    """Return the first filled rows, without the last one if the sample is cut off."""
    rows = islice(csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter, skipinitialspace=True), ROWS)
    found: list[list[str]] = []
    with suppress(csv.Error):  # for example at an overlong cell: the rows before it are enough
        found.extend(cells for cells in rows if any(map(str.strip, cells)))
    return found[:-1] if len(sample) >= SAMPLE and len(found) > 2 else found
