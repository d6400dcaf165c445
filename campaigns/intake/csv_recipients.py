"""A CSV table as rows to check and, once checked, as recipients to store."""

from collections.abc import Callable, Iterator
from typing import Any

from campaigns.content.templates import RECIPIENT, Content
from campaigns.intake.addresses import Normal, reader
from campaigns.intake.checking import check
from campaigns.intake.csv_reader import Table
from campaigns.intake.problems import BadInput, RowError


class CheckedTable:
    """As many recipients as len() says, with their fields; read from the file again each time."""

    def __init__(self, rows: "TableRows", size: int) -> None:
        self._rows = rows
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        normal = self._rows.normal
        for row in self._rows:
            if isinstance(row, RowError):
                raise BadInput([row])  # somebody wrote to the file since the check
            yield normal(row[1]), row[2]


class TableRows:
    """The first column is among the fields as well if the template calls it by the name in the header."""

    def __init__(self, table: Table, content: Content, normal: Normal) -> None:
        self.table = table
        self.normal = normal
        called = table.header[0] in content.fields and table.header[0] != RECIPIENT
        self.columns = list(enumerate(table.header))[0 if called else 1 :]

    def __iter__(self) -> Iterator[tuple[int, str, dict[str, Any]] | RowError]:
        columns, width = self.columns, len(self.table.header)
        for number, cells in self.table.rows():
            if len(cells) == width:
                yield number, cells[0], {name: cells[column] for column, name in columns}
            else:
                yield RowError(number, f"{_cells(len(cells))}, but the header has {width}")


def check_table(
    table: Table, channel: str, content: Content, progress: Callable[[], None] = lambda: None
) -> CheckedTable:
    """Raises BadInput with all that is wrong. channel: of vendors.models.Vendor.Channel."""
    rows = TableRows(table, content, reader(channel))
    _check_header(table, channel, content, rows)
    return CheckedTable(rows, check(rows, rows.normal, content, progress))


def _check_header(table: Table, channel: str, content: Content, rows: TableRows) -> None:
    first = table.header[0]
    if channel != "print" and _is_recipient(first, rows.normal):
        raise BadInput([RowError(1, f"there is no header: the first row holds the recipient {first!r}")])
    missing = sorted(content.fields - {name for _, name in rows.columns})
    if missing:
        columns = ", ".join(map(repr, missing))
        raise BadInput([RowError(1, f"the template needs {columns}; the columns are {', '.join(table.header)}")])


def _is_recipient(text: str, normal: Normal) -> bool:
    try:
        return bool(normal(text))
    except ValueError:
        return False


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
