"""Output of management commands: sentences, tables, JSON lines (--json) and files."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill, wrap
from typing import Any, Literal, TextIO

import orjson
from django.core.management.base import CommandError, OutputWrapper

from vendors.said import count_of

NAMES = {"id", "parent", "job", "message"}  # numbers that users copy, so without separators
GAP = 2  # blanks between two columns
WIDEST = 20  # columns; longer texts are wrapped if not all columns fit
NARROW = 12  # least columns for a name, which is cut off after its second line
PIPE_WIDTH = 200  # columns; a pipe does not have a width


def write_result(out: OutputWrapper, sentence: str, facts: Mapping[str, Any], as_json: bool) -> None:
    """Write the result of a command as a sentence, or as JSON."""
    if as_json:
        write_json(out, [facts])
    else:
        out.write(sentence)


def wrap_sentence(out: OutputWrapper, sentence: str) -> str:
    """Wrap a sentence between words to a terminal's width; a terminal itself would break words."""
    width = get_terminal_size().columns
    return (
        fill(sentence, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        if out.isatty()
        else sentence
    )


def write_rows(
    out: OutputWrapper,
    rows: Iterable[Mapping[str, Any]],
    as_json: bool,
    columns: Sequence[str],
    spare: Sequence[str] = (),
    names: Sequence[str] = (),
) -> None:
    """Write all facts as JSON, or these columns as a table. On narrow terminals spare columns are omitted, in order.

    `names`: columns whose texts take at most two lines.
    """
    if as_json:
        write_json(out, rows)
    else:
        _write_table(out, columns, list(rows), spare, names)


def write_json(out: OutputWrapper, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line; times in ISO 8601."""
    for row in rows:
        out.write(orjson.dumps(row, default=str).decode())


def write_file(out: OutputWrapper, name: str, rows: int, write: Callable[[TextIO], None]) -> None:
    """Write rows to a new file, for spreadsheets, or to standard output (-). Raises CommandError."""
    if name == "-":
        write(sys.stdout)
        return
    try:
        with Path(name).open("x", encoding="utf-8-sig", newline="") as file:  # spreadsheets recognise UTF-8 by its mark
            write(file)
    except FileExistsError:
        raise CommandError(f"{name} is there already: name a new file") from None
    except OSError as error:
        raise CommandError(f"cannot write {name}: {error.strerror}") from error
    out.write(f"{name}: {count_of(rows, 'row')}")


def value_word(value: object) -> str:
    """Return a value as text for a table or a sentence."""
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(value_word, value))
    return str(value)


def fitting_columns(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    spare: Sequence[str],
    width: int,
    names: Sequence[str] = (),
) -> Sequence[str]:
    """Return the columns that fit side by side, dropping spare ones as necessary.

    A long text is wrapped instead of displacing a column.
    """
    left, gone = list(columns), list(spare)
    wide = _needed_widths(columns, rows, names)
    while gone and sum(wide[name] + GAP for name in left) - GAP > width:
        left.remove(gone.pop(0))
    return left


def _needed_widths(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, int]:
    """Return the least width of each column."""
    most = {name: NARROW if name in names else WIDEST for name in columns}
    return {
        name: max(len(name), *(min(most[name], len(_cell_text(name, row[name]))) for row in rows)) for name in columns
    }


def _column_widths(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], names: Sequence[str], width: int
) -> dict[str, int]:
    """Return the widths of the names' columns. They share the remaining space, none wider than its longest text."""
    least = _needed_widths(columns, rows, names)
    whole = {
        name: max(len(name), *(len(_cell_text(name, row[name])) for row in rows)) for name in columns if name in names
    }
    free = width - GAP * (len(columns) - 1) - sum(least[name] for name in columns if name not in names)
    found: dict[str, int] = {}
    for name in sorted(whole, key=lambda one: whole[one]):
        found[name] = max(least[name], min(whole[name], free // (len(whole) - len(found))))
        free -= found[name]
    return found


def _two_lines(text: str, width: int) -> str:
    lines = wrap(text, width)
    return "\n".join(lines if len(lines) < 3 else [lines[0], f"{lines[1][: width - 1]}…"])


def _write_table(
    out: OutputWrapper,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    spare: Sequence[str],
    names: Sequence[str],
) -> None:
    """Write the table. Numbers are right-aligned and never wrapped; an empty list becomes a sentence."""
    if not rows:
        out.write("nothing to show")
        return
    from rich.console import Console  # commands without tables do not wait for it
    from rich.markup import escape
    from rich.table import Table

    terminal = out.isatty()
    console = Console(force_terminal=terminal, width=None if terminal else PIPE_WIDTH, highlight=False)
    columns = fitting_columns(columns, rows, spare, console.width, names)
    widths = _column_widths(columns, rows, names, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = type(rows[0][column]) is int
        side: Literal["left", "right"] = "right" if number else "left"
        table.add_column(
            column.replace("_", " "), justify=side, overflow="fold", no_wrap=number, width=widths.get(column)
        )
    for row in rows:
        cells = ((column, _cell_text(column, row[column])) for column in columns)
        table.add_row(*(escape(_two_lines(text, widths[name]) if name in widths else text) for name, text in cells))
    with console.capture() as text:
        console.print(table)
    out.write("\n".join(line.rstrip() for line in text.get().splitlines()))


def _cell_text(column: str, value: object) -> str:
    return str(value) if column in NAMES and value else value_word(value)
