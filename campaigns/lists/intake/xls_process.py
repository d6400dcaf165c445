"""A separate process that reads an old Excel file (.xls, BIFF), so that its memory and time are limited.

Started as a script (xls_reader): it imports nothing of ours. It reads the file from its input, and writes lines of JSON
to its output: first the facts about the first visible sheet, or the reason why reading fails; then a row in each line:
its number, a flag for a hidden row, and its cells as kind, value and number of a format.
"""

import json
import os
import struct
import sys
from typing import Any

EMPTY, TEXT, NUMBER, DATE, BOOLEAN, ERROR, UNCALCULATED = 0, 1, 2, 3, 4, 5, 6
# Records of a sheet ([MS-XLS] 2.3).
BEGIN, END, UNCALCED, FORMULAS = 0x0809, 0x000A, 0x005E, (0x0006, 0x0206, 0x0406)
ZERO, NOTHING = bytes(8), b"\x03\0\0\0\0\0\xff\xff"  # values of a formula (2.5.133): 0, and an empty text
ON_LOAD = 3  # flags of programs that leave all calculation to the next one
SUMMARY = "\x05SummaryInformation".encode("utf-16-le")  # programs that calculate write this stream
FOREIGN = {  # streams of other kinds of files: the reason to give
    "EncryptedPackage": "password",
    "WordDocument": "text",
    "PowerPoint Document": "slides",
    "__properties_version1.0": "mail",
}
PROPERTIES, MOST_PROPERTIES = "\x05DocumentSummaryInformation", 100_000  # the stream of a person's own, and bytes


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 nothing that a library prints gets there
    content = sys.stdin.buffer.read()
    try:
        _read(content, answers)
    except MemoryError:
        _say(answers, {"why": "large"})
    except Exception as error:  # any error that a damaged file causes in the library
        why = "password" if "encrypt" in str(error).lower() else "damaged"
        _say(answers, {"why": next((FOREIGN[name] for name in FOREIGN if name.encode("utf-16-le") in content), why)})


def _say(answers: Any, what: Any) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _read(content: bytes, answers: Any) -> None:
    import xlrd

    book = xlrd.open_workbook(
        file_contents=content, formatting_info=True, on_demand=True, ragged_rows=True, logfile=sys.stderr
    )
    for number in range(book.nsheets):
        sheet = book.sheet_by_index(number)
        if sheet.visibility == 0:
            break
        book.unload_sheet(number)
    else:
        _say(answers, {"why": "hidden"})
        return
    formats = [book.format_map[one.format_key].format_str for one in book.xf_list]
    merged = [list(one) for one in sheet.merged_cells[:10_000]]
    own = _read_properties(content)
    _say(answers, {"since_1904": book.datemode == 1, "formats": formats, "merged": merged, "properties": own})
    uncalculated = _find_uncalculated(book, number, has_summary=SUMMARY in content)
    for row in range(sheet.nrows):
        cells = [_cell(xlrd, one) for one in sheet.row(row)]
        for column in uncalculated.get(row, ()):
            cells[column] = [UNCALCULATED, "", 0]
        info = sheet.rowinfo_map.get(row)
        _say(answers, [row + 1, bool(info and info.hidden), cells])


def _read_properties(content: bytes) -> str:
    """Return the bytes of the stream that holds the file's own properties, in hexadecimal digits."""
    from xlrd.compdoc import CompDoc

    stream = CompDoc(content, logfile=sys.stderr).get_named_stream(PROPERTIES)
    return (stream or b"")[:MOST_PROPERTIES].hex()


def _find_uncalculated(book: Any, number: int, *, has_summary: bool) -> dict[int, list[int]]:
    """Return the columns of formulas that no program has calculated, by row. xlrd gives a formula's value alone.

    A program that does not calculate writes 0 or an empty text for each formula. A formula may also come to these.
    """
    at, depth, is_uncalced, has_values = book._sh_abs_posn[number], 0, False, False
    suspects: list[tuple[int, int, bool, bool]] = []
    while at + 4 <= len(book.mem):
        kind, size = struct.unpack_from("<HH", book.mem, at)
        depth += (kind == BEGIN) - (kind == END)  # charts are nested
        if not depth:
            break
        if kind == UNCALCED:
            is_uncalced = True
        elif kind in FORMULAS and depth == 1:
            row, column, _, value, flags = struct.unpack_from("<HHH8sH", book.mem, at + 4)
            if value in (ZERO, NOTHING):
                suspects.append((row, column, value == ZERO, flags & ON_LOAD == ON_LOAD))
            else:
                has_values = True
        at += 4 + size
    found: dict[int, list[int]] = {}
    for row, column, is_zero, is_on_load in suspects:
        if (is_zero and (is_on_load or is_uncalced)) or not (has_summary or has_values):
            found.setdefault(row, []).append(column)
    return found


def _cell(xlrd: Any, cell: Any) -> list[Any]:
    if cell.ctype == ERROR:
        return [ERROR, xlrd.error_text_from_code.get(cell.value, "#N/A"), 0]
    if cell.ctype in (NUMBER, DATE):
        return [NUMBER, repr(cell.value), cell.xf_index or 0]
    return [cell.ctype, cell.value, 0] if cell.ctype in (TEXT, BOOLEAN) else [EMPTY, "", 0]


if __name__ == "__main__":
    main()
