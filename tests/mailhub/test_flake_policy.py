"""docs/decisions/0001: what failed runs once more alone; what passes then is shown loudly and does not fail the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONCE = """
from pathlib import Path
def first_time(name):
    flag = Path(__file__).with_name(name)
    if flag.exists():
        return False
    flag.touch()
    return True
"""


@pytest.fixture
def run(tmp_path: Path):
    """Run the suite that is given as source text as make test would; its exit code and what it said."""

    def run(source: str, *arguments: str) -> tuple[int, str]:
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:randomly -p no:cacheprovider\n")
        (tmp_path / "test_toy.py").write_text(ONCE + source)
        ours = ("PYTEST_", "DJANGO_", "FAILED_TESTS_FILE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "run.py"), *arguments],
            cwd=tmp_path,
            env=clean | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=100,
        )
        return done.returncode, done.stdout

    return run


def test_a_good_suite_runs_once(run) -> None:
    code, said = run("def test_good(): pass")
    assert code == 0
    assert said.count("test session starts") == 1
    assert "FLAKY" not in said


def test_a_test_that_passes_alone_is_shown_and_the_run_passes(run) -> None:
    code, said = run("def test_good(): pass\ndef test_moody(): assert not first_time('flag')")
    assert code == 0
    assert "FLAKY (passed alone the second time)" in said
    assert said.rstrip().splitlines()[-2] == "  test_toy.py::test_moody"
    assert "collected 1 item" in said, "the good test is not run again"


def test_a_test_under_which_its_process_died_runs_again_too(run) -> None:
    code, said = run("import os\ndef test_deadly():\n    if first_time('flag'): os._exit(9)", "-n", "1")
    assert code == 0
    assert said.rstrip().splitlines()[-2] == "  test_toy.py::test_deadly"


def test_a_broken_test_fails_the_run(run) -> None:
    code, said = run("def test_bad(): assert False\ndef test_moody(): assert not first_time('flag')")
    assert code == 1
    assert "FAILED twice" in said
    assert said.rstrip().splitlines()[-2] == "  test_toy.py::test_bad"


def test_more_than_five_failures_fail_the_run_at_once(run) -> None:
    source = "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_x(n): assert not first_time(str(n))"
    code, said = run(source)
    assert code == 1
    assert "FAILED: 6 tests" in said
    assert said.count("test session starts") == 1


@pytest.mark.parametrize(("source", "code"), [("", 5), ("import no_such_module_anywhere", 2)])
def test_a_suite_that_cannot_run_fails(run, source: str, code: int) -> None:
    assert run(source)[0] == code
