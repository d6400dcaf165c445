"""Line numbers of the keys in a TOML document, which tomllib does not report.

Only for documents that tomllib has parsed; the lines of an invalid document mean nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator

KeyPath = tuple[str | int, ...]
KeyFault = tuple[KeyPath, str]
"""Where a mistake is, and a sentence that follows the key."""

_OPEN, _CLOSE = "[{", "]}"
# An unterminated string extends to the end, so each character of any document is scanned once.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)
DEEPEST = 64
_DEEP = re.compile(rf"""(?<![\w-])(?:["']?[\w-]++["']?\s*+\.\s*+){{{DEEPEST}}}""")
_NAME = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_TABLE = re.compile(r"\s*(\[\[?)(.*?)\]\]?\s*(?:#.*)?$", re.DOTALL)


def lines_of(source: str) -> dict[KeyPath, int]:
    """Return the line, from 1, on which each key and table begins. Keys of inline tables have no line of their own.

    A table in a list of tables has its index in the path: ("answer", "rules", 0, "status").
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, statement in _split_statements(source):
        if (head := _TABLE.match(statement)) and not _KEY.match(statement):
            table = _header_path(_split_key(head[2]), head[1] == "[[", counts)
            found.setdefault(table, number)
        elif key := _KEY.match(statement):
            for depth in range(1, len(names := _split_key(key[1])) + 1):
                found.setdefault((*table, *names[:depth]), number)
    return found


def deep_line(source: str) -> int:
    """Return the line of the first name with more than DEEPEST parts, or 0. Parsing such names takes very long."""
    found = _DEEP.search(source)
    return source.count("\n", 0, found.start()) + 1 if found else 0


def line_at(lines: dict[KeyPath, int], path: Iterable[str | int]) -> int:
    """Return the line of a path, else that of the nearest enclosing path, else 1."""
    wanted = tuple(path)
    while wanted and wanted not in lines:
        wanted = wanted[:-1]
    return lines.get(wanted, 1)


def _split_statements(source: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with its first line. Brackets and strings may span several lines."""
    begin = depth = counted = 0
    line = 1
    for token in _TOKEN.finditer(source + "\n"):
        mark = token[0]
        if mark in _OPEN:
            depth += 1
        elif mark in _CLOSE:
            depth -= 1
        elif mark == "\n" and depth <= 0:
            if statement := source[begin : token.start()].strip():
                start = source.index(statement, begin)
                line += source.count("\n", counted, start)
                counted = start
                yield line, statement
            begin = token.end()


def _split_key(key: str) -> KeyPath:
    """Return the parts of a dotted key, unquoted."""
    node = tomllib.loads(f"{key} = 0")
    names: list[str] = []
    while isinstance(node, dict):
        [(name, node)] = node.items()
        names.append(name)
    return tuple(names)


def _header_path(names: KeyPath, listed: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """Return the path of a table header, with the index of each list of tables on the way."""
    path: KeyPath = ()
    for depth, name in enumerate(names, start=1):
        path = (*path, name)
        if listed and depth == len(names):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
