"""manage.py up and its supervisor: what ends is started again, and all end together, however that comes."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mailhub import embedded
from mailhub.embedded.process import Daemon
from mailhub.management.commands import up
from mailhub.monitoring import probes
from tests import forks
from tests.programs import all_have_ended, environment, marked
from tests.waiting import exit_of, wait_until

pytestmark = pytest.mark.slow("processes")

ROOT = Path(__file__).parents[2]
# Hears a hang-up also where the whole run was started with nohup.
SUPERVISE = """
import signal, sys
from mailhub.supervisor import Supervisor
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.exit(Supervisor(sys.stdout).run_until_signal(eval(sys.argv[1])))
"""
# Says that it is there and ends politely; its child does not.
POLITE = """sh -c 'trap "echo ending; exit 0" TERM; sleep 1000 & echo here; while :; do wait; done'"""
DEAF = """sh -c 'trap "" TERM; echo here; while :; do sleep 1000; done'"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A word in the environment of all that a test starts; what is left of it at the end is killed."""
    marker = f"STARTED_BY={tmp_path}"
    yield marker
    for pid in marked(marker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def begin(command: list[str], said: Path, marker: str, **environment: str) -> forks.Process:
    name, _, value = marker.partition("=")
    with said.open("wb") as out:
        return forks.start(command, env=os.environ | {name: value} | environment, stdout=out)


def supervise(said: Path, marker: str, **processes: str) -> forks.Process:
    started = begin(["-c", SUPERVISE, repr(processes)], said, marker)
    wait_until(lambda: said.read_text().count("here") == len(processes), "each process has said so")
    return started


@linux
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_told_to_end_it_lets_each_process_end_and_leaves_nothing(
    number: signal.Signals, code: int, tmp_path: Path, marker: str
) -> None:
    said = tmp_path / "said"
    supervisor = supervise(said, marker, a=POLITE, b=POLITE)
    supervisor.send_signal(number)
    assert exit_of(supervisor) == code
    assert said.read_text().count("ending") == 2, "each heard SIGTERM and had time to say so"
    all_have_ended(marker)  # a process's own child goes with it


@linux
def test_killed_it_takes_its_processes_along(tmp_path: Path, marker: str) -> None:
    supervisor = supervise(tmp_path / "said", marker, a="sh -c 'echo here; exec sleep 1000'")
    supervisor.kill()
    exit_of(supervisor)
    all_have_ended(marker)


QUICK = SUPERVISE.replace("import signal, sys\n", "import signal, sys\nfrom mailhub import supervisor\n").replace(
    "signal.signal(", "supervisor.PAUSE_SECONDS, supervisor.LONGEST_PAUSE = 0.125, 0.5\nsignal.signal(", 1
)


@linux
@pytest.mark.parametrize("code", [0, 1, 7])
def test_a_process_that_ends_is_started_again_each_time_later_and_each_time_told(
    code: int, tmp_path: Path, marker: str
) -> None:
    said = tmp_path / "said"
    processes = {"a": POLITE, "b": f"sh -c 'printf last; exit {code}'"}
    supervisor = begin(["-c", QUICK, repr(processes)], said, marker)
    wait_until(lambda: said.read_text().count("b | started") == 6, "it is there again and again", log=said.read_text)
    pauses = re.findall(rf"b \| .*with {code}; it is started again in (\S+) s", said.read_text())
    assert pauses[:5] == ["0.125", "0.25", "0.5", "0.5", "0.5"]
    assert f"b | ends again and again, 4 times in a row, now with {code};" in said.read_text()
    assert "| last\n" in said.read_text() and said.read_text().count("a | started") == 1
    supervisor.send_signal(signal.SIGTERM)
    assert exit_of(supervisor) == 143
    assert "ending" in said.read_text()
    all_have_ended(marker)


@linux
def test_one_that_has_lived_for_a_while_is_begun_with_the_shortest_pause(tmp_path: Path, marker: str) -> None:
    said = tmp_path / "said"
    lived = QUICK.replace("supervisor.PAUSE", "supervisor.LIVED_SECONDS = 0.0; supervisor.PAUSE", 1)
    supervisor = begin(["-c", lived, repr({"a": "sh -c 'exit 1'"})], said, marker)
    wait_until(lambda: said.read_text().count("started again in 0.125 s") == 4, "it ends again and again")
    assert "again and again" not in said.read_text()
    supervisor.send_signal(signal.SIGTERM)
    assert exit_of(supervisor) == 143


@linux
def test_ctrl_c_ends_all_also_while_one_waits_for_its_next_start(tmp_path: Path, marker: str) -> None:
    said = tmp_path / "said"
    slow = QUICK.replace("= 0.125, 0.5", "= 1000.0, 1000.0")
    supervisor = begin(["-c", slow, repr({"a": "sh -c 'exit 1'"})], said, marker)
    wait_until(lambda: "it is started again in 1000 s" in said.read_text(), "it waits")
    supervisor.send_signal(signal.SIGINT)
    assert exit_of(supervisor) == 130
    assert said.read_text().count("started, process") == 1


@linux
def test_a_killed_one_is_started_again_with_its_number_and_ends_with_the_others(tmp_path: Path, marker: str) -> None:
    said = tmp_path / "said"
    processes = {"a.7": "sh -c 'echo number $PROCESS_NUMBER; exec sleep 1000'", "b": POLITE}
    supervisor = begin(["-c", QUICK, repr(processes)], said, marker)
    wait_until(lambda: "number 7" in said.read_text() and "here" in said.read_text(), "both have said so")
    os.kill(int(re.findall(r"a\.7 +\| started, process (\d+)", said.read_text())[-1]), signal.SIGKILL)
    wait_until(lambda: said.read_text().count("number 7") == 2, "it is there again")
    assert supervisor.poll() is None and "ending" not in said.read_text()
    supervisor.send_signal(signal.SIGTERM)
    assert exit_of(supervisor) == 143
    all_have_ended(marker)


@linux
def test_a_second_ctrl_c_does_not_wait_for_the_deaf(tmp_path: Path, marker: str) -> None:
    said = tmp_path / "said"
    supervisor = supervise(said, marker, polite=POLITE, deaf=DEAF)
    supervisor.send_signal(signal.SIGINT)
    wait_until(lambda: "ending" in said.read_text(), "it says that it ends")
    supervisor.send_signal(signal.SIGINT)
    assert exit_of(supervisor) == 130
    all_have_ended(marker)


@linux
def test_all_ends_when_nobody_reads_any_more(tmp_path: Path, marker: str) -> None:
    command = [sys.executable, "-c", SUPERVISE, repr({"a": "sh -c 'while :; do echo here; sleep 0.1; done'"})]
    name, _, value = marker.partition("=")
    supervisor = subprocess.Popen(command, cwd=ROOT, env=os.environ | {name: value}, stdout=subprocess.PIPE)
    assert supervisor.stdout
    supervisor.stdout.readline()
    supervisor.stdout.close()
    assert exit_of(supervisor) == 143
    all_have_ended(marker)


FEW = """
from pathlib import Path
from mailhub.settings import *
BASE_DIR = Path(__file__).parent
"""


@linux
@pytest.mark.django_db(transaction=True)
def test_up_runs_the_procfile_once_and_leaves_no_process_and_no_server(
    tmp_path: Path, marker: str, settings: Any
) -> None:
    """Of a Procfile with two lines; the installation's own runs in test_demo.py, from a database without tables."""
    (tmp_path / "Procfile").write_text(f"web: {POLITE}\nbad: sh -c 'exit 3'\n")
    (tmp_path / "few.py").write_text(FEW)
    home = embedded.Home(tmp_path / "home")
    said, again = tmp_path / "said", tmp_path / "again"
    # port 0: whichever is free; without an address it starts a Redis of its own
    own = environment(MAILHUB_HOME=str(home.path), REDIS_URL="", PORT="0", API_PORT="0", FLOWER_PORT="0")
    own |= {"DJANGO_SETTINGS_MODULE": "few", "PYTHONPATH": str(tmp_path)}
    up = begin(["manage.py", "up"], said, marker, **own)
    try:
        wait_until(
            lambda: "| here" in said.read_text() or up.poll() is not None, "its process runs", log=said.read_text
        )
        assert exit_of(begin(["manage.py", "up"], again, marker, **own)) == 1
        first, *_, last = again.read_text().splitlines()
        assert first.startswith("mailhub starts") and last == f"CommandError: mailhub is up already: process {up.pid}"
        assert said.read_text().startswith("mailhub starts") and "The database is up to date (" in said.read_text()
        assert Daemon("redis", home.path).is_alive()
        settings.MAILHUB_HOME = home.path
        wait_until(probes.refusing_sentences, "status tells of the other one", log=said.read_text)
        assert probes.refusing_sentences()[0].startswith("bad ends again and again, ")
        up.send_signal(signal.SIGTERM)
        assert exit_of(up) == 143
        assert "| ending" in said.read_text()
        all_have_ended(marker)
        assert embedded.stop_servers(home) == [], "its servers have ended with it"
    finally:
        embedded.reset_servers(home)


def test_flowers_password_is_in_a_file_of_the_owner_and_not_on_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLOWER_BASIC_AUTH", raising=False)
    (tmp_path / "flower_password").write_text("an old one, which others may read")
    answer = up.flower_password(tmp_path)
    path = tmp_path / "flower_password"
    made = os.environ["FLOWER_BASIC_AUTH"]
    assert answer == f"in {path}" and path.read_text().strip() == made and path.stat().st_mode & 0o777 == 0o600
    assert len(made) > len("mailhub:") + 24 and made not in answer
    assert up.flower_password(tmp_path) == "as FLOWER_BASIC_AUTH says"
    monkeypatch.delenv("FLOWER_BASIC_AUTH")
