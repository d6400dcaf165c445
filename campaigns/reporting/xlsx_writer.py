"""Writes a spreadsheet row by row with XlsxWriter, in memory that does not grow with the rows.

Every cell is a text: 0049 and 1/2 stay as the list had them, and =1+1 is no formula. So nothing needs a quote before
it, unlike in CSV. A sheet holds 1,048,576 rows; the rows after them begin another one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import xlsxwriter

from campaigns.reporting.own_files import TYPED

MOST_ROWS = 1_048_576  # of a sheet
LONGEST_NAME = 24  # characters of a sheet's name; one outside the Basic Multilingual Plane counts as two
BLOCK = 1 << 20  # bytes
LONE_SURROGATES = re.compile("[\ud800-\udfff]")  # not to be encoded; XlsxWriter escapes all else that XML cannot have
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f]")


def xlsx_chunks(header: Sequence[str], rows: Iterable[Sequence[str]], title: str) -> Iterator[bytes]:
    """Yield the file in pieces, after all of it is written to a temporary folder. title: of the first sheet."""
    with TemporaryDirectory() as folder:  # XlsxWriter's own files would stay behind if the rows end with an error
        path = Path(folder, "sheet.xlsx")
        _write_workbook(path, folder, header, rows, title)
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                yield block


def _write_workbook(path: Path, folder: str, header: Sequence[str], rows: Iterable[Sequence[str]], title: str) -> None:
    book = xlsxwriter.Workbook(path, {"constant_memory": True, "tmpdir": folder})
    book.use_zip64()  # is used for files above 4 GB only
    book.set_custom_property(*TYPED)
    left = iter(rows)
    following: Sequence[str] | None = next(left, None)
    number = 0
    while following is not None or not number:
        number += 1
        sheet = book.add_worksheet(_sheet_name(title, number))
        of_sheet = islice(chain([following] if following is not None else (), left), MOST_ROWS - 1)
        for row, cells in enumerate(chain([header], of_sheet)):
            _write_row(sheet, row, cells)
        following = next(left, None)
    book.close()


def _write_row(sheet: Any, row: int, cells: Sequence[str]) -> None:
    for column, text in enumerate(cells):
        if not text:
            continue
        if not text.isascii():
            text = LONE_SURROGATES.sub("", text)
        if text.startswith("<r>") and text.endswith("</r>"):  # XlsxWriter takes it for XML of its own
            text = CONTROLS.sub("", text)
            sheet.write_rich_string(row, column, text[0], text[1], text[2:])
        else:
            sheet.write_string(row, column, text)


def _sheet_name(title: str, number: int) -> str:
    """Make a name that Excel takes: without its signs, not reserved, short enough for a number behind it."""
    plain = LONE_SURROGATES.sub("", CONTROLS.sub("", title))
    name = re.sub(r"[\[\]:*?/\\']", " ", plain)
    short = name.encode("utf-16-le")[: 2 * LONGEST_NAME].decode("utf-16-le", "ignore").strip()
    if not short or short.lower() == "history":
        short = "Report"
    return short if number == 1 else f"{short} {number}"
