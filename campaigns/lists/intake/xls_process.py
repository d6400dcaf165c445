"""A separate process that reads an old Excel file (.xls, BIFF), so that its memory and time are limited.

Started as a script (xls_reader): it imports nothing of ours. It reads the file from its input, and writes lines of JSON
to its output: first the facts about the first visible sheet, or the reason why reading fails; then a row in each line:
its number, a flag for a hidden row, and its cells as kind, value and number of a format.
"""

import json
import os
import sys
from typing import Any

EMPTY, TEXT, NUMBER, DATE, BOOLEAN, ERROR = 0, 1, 2, 3, 4, 5


def main() -> None:
    answers = sys.stdout
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 nothing that a library prints gets there
    try:
        _read(answers)
    except MemoryError:
        _say(answers, {"why": "large"})
    except Exception as error:  # any error that a damaged file causes in the library
        _say(answers, {"why": "password" if "encrypt" in str(error).lower() else "damaged"})


def _say(answers: Any, what: Any) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _read(answers: Any) -> None:
    import xlrd

    content = sys.stdin.buffer.read()
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
    _say(answers, {"since_1904": book.datemode == 1, "formats": formats, "merged": merged})
    for row in range(sheet.nrows):
        cells = [_cell(xlrd, one) for one in sheet.row(row)]
        info = sheet.rowinfo_map.get(row)
        _say(answers, [row + 1, bool(info and info.hidden), cells])


def _cell(xlrd: Any, cell: Any) -> list[Any]:
    if cell.ctype == ERROR:
        return [ERROR, xlrd.error_text_from_code.get(cell.value, "#N/A"), 0]
    if cell.ctype in (NUMBER, DATE):
        return [NUMBER, repr(cell.value), cell.xf_index or 0]
    return [cell.ctype, cell.value, 0] if cell.ctype in (TEXT, BOOLEAN) else [EMPTY, "", 0]


if __name__ == "__main__":
    main()
