"""A feature's doors (admin, commands, pages, API) may show what every feature knows. Nothing but doors imports them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOOR = re.compile(r"campaigns[./]\w+[./](admin|api|management|pages)\b")


def imports_of_doors(file: str, code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{one.name}" for one in node.names]
        else:
            named = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        yield from (f"{file}: {name}" for name in named if DOOR.match(name))


def test_no_rule_imports_a_door() -> None:
    rules = [path for path in sorted((ROOT / "campaigns").rglob("*.py")) if not DOOR.match(str(path.relative_to(ROOT)))]
    assert len(rules) > 200
    files = [(str(path.relative_to(ROOT)), path.read_text()) for path in rules]
    assert [found for file, code in files for found in imports_of_doors(file, code)] == []


def test_an_import_of_a_door_is_seen() -> None:
    assert list(imports_of_doors("x.py", "from campaigns.lists import admin"))
    assert list(imports_of_doors("x.py", "def f():\n    import campaigns.lists.management.commands.sponsor"))
    assert not list(imports_of_doors("x.py", "from campaigns.lists import intake"))
