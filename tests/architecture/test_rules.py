"""House rules that a reviewer would otherwise have to remember (docs/architecture.md)."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from vendors.models import Vendor

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
def test_a_file_has_one_duty_and_a_name_that_says_it(path):
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
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    hosts = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian|/work/(main|shared)|/tmp/wt/")
    here = name(Path(__file__))
    found = [
        file
        for file in files
        if file and file != here and (ROOT / file).suffix not in (".png", ".woff2", ".map") and (ROOT / file).is_file()
        if hosts.search((ROOT / file).read_text(errors="replace"))
    ]
    assert found == []


def test_every_queue_that_is_named_is_consumed_by_the_procfile():
    consumed = set(re.findall(r"-Q\s+(\S+)", (ROOT / "Procfile").read_text().replace("--queues=", "-Q ")))
    queues = {queue for words in consumed for queue in words.split(",")}
    assert {"hub", "vendors"} <= queues, "vendors takes on every vendor's queue (mailhub/queues.py)"
    assert Vendor(slug="post").queue == "vendor.post"
