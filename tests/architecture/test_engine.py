"""The engine has no texts for readers and no pages. import-linter holds that it imports no feature."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENGINE = sorted((ROOT / "campaigns" / "engine").rglob("*.py"))
FOREIGN = (
    "django.contrib", "django.forms", "django.http", "django.shortcuts", "django.template", "django.urls",
    "django.utils.translation", "django.views", "jinja2", "ninja",
)  # fmt: skip


def imports_of(tree: ast.AST) -> set[str]:
    """Return the dotted names that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{one.name}" for one in node.names}
    return found


def foreign_imports(tree: ast.AST) -> list[str]:
    return sorted(one for one in imports_of(tree) if f"{one}.".startswith(tuple(f"{name}." for name in FOREIGN)))


def test_the_engine_has_no_texts_for_readers_and_no_pages():
    assert len(ENGINE) > 50
    found = {str(path.relative_to(ROOT)): foreign_imports(ast.parse(path.read_text())) for path in ENGINE}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    [
        "from django.utils.translation import gettext as _",
        "from django.utils import translation",
        "def f():\n    import jinja2",
        "from django import forms",
        "from django.contrib.admin.models import LogEntry",
    ],
)
def test_a_stray_import_of_the_engine_would_be_seen(code: str):
    assert foreign_imports(ast.parse(code))
