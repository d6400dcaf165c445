"""Acknowledgement files: CSV files in which a vendor reports the fate of letters.

Required columns are reference and status; id, code and reason are optional. Order does not matter, and other columns
are ignored. An unreadable row or file is reported and does not affect the others.
"""

from __future__ import annotations

import csv
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, get_args

from vendors.adapters.reports import FetchedReports, Reported, ReportedKind
from vendors.printing.places import Place, PlacedFile, PlaceError

STATUSES = ("accepted", "refused", "delivered", "failed")
assert set(STATUSES) <= set(get_args(ReportedKind))
MOST_STRANGE = 5  # unreadable rows reported individually
MOST_FILES = 50  # files read in one pass
PART, MOST = 4 << 20, 256 << 20  # bytes: of one read, and of one file in total
LONGEST_HEAD = 10_000  # bytes of the header line
LONGEST = 100_000  # characters above which a row is not read
TOO_LARGE = f"it is larger than {MOST:,} bytes: what follows is not read"
OLD = 600.0  # seconds after which an unfinished last line is taken as complete
READ = ".read"  # suffix of a file that has been read
_LINE_END = re.compile(r"\r\n|\r|\n")


class AcknowledgementFile(NamedTuple):
    """The content of a file, or of a part of it.

    `strange`: sentences about the first rows left out; `left_out`: the number of all such rows; `rows`: the
    number of all rows.
    """

    reported: list[Reported]
    strange: list[str]
    left_out: int
    rows: int
    whole: bool
    """Whether its last line has an end."""


def read_acknowledgements(content: bytes, now: datetime, row: int = 2) -> AcknowledgementFile:
    """Read the rows. `now`: the time of reading, since rows have none. `row`: number of the first row of data."""
    reported: list[Reported] = []
    strange: list[str] = []
    left_out, number = 0, row - 1
    for number, found in enumerate(_split_rows(content), start=row):
        kind = (found.get("status") or "").lower()
        reference = found.get("reference") or ""
        if reference and kind in STATUSES:
            said = (found.get("id") or "", found.get("reason") or "")
            code = (found.get("code") or "")[:20]
            reported.append(Reported(reference, kind, now, *said, code=code, timed=False))  # type: ignore[arg-type]
            continue
        left_out += 1
        if len(strange) < MOST_STRANGE:
            what = f"the status {kind[:40]!r}" if reference else "no reference"
            strange.append(f"row {number} has {what}")
    if not reported and not left_out and content.strip() and not _has_columns(content):
        strange, left_out = ["it has no columns reference and status"], 1
    return AcknowledgementFile(reported, strange, left_out, number - row + 1, content.endswith((b"\n", b"\r")))


def _split_rows(content: bytes) -> Iterator[dict[str, str]]:
    """Yield the complete rows as dictionaries by column name.

    Each line is one row, whatever quotes it contains. So an unclosed quote spoils only its own row.
    """
    if not _has_columns(content):
        return
    first, *lines = _LINE_END.split(_decode_text(content))[:-1]
    delimiter = _find_delimiter(first)
    names = [one.strip().lower() for one in _split_cells(first, delimiter)]
    for line in lines:
        if any(cells := _split_cells(line, delimiter)) or (not cells and line.strip()):
            yield dict(zip(names, cells, strict=False))


def _split_cells(line: str, delimiter: str) -> list[str]:
    """Split one line into cells; empty if the line is too long."""
    try:
        row = next(csv.reader([line], delimiter=delimiter), []) if len(line) <= LONGEST else []
        return [cell.strip() for cell in row]
    except csv.Error:
        return []


def _has_columns(content: bytes) -> bool:
    head = _decode_text(content.splitlines()[0][:LONGEST_HEAD]) if content.strip() else ""
    names = {one.strip().strip('"').lower() for one in head.split(_find_delimiter(head))}
    return {"reference", "status"} <= names


def _find_delimiter(head: str) -> str:
    return ";" if head.count(";") > head.count(",") else ","


def _decode_text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig").replace("\0", "")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace").replace("\0", "")


async def fetch_files(place: Place, folder: str) -> AsyncIterator[FetchedReports]:
    """Yield the content of the folder's files. Raises PlaceError.

    Files are chosen at random: some cannot be renamed or are still being written, and these must not block the others.
    """
    found = [one for one in await place.list_files(folder) if one.name.lower().endswith(".csv")]
    for one in random.sample(found, min(MOST_FILES, len(found))):
        file = FileInParts(place, f"{folder}/{one.name}", one)
        try:
            async for part in file.fetch_parts():
                yield part
        except PlaceError as error:
            if not error.answered:
                raise
            yield FetchedReports(one.name, [], file.settle_part, [f"it cannot be read: {error.reason}"])


@dataclass
class FileInParts:
    """A file at the vendor, read in parts. Each part has whole lines and the column names."""

    place: Place
    path: str
    about: PlacedFile
    size: int = 0
    given: int = 0
    stored: int = 0
    named: bool = False

    async def fetch_parts(self) -> AsyncIterator[FetchedReports]:
        """Yield the parts. Raises PlaceError."""
        head, rest, row = b"", b"", 2
        old = time.time() - self.about.changed > OLD
        while True:
            found = await self.place.read_bytes(self.path, PART, self.size)
            self.size += len(found)
            last = len(found) < PART or self.size >= MOST
            content, rest = _split_lines(head + rest + found, last)
            content += b"\n" if last and old else b""
            said = read_acknowledgements(content, datetime.now(UTC), row)
            row, head = row + said.rows, head or content.partition(b"\n")[0][:LONGEST_HEAD] + b"\n"
            self.given += 1
            strange = [*said.strange, *([TOO_LARGE] if self.size >= MOST else [])]
            self.named = last and self.size < MOST and said.whole
            yield FetchedReports(self.about.name, said.reported, self.settle_part, strange, said.left_out)
            if last:
                return

    async def settle_part(self) -> None:
        """Rename the file as read after its last part, unless a part was not stored or the file still grows."""
        self.stored += 1
        try:
            if self.named and self.stored == self.given and await self.place.file_size(self.path) == self.size:
                await self.place.remove_file(self.path + READ)  # an earlier file of that name
                await self.place.rename_file(self.path, self.path + READ)
        except PlaceError as error:
            raise OSError(f"{self.path} cannot be named as read: {error.reason}") from None


def _split_lines(content: bytes, last: bool) -> tuple[bytes, bytes]:
    """Split the content after its last line end. The last part, or one without a line end, is returned whole."""
    end = len(content) if last else content.rfind(b"\n") + 1 or len(content)
    return content[:end], content[end:]
