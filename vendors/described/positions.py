"""The lines of a TOML document's keys; tomllib, which reads it, tells none.

Only for a document that tomllib has read: what is not valid has no lines here that mean anything.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator

KeyPath = tuple[str | int, ...]
KeyFault = tuple[KeyPath, str]
"""Where a mistake is, and a sentence that follows the key."""

_OPEN, _CLOSE = "[{", "]}"
# A text that does not end is one to the end, so that each character is looked at once whatever the document is.
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
    """The line on which each key and table begins, the first being 1; keys of inline tables have no line of their own.

    A table in a list of tables has its index in the path: ("answer", "rules", 0, "status").
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for number, statement in _statements(source):
        if (head := _TABLE.match(statement)) and not _KEY.match(statement):
            table = _table(_names(head[2]), head[1] == "[[", counts)
            found.setdefault(table, number)
        elif key := _KEY.match(statement):
            for depth in range(1, len(names := _names(key[1])) + 1):
                found.setdefault((*table, *names[:depth]), number)
    return found


def deep_line(source: str) -> int:
    """The line of the first name of more than DEEPEST parts; 0: there is none. To read those takes very long."""
    found = _DEEP.search(source)
    return source.count("\n", 0, found.start()) + 1 if found else 0


def line_at(lines: dict[KeyPath, int], path: Iterable[str | int]) -> int:
    """The line of a path, or of the nearest one around it; 1 if there is none."""
    wanted = tuple(path)
    while wanted and wanted not in lines:
        wanted = wanted[:-1]
    return lines.get(wanted, 1)


def _statements(source: str) -> Iterator[tuple[int, str]]:
    """Each statement with the line on which it begins; brackets and texts over several lines hold one together."""
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


def _names(key: str) -> KeyPath:
    """The parts of a dotted key, unquoted as TOML does it."""
    node = tomllib.loads(f"{key} = 0")
    names: list[str] = []
    while isinstance(node, dict):
        [(name, node)] = node.items()
        names.append(name)
    return tuple(names)


def _table(names: KeyPath, listed: bool, counts: dict[KeyPath, int]) -> KeyPath:
    """The path of a table's header, with the index of each list of tables that it is in."""
    path: KeyPath = ()
    for depth, name in enumerate(names, start=1):
        path = (*path, name)
        if listed and depth == len(names):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
