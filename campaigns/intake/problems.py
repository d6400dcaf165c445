"""What is wrong with what was handed in, by the row numbers that a spreadsheet shows."""

from bisect import insort
from dataclasses import dataclass
from typing import NoReturn

SHOWN = 50


@dataclass(frozen=True, slots=True, order=True)
class RowError:
    """row: the header is row 1; 0 means the whole of it."""

    row: int
    text: str

    def __str__(self) -> str:
        return f"row {self.row}: {self.text}" if self.row else self.text


class BadInput(ValueError):
    """Nothing was stored. problems: the first 50, by row; total: how many there are."""

    def __init__(self, problems: list[RowError] | str, total: int | None = None) -> None:
        self.problems = [RowError(0, problems)] if isinstance(problems, str) else problems
        self.total = len(self.problems) if total is None else total
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        if self.total > len(lines):
            lines.append(f"... and {self.total - len(lines):,} more; {self.total:,} problems in all")
        return "\n".join(lines)


class RowErrors:
    """Keeps the first 50 by row and counts them all."""

    def __init__(self) -> None:
        self.first: list[RowError] = []
        self.total = 0

    def add(self, row: int, text: str) -> None:
        self.total += 1
        if len(self.first) < SHOWN or row < self.first[-1].row:
            insort(self.first, RowError(row, text))
            del self.first[SHOWN:]

    def extend(self, more: BadInput) -> None:
        for problem in more.problems:
            self.add(problem.row, problem.text)

    def check(self) -> None:
        if self.total:
            self.fail()

    def fail(self) -> NoReturn:
        raise BadInput(self.first, self.total)
