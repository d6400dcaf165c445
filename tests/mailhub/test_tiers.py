"""Every test is in one of the two tiers, and `.ci/run` runs both. The plugin is tests/tiers.py."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import SLOW

ROOT = Path(__file__).parents[2]
TOY = """
import pytest
def test_quick(): pass
@pytest.mark.slow("time")
def test_of_time(): pass
@pytest.mark.slow("processes")
class TestProcesses:
    def test_of_a_class(self): pass
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.slow("many"))])
def test_many(n): pass
"""
INI = """
[pytest]
addopts = --strict-markers -p tests.tiers -p no:cacheprovider
testpaths = .
python_files = toy.py
"""
QUICK = {"toy.py::test_quick", "toy.py::test_many[1]"}
SLOWER = {"toy.py::test_of_time", "toy.py::TestProcesses::test_of_a_class", "toy.py::test_many[2]"}


def collect(folder: Path, *arguments: str, **more: str) -> tuple[set[str], str]:
    """Collect tests in a process of its own: their ids, and all that it said."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | more
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)
    return {line for line in done.stdout.splitlines() if "::" in line}, done.stdout + done.stderr


@pytest.fixture
def toy(tmp_path: Path):
    """Collect a small suite with our plugin, with these arguments."""
    (tmp_path / "pytest.ini").write_text(INI)

    def collect_toy(*arguments: str, source: str = TOY) -> tuple[set[str], str]:
        (tmp_path / "toy.py").write_text(source)
        return collect(tmp_path, *arguments, PYTHONPATH=str(ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")

    return collect_toy


def test_a_tier_has_the_tests_that_say_so_and_the_other_tier_has_the_rest(toy) -> None:
    assert toy("--tier", "fast")[0] == QUICK
    assert toy("--tier", "slow")[0] == SLOWER
    assert toy()[0] == QUICK | SLOWER


@pytest.mark.parametrize("named", ["toy.py", "toy.py::test_of_time"])
def test_tests_that_are_named_by_a_path_are_run_whatever_their_tier(toy, named: str) -> None:
    assert toy("--tier", "fast", named)[0] == (QUICK | SLOWER if named == "toy.py" else {named})


def test_options_alone_name_no_test(toy) -> None:
    assert toy("--tier", "fast", "-k", "many")[0] == {"toy.py::test_many[1]"}


@pytest.mark.parametrize("why", ["", "'it is slow'", "'time', 'many'"])
def test_a_slow_test_says_why_in_a_word_that_is_known(toy, why: str) -> None:
    _, said = toy(source=f"import pytest\n@pytest.mark.slow({why})\ndef test_slow(): pass")
    assert re.search(r"ERROR: toy.py::test_slow: slow.* names none of programs, ", said)


def test_each_reason_has_tests() -> None:
    found = {
        why
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__)
        for why in re.findall(r'mark\.slow\("(\w+)"\)', path.read_text())
    }
    assert found == set(SLOW)


def test_make_test_all_and_the_whole_check_run_both_tiers() -> None:
    rules = dict(re.findall(r"^([\w-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    tiers = {name: re.search(r"RUN_TESTS\)( --tier \w+)?", rules[name]) for name in ("test", "test-slow", "test-all")}
    assert [found and found[1] for found in tiers.values()] == [" --tier fast", " --tier slow", None]
    steps = re.findall(r"^step (make [\w-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert {"make test", "make test-slow"} <= set(steps)
