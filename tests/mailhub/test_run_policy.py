"""docs/decisions/0001: what broke is fatal at the first try; what only missed a deadline runs once more, alone."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from mailhub.celery import app
from tests.sources import ROOT, find_modules, parse_those_with
from vendors.redis_addresses import celery_url

MEASURE = (  # the time itself is their matter
    "tests/waiting.py",
    "tests/chaos/run.py",
    "tests/faults/test_04_zombies.py",
    "tests/mailhub/test_doors_in_time.py",
    "tests/vendors/test_throttle_processes.py",
)
OWN_REDIS = ("tests/chaos/servers.py", "tests/faults/test_16_redis.py", "tests/vendors/test_throttle_loss.py")
ONCE = """
import asyncio
import os
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
import pytest
from tests.waiting import DeadlineMissed, exit_of, in_time, joined, result_of, wait_until
def first_time(name):
    flag = Path(__file__).with_name(name)
    if flag.exists():
        return False
    flag.touch()
    return True
def late_once(name):
    missed = first_time(name)
    wait_until(lambda: not missed, name, 0)
"""


def nodes(pattern: str) -> Iterator[tuple[str, ast.AST]]:
    """Of all files of tests in which the pattern is found, with the file's name."""
    for file, tree in parse_those_with(pattern, find_modules("tests")):
        yield from ((file, node) for node in ast.walk(tree))


@pytest.fixture
def run(tmp_path: Path):
    """Run the suite that is given as source text as make test would; its exit code and what it said."""

    def run(source: str, *arguments: str) -> tuple[int, str]:
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p tests.forked -p no:cacheprovider\n")
        (tmp_path / "test_toy.py").write_text(ONCE + source)
        ours = ("PYTEST_", "DJANGO_", "FAILED_TESTS_FILE")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        done = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "run.py"), *arguments],
            cwd=tmp_path,
            env=clean | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=280,
        )
        return done.returncode, done.stdout

    return run


def test_a_good_suite_runs_once(run) -> None:
    code, said = run("def test_good(): pass")
    assert code == 0
    assert said.count("test session starts") == 1
    assert "DEADLINE" not in said


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_test_that_missed_a_deadline_and_passes_alone_is_named_with_its_number(run, processes: str) -> None:
    code, said = run("def test_good(): pass\ndef test_slow(): late_once('flag')", "-n", processes)
    assert code == 0
    assert "MISSED A DEADLINE, PASSED ALONE: 1" in said
    assert said.rstrip().splitlines()[-2] == "  test_toy.py::test_slow"
    assert "collected 1 item" in said, "the good test is not run again"


AWAITED = """
async def never():
    async with in_time('what is awaited', 0.01):
        await asyncio.sleep(60 if first_time('awaited') else 0)
def test_awaited(): asyncio.run(never())
def test_in_a_thread():
    done = Future()
    if not first_time('thread'): done.set_result(1)
    assert result_of(done, 'the thread', 0.01) == 1
def test_the_end_of_a_thread():
    over, again = threading.Event(), not first_time('end')
    thread = threading.Thread(target=over.wait)
    thread.start()
    if again: over.set()
    try:
        joined(thread, seconds=60 if again else 0.01)
    finally:
        over.set()
def test_the_end_of_a_process():
    again = not first_time('process')
    with subprocess.Popen(['cat'], stdin=subprocess.PIPE) as process:
        if again: process.stdin.close()
        assert exit_of(process, 60 if again else 0.01) == 0
"""


def test_what_is_awaited_and_what_a_thread_does_have_a_deadline_too(run) -> None:
    code, said = run(AWAITED)
    assert code == 0
    assert "MISSED A DEADLINE, PASSED ALONE: 4" in said


ONE_OF_TWO_FILES = """
import os
from pathlib import Path
HERE = Path(__file__).parent
with (HERE / "imports").open("a") as imports: imports.write("once ")
FIRST, OTHER = HERE / Path(__file__).stem, HERE / {other!r}
def meet():
    FIRST.write_text(str(os.getpid()))
    wait_until(OTHER.exists, "the other file's test runs at the same time")
def test_beside_the_other_file(): meet()
def test_in_the_process_of_its_file(tmp_path):
    assert FIRST.read_text() == str(os.getpid()) != OTHER.read_text()
    assert tmp_path.parent.name == "gw" + os.environ["PYTEST_FORK"]
"""


def test_two_forks_of_what_was_collected_once_take_a_file_each(run, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(ONCE + ONE_OF_TWO_FILES.format(other="test_two"))
    (tmp_path / "test_two.py").write_text(ONCE + ONE_OF_TWO_FILES.format(other="test_one"))
    code, said = run("", "-n", "2")
    assert code == 0, said
    assert "4 passed" in said
    assert (tmp_path / "imports").read_text() == "once once "


DEATH = """
def test_1(): pass
def test_2(): os._exit(9)
def test_3(): pass
def test_4(): assert False
"""


def test_what_a_fork_dies_of_is_named_and_the_rest_of_its_file_runs(run) -> None:
    code, said = run(DEATH, "-n", "2")
    assert code == 1
    assert "a fork died, exit code 9, while it ran test_toy.py::test_2" in said
    assert "2 failed, 2 passed" in said


def test_a_fork_that_dies_between_two_tests_fails_the_run(run, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import os\ndef pytest_sessionfinish():\n if 'PYTEST_FORK' in os.environ: os._exit(0)"
    )
    assert run("def test_good(): pass", "-n", "1")[0] == pytest.ExitCode.INTERNAL_ERROR


STOPPED = """
@pytest.fixture(scope="session", autouse=True)
def server():
    yield
    Path("ended").touch()
def test_1(): assert False
def test_2(): wait_until(Path("ended").exists, "what never comes")
"""


def test_a_fork_that_is_told_to_end_ends_its_fixtures_first(run, tmp_path: Path) -> None:
    code, said = run(STOPPED, "-n", "1", "-x")
    assert code == 1
    assert "stopping after 1 failures" in said
    assert (tmp_path / "ended").exists()


@pytest.mark.django_db
def test_a_fork_has_a_database_and_a_redis_database_of_its_own() -> None:
    """Its settings and its processes use the same. Without forks this holds of the only process."""
    assert os.environ["REDIS_URL"] == settings.REDIS_URL
    broker = celery_url(os.environ.get("BROKER_URL", settings.REDIS_URL))
    assert broker == settings.CELERY_BROKER_URL == app.conf.broker_url
    number = os.environ.get("PYTEST_FORK")
    name = connection.settings_dict["NAME"]
    assert name.endswith(f"_gw{number}") if number else "_gw" not in name


def test_a_test_that_misses_its_deadline_alone_too_fails_the_run(run) -> None:
    code, said = run("def test_slow(): wait_until(lambda: False, 'what never comes', 0)")
    assert code == 1
    assert "FAILED ALONE: 0 broken, 1 missed a deadline again" in said


BROKEN = """
def test_an_assertion_about_rows():
    assert not first_time('rows'), 'accepted twice'
def test_an_error():
    if first_time('error'): raise RuntimeError
def test_a_time_out_that_is_not_ours():
    if first_time('time-out'): raise TimeoutError
async def give_up():
    async with in_time('it'):
        if first_time('inside'): raise TimeoutError
def test_a_time_out_inside_of_what_is_awaited():
    asyncio.run(give_up())
def fact():
    assert not first_time('fact'), 'over the limit'
    return True
def test_an_assertion_inside_the_condition_that_is_waited_for():
    wait_until(fact, 'it')
@pytest.fixture
def books():
    yield
    assert not first_time('books'), 'lost'
def test_a_deadline_missed_and_an_assertion_in_the_tear_down(books):
    late_once('late')
def test_the_death_of_its_process():
    if first_time('death'): os._exit(9)
"""


def test_whatever_else_ends_a_test_is_fatal_at_the_first_try(run) -> None:
    """Although each of these would pass the second time: alone is where a race cannot happen."""
    code, said = run(BROKEN, "-n", "1")
    assert code == 1
    named = sorted(re.findall(r"def (test_\w+)", BROKEN))
    lines = ["BROKEN: 7, fatal at the first try", *(f"  test_toy.py::{name}" for name in named), "!" * 80]
    assert "\n".join(lines) in said
    assert said.count("test session starts") == 1, "nothing ran again"


def test_a_missed_deadline_beside_something_broken_does_not_run_again(run) -> None:
    code, said = run("def test_slow(): late_once('flag')\ndef test_bad(): assert False")
    assert code == 1
    assert "BROKEN: 1, fatal at the first try\n  test_toy.py::test_bad" in said
    assert "MISSED A DEADLINE: 1;" in said
    assert said.count("test session starts") == 1


def test_more_than_five_missed_deadlines_fail_the_run_at_once(run) -> None:
    code, said = run("@pytest.mark.parametrize('n', range(6))\ndef test_x(n): late_once(str(n))")
    assert code == 1
    assert "MISSED A DEADLINE: 6" in said
    assert said.count("test session starts") == 1


@pytest.mark.parametrize(("source", "code"), [("", 5), ("import no_such_module_anywhere", 2)])
def test_a_suite_that_cannot_run_fails(run, source: str, code: int) -> None:
    assert run(source)[0] == code


def test_only_the_waiting_module_raises_the_one_exception_that_is_forgiven() -> None:
    raising = {
        path
        for path, node in nodes("DeadlineMissed")
        if isinstance(node, ast.Raise) and node.exc and "DeadlineMissed" in ast.unparse(node.exc)
    }
    assert raising == {"tests/waiting.py"}


def test_only_a_redis_of_its_own_is_emptied_by_a_test_for_it_holds_what_the_tests_beside_it_count_on() -> None:
    emptying = {path for path, node in nodes("flushall") if isinstance(node, ast.Attribute) and node.attr == "flushall"}
    assert emptying == set(OWN_REDIS)


def test_no_test_waits_in_a_loop_of_its_own() -> None:
    """A deadline that is asserted by hand would be fatal on a slow machine. What measures time may look at it."""
    looping = {
        path
        for path, node in nodes(r"(?s)while.*monotonic\(\)")
        if isinstance(node, ast.While) and "monotonic()" in ast.unparse(node)
    }
    assert looping - set(MEASURE) == set()


def test_no_test_waits_for_a_thread_or_a_future_by_its_own_means() -> None:
    """`join` would say nothing of a thread that has not ended, and `result` would raise what is fatal."""
    found = {
        f"{path}:{node.lineno}"
        for path, node in nodes(JOINING)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path not in MEASURE
        if node.func.attr in ("join", "result") and (node.keywords or (node.args and is_number(node.args[0])))
    }
    assert found == set()


JOINING = r"\.(join|result)\((\s*[\d.]|\s*\n|[^\n]*(=|DEADLINE))"


def is_number(given: ast.expr) -> bool:
    text = ast.unparse(given)
    return "DEADLINE" in text or text.replace(".", "").isdigit()


@pytest.mark.parametrize(("nightly", "same"), [("0", "True"), ("1", "False")])
def test_property_tests_try_the_same_examples_each_time_and_others_at_night(nightly: str, same: str) -> None:
    program = "import tests.plugin, hypothesis; print(hypothesis.settings().derandomize)"
    environment = os.environ | {"MAILHUB_NIGHTLY": nightly}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == same
