"""How commands answer: tables for people, one JSON object a line for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from django.core.management.base import OutputWrapper
from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 200  # columns; a pipe has no width of its own


def write_table(out: OutputWrapper, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers stand right; an empty list says so."""
    terminal = out.isatty()
    console = Console(force_terminal=terminal, width=None if terminal else PIPE_WIDTH, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    lines = [list(row) for row in rows]
    if not lines:
        out.write("nothing to show")
        return
    for column, first in zip(columns, lines[0], strict=True):
        table.add_column(column, justify="right" if isinstance(first, int) else "left", overflow="fold")
    for line in lines:
        table.add_row(*(_cell(value) for value in line))
    with console.capture() as text:
        console.print(table)
    out.write("\n".join(line.rstrip() for line in text.get().splitlines()))


def write_json(out: OutputWrapper, rows: Iterable[Mapping[str, Any]]) -> None:
    """NDJSON; times in ISO 8601."""
    for row in rows:
        out.write(orjson.dumps(row, default=str).decode())


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "yes" if value else ""
    return f"{value:,}" if isinstance(value, int) else str(value).replace("[", "\\[")
