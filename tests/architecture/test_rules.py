"""House rules that a reviewer would otherwise have to remember (docs/architecture.md)."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mailhub", "campaigns", "vendors")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
CODE = [path for path in SOURCES if "migrations" not in path.parts]
MOST_LINES = 320
SETS_STATUS = re.compile(r"UPDATE campaigns_job\b[^;]*?\bSET\b(?:(?!\bWHERE\b|\bFROM\b).)*\bstatus\s*=", re.DOTALL)
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc", "base_utils"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=name)
def test_no_file_is_over_320_lines_or_named_after_nothing(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES
    assert path.stem not in NAMELESS


def writes_status(tree: ast.AST) -> list[int]:
    """Lines with .update(status=...), job.status = ..., or SET status."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("update", "bulk_update", "aupdate"):
            lines += [node.lineno for word in node.keywords if word.arg == "status"]
        targets = node.targets if isinstance(node, ast.Assign) else []
        lines += [node.lineno for target in targets if isinstance(target, ast.Attribute) and target.attr == "status"]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SETS_STATUS.search(node.value):
            lines.append(node.lineno)
    return lines


def test_a_jobs_status_is_written_in_one_file_only():
    writers = {
        name(path) for path in CODE if "vendors" not in path.parts and writes_status(ast.parse(path.read_text()))
    }
    assert writers == {"campaigns/states.py"}


@pytest.mark.parametrize(
    "code", ["Job.objects.update(status=1)", "job.status = 'SENT'", "'UPDATE campaigns_job SET status = 1'"]
)
def test_a_stray_write_of_a_status_would_be_seen(code):
    assert writes_status(ast.parse(code))


def test_nothing_that_is_committed_names_this_machine_or_a_package_host():
    folders = [ROOT / name for name in (*PACKAGES, "tests", "docs", "benchmarks")]
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    texts = [
        path for path in files if path.name != ".git" and path.suffix not in (".png", ".woff2", ".map", ".pyc", ".mo")
    ]
    hosts = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian|/work/(main|shared)|/tmp/wt/")
    here = Path(__file__)
    assert [name(path) for path in texts if path != here and hosts.search(path.read_text(errors="replace"))] == []
