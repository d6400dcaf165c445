"""Batches as the vendor gets them: one PDF, and a manifest that says which pages belong to which letter."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

PREFIX = "mailhub-"
ADDRESS_LINES = 6
"""Columns of the manifest for the lines of an address."""
COLUMNS = (
    "reference", "recipient", "first_page", "pages", "duplex", "colour",
    *(f"address_{number}" for number in range(1, ADDRESS_LINES + 1)), "pdf",
)  # fmt: skip


class Sheet(NamedTuple):
    """One letter in a batch. `address`: its lines."""

    reference: str
    recipient: str
    pages: int
    address: Sequence[str]
    pdf: bytes


def batch_name(references: Iterable[str]) -> str:
    """Return the batch's name. The same letters always get the same name, so a repeat makes no second batch."""
    return PREFIX + blake2b("\n".join(references).encode(), digest_size=12).hexdigest()


def make_manifest(batch: str, sheets: Iterable[Sheet], *, duplex: bool, colour: bool) -> bytes:
    """Return the manifest: a UTF-8 CSV with a row for each letter.

    Pages count from 1; in duplex each letter begins on a front. Values are not escaped for spreadsheets, since a
    program reads them.
    """
    out = io.StringIO(newline="")
    rows = csv.writer(out)
    rows.writerow(COLUMNS)
    page = 1
    for one in sheets:
        lines = [*one.address, *[""] * ADDRESS_LINES][:ADDRESS_LINES]
        facts = (one.reference, one.recipient, page, one.pages, _flag_word(duplex), _flag_word(colour))
        rows.writerow([*facts, *lines, f"{batch}.pdf"])
        page += one.pages + (one.pages % 2 if duplex else 0)
    return out.getvalue().encode()


def read_references(content: bytes) -> set[str]:
    """Return the references in one of our manifests. Raises ValueError for any other content."""
    rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    if tuple(next(rows, ())) != COLUMNS:
        raise ValueError("it is no manifest")
    return {row[0] for row in rows if len(row) == len(COLUMNS)}


def _flag_word(flag: bool) -> str:
    return "yes" if flag else "no"
