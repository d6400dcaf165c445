"""Reads the first visible sheet of an old Excel file (.xls) with xlrd, in a process whose memory and time are limited.

xlrd keeps a whole sheet in memory and sets no bounds to the work that a file causes. But it tells the formats of
numbers and the hidden rows; other libraries do not.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, BinaryIO

from campaigns.lists.intake.fields import MAX_CELL
from campaigns.lists.intake.sheets import ERROR, UNCALCULATED, SheetRows, name_other_file
from campaigns.lists.intake.xlsx_numbers import CellFormat, cell_format, number_text
from campaigns.reporting.own_files import TYPED
from campaigns.texts.apart import NEEDED
from campaigns.texts.bad_input import BadInput, RowError
from vendors.said import Said

SCRIPT = Path(__file__).with_name("xls_process.py")
MEMORY = 1 << 30  # bytes of addresses: a sheet has 65,536 rows of 256 columns at the most
CPU_SECONDS = 60
SECONDS = 100  # of the clock: less than the lease of a draft
LINE = 64 << 20  # bytes of a row
LIMITS = f"""
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""
TEXT, NUMBER, BOOLEAN, IS_ERROR, IS_UNCALCULATED = 1, 2, 4, 5, 6  # as xls_process has them
WHY = {
    "password": Said("the spreadsheet has a password: save it without one"),
    "damaged": Said("the file is no spreadsheet, has a password, or is damaged: save it as XLSX"),
    "large": Said("the old Excel file takes too much memory or time: save it as XLSX"),
    "hidden": Said("the spreadsheet has no visible sheet"),
    "text": name_other_file(Said("a text document")),
    "slides": name_other_file(Said("a presentation")),
    "mail": name_other_file(Said("an e-mail")),
}


def read_xls(file: BinaryIO, most: int, rows: SheetRows) -> None:
    """Write the sheet to `rows`. most: bytes of the file, and of the process's output. Raises BadInput."""
    file.seek(0, os.SEEK_END)
    if file.tell() > most:
        raise BadInput(Said("the spreadsheet unpacks to more than %(most)s bytes: save it as CSV", most=most))
    file.seek(0)
    with tempfile.TemporaryFile() as copy, tempfile.TemporaryFile() as answers:
        while block := file.read(1 << 20):
            copy.write(block)
        copy.seek(0)
        _run_process(copy, answers, most)
        answers.seek(0)
        _write_sheet(answers, rows)


def _run_process(copy: IO[bytes], answers: IO[bytes], most: int) -> None:
    needed = {name: os.environ[name] for name in NEEDED if name in os.environ}
    command = [sys.executable, "-I", "-c", LIMITS, str(2 * most)]
    try:
        subprocess.run(
            command, stdin=copy, stdout=answers, stderr=subprocess.DEVNULL, env=needed, timeout=SECONDS, check=True
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        raise BadInput(WHY["large"]) from None


def _write_sheet(answers: IO[bytes], rows: SheetRows) -> None:
    about = _read_next_line(answers) or {"why": "damaged"}
    if why := about.get("why"):
        raise BadInput(WHY[why])
    own = bytes.fromhex(about["properties"])
    rows.is_typed = any(all(text.encode(codec) in own for text in TYPED) for codec in ("ascii", "utf-16-le"))
    formats = [cell_format("", code, about["since_1904"]) for code in about["formats"]]
    for first, end, left, right in about["merged"]:
        rows.note_merged(range(left, right), first + 1, end)
    while found := _read_next_line(answers):
        if isinstance(found, dict):
            raise BadInput(WHY[found["why"]])
        number, is_hidden, cells = found
        texts = [_text_of_cell(cell, column, formats, rows) for column, cell in enumerate(cells)]
        if any(len(text) > MAX_CELL for text in texts):
            raise BadInput([RowError(number, Said("a cell is larger than %(most)s characters", most=MAX_CELL))])
        rows.write_row(number, texts, is_hidden)


def _read_next_line(answers: IO[bytes]) -> Any:
    """Return the content of the next line; None: there is none. Raises BadInput."""
    line = answers.readline(LINE)
    try:
        return json.loads(line) if line else None
    except ValueError:
        raise BadInput(WHY["large"]) from None


def _text_of_cell(cell: list[Any], column: int, formats: list[CellFormat | None], rows: SheetRows) -> str:
    kind, value, form_number = cell
    if kind == TEXT:
        return str(value)
    if kind == NUMBER:
        form = formats[form_number] if form_number < len(formats) else None
        shown = number_text(value.removesuffix(".0"), form)
        if form and form.kind and any(map(str.isdigit, shown)):  # a word is given as shown
            rows.note(column, form.kind, shown)
        return shown
    if kind == BOOLEAN:
        return "TRUE" if value else "FALSE"
    if kind == IS_UNCALCULATED:
        return UNCALCULATED
    return f"{ERROR}{value}" if kind == IS_ERROR else ""
