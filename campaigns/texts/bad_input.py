"""The error of every door that takes in lists and texts: what is wrong, row by row."""

from dataclasses import dataclass

from vendors.said import Said


@dataclass(frozen=True, slots=True, order=True)
class RowError:
    """A problem of a row. row: 1 is the header; 0 means the list as a whole."""

    row: int
    text: str

    def __str__(self) -> str:
        return Said("row %(row)s: %(why)s", row=str(self.row), why=self.text) if self.row else self.text


class BadInput(ValueError):
    """The input is bad and nothing was stored. problems: the first 50, by row; total: of all problems."""

    def __init__(self, problems: list[RowError] | str, total: int | None = None) -> None:
        self.problems = [RowError(0, problems)] if isinstance(problems, str) else problems
        self.total = len(self.problems) if total is None else total
        super().__init__(str(self))

    def __str__(self) -> str:
        lines: list[str] = [str(problem) for problem in self.problems]
        if self.total > len(lines):
            lines.append(
                Said(
                    "... and %(count)s more; %(total)s problems in all", count=self.total - len(lines), total=self.total
                )
            )
        return Said.join_parts("\n", lines)
