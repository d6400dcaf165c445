"""A feature's doors (admin, commands, pages, API) may show what every feature knows. Nothing but doors imports them."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOOR = re.compile(r"campaigns[./]\w+[./](admin|api|management|pages)\b")
ANY = re.compile(r"\b(admin|api|management|pages)\b")


def imports_of_doors(file: str, code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)) if ANY.search(code) else ():
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


def features_beside(file: str, code: str) -> set[str]:
    """Other features of which this page or endpoint imports pages or endpoints."""
    found = (re.search(r"campaigns\.(\w+)\.(?:api|pages)\b", one) for one in imports_of_doors(file, code))
    return {one[1] for one in found if one} - {file.split("/")[1]}


def test_pages_and_endpoints_of_two_features_do_not_import_each_other() -> None:
    files = [*(ROOT / "campaigns").glob("*/pages*/**/*.py"), *(ROOT / "campaigns").glob("*/api*/**/*.py")]
    files += [*(ROOT / "campaigns").glob("*/pages.py"), *(ROOT / "campaigns").glob("*/api.py")]
    assert len(files) > 50
    beside: dict[str, set[str]] = {}
    for path in files:
        name = str(path.relative_to(ROOT))
        beside.setdefault(name.split("/")[1], set()).update(features_beside(name, path.read_text()))
    TopologicalSorter(beside).prepare()  # raises CycleError


def test_an_endpoint_of_another_feature_is_seen() -> None:
    code = (
        "from campaigns.lists.api import files\nfrom campaigns.senders import pages\nfrom campaigns.lists import admin"
    )
    assert features_beside("campaigns/senders/pages.py", code) == {"lists"}
