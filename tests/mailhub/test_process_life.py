"""`alive` and `run`: each kind of process shows life while it runs, and is dead once it stands still."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mailhub import process_life
from tests.ports import free_port
from tests.programs import environment, running
from tests.waiting import wait_until
from vendors import liveness

ROOT = Path(__file__).parents[2]


def ask(role: str | None, home: Path, **settings: str) -> tuple[int, str]:
    """What the command says, as a probe runs it."""
    command = [sys.executable, str(ROOT / "manage.py"), "alive", *([role] if role else [])]
    given = {**os.environ, "MAILHUB_HOME": str(home), **settings}
    ran = subprocess.run(command, env=given, cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.returncode, (ran.stdout + ran.stderr).strip()


def leave_sign(name: str, home: Path, seconds: float) -> None:
    """As if it had been left so many seconds ago."""
    liveness.show_life(name, home)
    (home / liveness.FOLDER / name).write_text(f"{time.monotonic() - seconds}\n")


def test_a_sign_is_fresh_until_a_minute_has_passed(tmp_path: Path) -> None:
    assert "no sign of life in" in process_life.find_death("worker-hub", tmp_path)
    liveness.show_life("hub", tmp_path)
    assert process_life.find_death("worker-hub", tmp_path) == process_life.find_death("hub", tmp_path) == ""
    leave_sign("hub", tmp_path, liveness.DEAD + 3600)
    assert re.search(r"hub has given no sign of life for 3[67]\d\d s", process_life.find_death("hub", tmp_path))
    leave_sign("hub", tmp_path, -3600)  # from before the machine started anew
    assert "no sign of life in" in process_life.find_death("worker-hub", tmp_path)


def test_beat_may_be_silent_for_as_long_as_it_waits_for_a_broker(tmp_path: Path) -> None:
    leave_sign("beat", tmp_path, process_life.DEAD_BEAT / 2)
    assert process_life.find_death("beat", tmp_path) == ""
    leave_sign("beat", tmp_path, 2 * process_life.DEAD_BEAT)
    assert "beat has given no sign of life for 6" in process_life.find_death("beat", tmp_path)


def test_each_sender_of_a_machine_has_its_own_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liveness.show_life("vendors2", tmp_path)
    assert process_life.find_death("worker-vendors.2", tmp_path) == ""
    assert process_life.find_death("worker-vendors.1", tmp_path) != ""
    assert process_life.find_death("worker-vendors", tmp_path) != ""
    monkeypatch.setenv("PROCESS_NUMBER", "2")
    assert process_life.find_death("worker-vendors", tmp_path) == ""


def test_a_home_without_space_ends_no_process(tmp_path: Path) -> None:
    (tmp_path / "alive").write_text("a file in the way")
    liveness.show_life("hub", tmp_path)
    assert liveness.find_age("hub", tmp_path) is None


@pytest.mark.slow("processes")
def test_without_a_name_the_environment_says_which_process(tmp_path: Path) -> None:
    assert ask(None, tmp_path, MAILHUB_ROLE="") == (1, "CommandError: which process? Name it, or set MAILHUB_ROLE")
    code, said = ask(None, tmp_path, MAILHUB_ROLE="beat")
    assert code == 1 and "beat has given no sign of life" in said
    liveness.show_life("beat", tmp_path)
    assert ask(None, tmp_path, MAILHUB_ROLE="beat") == (0, "beat lives")
    assert ask("beat", tmp_path) == (0, "beat lives")


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("role", ["worker-hub", "worker-vendors", "worker-webhooks", "beat", "bounces"])
def test_a_process_that_the_procfile_starts_shows_life(role: str, tmp_path: Path) -> None:
    with started(role, tmp_path) as program:
        wait_until(lambda: process_life.find_death(role, tmp_path) == "", f"{role} lives", every=0.2)
        assert program.process.poll() is None


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("settings", [{}, {"BOUNCE_RECEIVER": "lmtp"}])
def test_a_receiver_shows_life_again_and_again_idle_and_with_its_event_loop(
    settings: dict[str, str], tmp_path: Path
) -> None:
    given = {name: f"{scheme}://127.0.0.1:{free_port()}" for name, scheme in settings.items()}
    with started("bounces", tmp_path, **given):
        sign = tmp_path / "alive" / "bounces"
        wait_until(sign.exists, "it lives")
        wait_until(changes(sign), "it shows life again", every=0.5)


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("role", "port"), [("web", "PORT"), ("api", "API_PORT")])
def test_a_front_is_asked_at_its_port(role: str, port: str, tmp_path: Path) -> None:
    given = {port: str(free_port())}
    code, said = ask(role, tmp_path, **given)
    assert code == 1 and f"{role} does not answer at port {given[port]}" in said
    with started(role, tmp_path, HOST="0.0.0.0", **given):
        wait_until(
            lambda: ask(role, tmp_path, HOST="0.0.0.0", **given) == (0, f"{role} lives"), "it answers", every=0.5
        )


@pytest.mark.slow("processes")
def test_run_names_the_processes_of_the_procfile() -> None:
    ran = subprocess.run(
        [sys.executable, "manage.py", "run", "nobody"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    processes = re.findall(r"^([\w-]+):", (ROOT / "Procfile").read_text(), re.MULTILINE)
    assert ran.returncode == 1
    assert ran.stderr == f"CommandError: the Procfile has no process nobody (there are {', '.join(processes)})\n"


@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
def test_a_signal_reaches_the_process_itself(tmp_path: Path) -> None:
    with started("bounces", tmp_path) as program:
        wait_until(lambda: program.said("no bounces are taken here"), "it has begun")
        os.kill(program.process.pid, signal.SIGTERM)
        wait_until(lambda: program.process.poll() == 0, "it ends as by itself")


def changes(path: Path) -> Callable[[], bool]:
    before = path.read_text()
    return lambda: path.read_text() != before


def started(role: str, home: Path, **settings: str):
    home.mkdir(exist_ok=True)
    return running("manage.py", "run", role, MAILHUB_HOME=str(home), **settings)
