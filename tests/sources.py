"""The code that rules are about. Parsing all of it takes seconds: a rule says without which words nothing breaks it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("mailhub", "campaigns", "vendors", "waiter")


def find_modules(*packages: str, migrations: bool = False) -> list[Path]:
    """Return the Python files of these packages, sorted; of PRODUCT without arguments."""
    found = [path for package in packages or PRODUCT for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(found) > 5, "the rule reads nothing"
    return [path for path in found if migrations or "migrations" not in path.parts]


def parse_those_with(pattern: str, paths: list[Path]) -> Iterator[tuple[str, ast.Module]]:
    """Yield each file in which the pattern is found, named from the checkout's folder, with its tree."""
    wanted = re.compile(pattern)
    for path in paths:
        text = path.read_text()
        if wanted.search(text):
            yield path.relative_to(ROOT).as_posix(), ast.parse(text)
