"""How commands answer: sentences and tables for people, one JSON object a line for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from django.core.management.base import OutputWrapper
from rich.console import Console
from rich.markup import escape
from rich.table import Table

NAMES = {"id", "parent", "job", "message"}  # numbers that are typed again, so without separators
PIPE_WIDTH = 200  # columns; a pipe has no width of its own


def tell(out: OutputWrapper, sentence: str, facts: Mapping[str, Any], as_json: bool) -> None:
    """What came of a command, in one of the two ways."""
    if as_json:
        write_json(out, [facts])
    else:
        out.write(sentence)


def write_rows(out: OutputWrapper, rows: Iterable[Mapping[str, Any]], as_json: bool, columns: Sequence[str]) -> None:
    """All facts as JSON, or these columns as a table."""
    if as_json:
        write_json(out, rows)
    else:
        _write_table(out, columns, list(rows))


def write_json(out: OutputWrapper, rows: Iterable[Mapping[str, Any]]) -> None:
    """NDJSON; times in ISO 8601."""
    for row in rows:
        out.write(orjson.dumps(row, default=str).decode())


def word(value: object) -> str:
    """A value as people read it."""
    if value is None or value is False:
        return ""
    if value is True:
        return "yes"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(word, value))
    return str(value)


def _write_table(out: OutputWrapper, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Numbers stand right; an empty list says so."""
    if not rows:
        out.write("nothing to show")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = type(rows[0][column]) is int
        table.add_column(column.replace("_", " "), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(column, row[column])) for column in columns))
    terminal = out.isatty()
    console = Console(force_terminal=terminal, width=None if terminal else PIPE_WIDTH, highlight=False)
    with console.capture() as text:
        console.print(table)
    out.write("\n".join(line.rstrip() for line in text.get().splitlines()))


def _cell(column: str, value: object) -> str:
    return str(value) if column in NAMES and value else word(value)
