"""House rules that a reviewer would otherwise have to remember (docs/architecture.md)."""

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT, find_modules, parse_those_with

PACKAGES = ("mailhub", "campaigns", "vendors", "sandbox", "waiter")
CODE = find_modules(*PACKAGES)
SETS_STATUS = re.compile(
    r"UPDATE campaigns_job\b[^;]*?\bSET\b(?:(?!\bWHERE\b|\bFROM\b).)*\bstatus\s*=", re.DOTALL | re.IGNORECASE
)
OURS = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian|/work/(main|shared|wt)|/tmp/(wt|mh)/")
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "base_utils"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_is_named_after_nothing():
    assert CODE
    assert [name(path) for path in CODE if path.stem in NAMELESS] == []


def writes_status(tree: ast.AST) -> list[int]:
    """Lines with .update(status=...), job.status = ..., or SET status."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("update", "bulk_update", "aupdate"):
            dicts = [word.value for word in node.keywords if word.arg is None and isinstance(word.value, ast.Dict)]
            keys = [key.value for one in dicts for key in one.keys if isinstance(key, ast.Constant)]
            fields = [
                one.value for argument in node.args for one in ast.walk(argument) if isinstance(one, ast.Constant)
            ]
            if "status" in [*keys, *fields, *(word.arg for word in node.keywords)]:
                lines.append(node.lineno)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr":
            lines += [node.lineno for one in node.args[1:2] if isinstance(one, ast.Constant) and one.value == "status"]
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else targets
        lines += [node.lineno for target in targets if isinstance(target, ast.Attribute) and target.attr == "status"]
        if SETS_STATUS.search(statement(node)):
            lines.append(node.lineno)
    return lines


def statement(node: ast.AST) -> str:
    """A text as it stands there; what is put into it is a word."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_a_jobs_status_is_written_in_one_file_only():
    writers = {
        path
        for path, tree in parse_those_with("status", find_modules("mailhub", "campaigns", "waiter"))
        if writes_status(tree)
    }
    assert writers == {"campaigns/engine/lifecycle.py"}


@pytest.mark.parametrize(
    "code",
    [
        "Job.objects.update(status=1)",
        "Job.objects.update(**{'status': 1})",
        "Job.objects.bulk_update(jobs, ['status'])",
        "job.status = 'SENT'",
        "job.status: str = 'SENT'",
        "setattr(job, 'status', 'SENT')",
        "'UPDATE campaigns_job SET status = 1'",
        "'update campaigns_job j set fence = 2, status = 1 from x'",
        "f'UPDATE campaigns_job SET fence = {n}, status = 1 WHERE id = {m}'",
    ],
)
def test_a_stray_write_of_a_status_would_be_seen(code):
    assert writes_status(ast.parse(code))


WAITERS = {"celery", "django", "kombu", "waiter"}


def imported(tree: ast.AST) -> set[str]:
    """The packages that a module imports, wherever in it; the dot of a relative import counts as one."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." if node.level else str(node.module).partition(".")[0])
    return found


def foreign(tree: ast.AST) -> set[str]:
    return imported(tree) - WAITERS - sys.stdlib_module_names


@pytest.mark.parametrize("path", sorted((ROOT / "waiter").rglob("*.py")), ids=name)
def test_the_waiter_imports_only_what_any_django_project_with_celery_has(path):
    assert foreign(ast.parse(path.read_text())) == set()


@pytest.mark.parametrize(
    "code",
    ["import mailhub.celery", "def f():\n    from vendors.models import Vendor", "import redis", "from .. import x"],
)
def test_a_stray_import_of_the_waiter_would_be_seen(code):
    assert foreign(ast.parse(code))


def test_nothing_that_is_committed_names_this_machine_or_a_package_host():
    folders = [ROOT / name for name in (*PACKAGES, "tests", "docs", "benchmarks")]
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    texts = [
        path for path in files if path.name != ".git" and path.suffix not in (".png", ".woff2", ".map", ".pyc", ".mo")
    ]
    here = Path(__file__)
    assert [name(path) for path in texts if path != here and OURS.search(path.read_text(errors="replace"))] == []


@pytest.mark.parametrize("text", ["cd /work/main", "see /tmp/wt/x", "https://pypi.org/simple", "deb.debian.org"])
def test_a_stray_name_of_this_machine_would_be_seen(text):
    assert OURS.search(text)
