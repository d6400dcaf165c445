"""Compares two versions of a template line by line, for pages and the command."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from campaigns.content.template_versions.versions import TemplateContent
from vendors.said import count_of

CONTEXT = 3  # equal lines shown before and after a difference
MOST_LINES = 1_000  # between the first and the last difference; more are compared as one block
MOST_SHOWN = 10_000  # lines of a block shown for each version; a page of a million would be unusable
SIGNS = {"same": " ", "added": "+", "removed": "-", "left_out": "@"}
_Kind = Literal["same", "added", "removed", "left_out"]
LineTexts = Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """A line of a comparison. before, after: its number in either version.

    left_out: the text gives the number of equal lines not shown.
    """

    kind: _Kind
    text: str
    before: int | None = None
    after: int | None = None

    @property
    def line_sign(self) -> str:
        return SIGNS[self.kind]


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """A part in which the two versions differ, with its lines."""

    name: str
    lines: Sequence[ComparedLine]


def find_differences(old: TemplateContent, new: TemplateContent) -> list[ComparedPart]:
    """Return the parts that differ; [] if the versions are equal."""
    before, after = _content_parts(old), _content_parts(new)
    return [
        ComparedPart(name, list(_shorten_equal_lines(list(_compare_lines(before[name], after[name])))))
        for name in before
        if before[name] != after[name]
    ]


def comparison_as_text(parts: Sequence[ComparedPart]) -> str:
    """Format a comparison for a terminal, each line with its sign."""
    return "\n".join(
        "\n".join([f"{one.name}:", *(f"{line.line_sign} {line.text}" for line in one.lines)]) for one in parts
    )


def _content_parts(content: TemplateContent) -> dict[str, LineTexts]:
    return {
        "Subject": [content.subject] if content.subject else [],
        "Kind of body": ["HTML" if content.html else "Text"],
        "Body": content.body.splitlines(),
        "Text beside the HTML": content.text.splitlines(),
        "Headers": [f"{name}: {value}" for name, value in content.headers],
    }


def _compare_lines(old: LineTexts, new: LineTexts) -> Iterator[ComparedLine]:
    begin = _count_equal_lines(old, new)
    end = _count_equal_lines(old[begin:][::-1], new[begin:][::-1])
    for number in range(begin):
        yield ComparedLine("same", old[number], number + 1, number + 1)
    a, b = old[begin : len(old) - end], new[begin : len(new) - end]
    for same, a_from, a_to, b_from, b_to in _equal_blocks(a, b):
        if same:
            for step in range(a_to - a_from):
                yield ComparedLine("same", a[a_from + step], begin + a_from + step + 1, begin + b_from + step + 1)
            continue
        gone, come = range(a_from, min(a_to, a_from + MOST_SHOWN)), range(b_from, min(b_to, b_from + MOST_SHOWN))
        yield from (ComparedLine("removed", a[row], begin + row + 1) for row in gone)
        yield from (ComparedLine("added", b[row], None, begin + row + 1) for row in come)
        if more := (a_to - a_from - len(gone)) + (b_to - b_from - len(come)):
            yield ComparedLine("left_out", count_of(more, "further line that differs", "further lines that differ"))
    for step in range(end):
        before, after = len(old) - end + step, len(new) - end + step
        yield ComparedLine("same", old[before], before + 1, after + 1)


def _count_equal_lines(old: LineTexts, new: LineTexts) -> int:
    """Return the number of equal lines at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(old), len(new)))


def _equal_blocks(a: LineTexts, b: LineTexts) -> Iterator[tuple[bool, int, int, int, int]]:
    if max(len(a), len(b)) > MOST_LINES:
        yield False, 0, len(a), 0, len(b)
        return
    for tag, a_from, a_to, b_from, b_to in SequenceMatcher(None, a, b).get_opcodes():
        yield tag == "equal", a_from, a_to, b_from, b_to


def _shorten_equal_lines(lines: Sequence[ComparedLine]) -> Iterator[ComparedLine]:
    """Yield the lines without equal ones far from any difference."""
    near: set[int] = set()
    for number, line in enumerate(lines):
        if line.kind != "same":
            near.update(range(number - CONTEXT, number + CONTEXT + 1))
    hidden = 0
    for number, line in enumerate(lines):
        if number in near:
            if hidden:
                yield _left_out(hidden)
            hidden = 0
            yield line
        else:
            hidden += 1
    if hidden:
        yield _left_out(hidden)


def _left_out(number: int) -> ComparedLine:
    return ComparedLine("left_out", count_of(number, "equal line"))
