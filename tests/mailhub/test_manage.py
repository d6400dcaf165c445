"""manage.py starts servers for the commands that want them, and only for those."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import SystemCheckError

from mailhub.command import needs_services
from tests import forks
from tests.waiting import DEADLINE

KEY = "abcdefghijklmnopqrstuvwxyz0123456789-abcdefghijklmn"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("line", ["migrate", "demo --fast", "makemigrations --check --dry-run", "check", "shell"])
def test_a_command_that_wants_the_database_gets_servers(line: str) -> None:
    assert needs_services(line.split())


@pytest.mark.parametrize("line", ["", "help", "help migrate", "--version", "migrate --help", "services stop", "-h"])
def test_a_command_that_must_work_without_servers_starts_none(line: str) -> None:
    assert not needs_services(line.split())


def test_only_what_starts_everything_or_changes_tables_runs_all_of_djangos_checks() -> None:
    packages = {"mailhub", "campaigns", "vendors", "sandbox"}
    ours = {name: app for name, app in get_commands().items() if str(app).partition(".")[0] in packages}
    assert len(ours) > 20
    checking = {name for name, app in ours.items() if load_command_class(app, name).requires_system_checks}
    assert checking == {"up", "demo", "migrate"}


@pytest.mark.slow("processes")
def test_a_command_does_not_load_the_api_which_would_take_a_tenth_of_its_start() -> None:
    line = [sys.executable, "-X", "importtime", "manage.py", "send_campaign", "--help"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    loaded = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert done.returncode == 0 and "campaigns.models.jobs" in loaded
    doors = re.compile(r"ninja|mailhub\.front|campaigns\.(doors\.front|\w+\.(api|pages)\b)")
    assert not [name for name in loaded if doors.match(name)]


def test_a_database_that_is_away_is_told_in_one_line(tmp_path: Path) -> None:
    nowhere = {"DATABASE_URL": f"postgres://nobody@/none?host={tmp_path}", "REDIS_URL": "redis://127.0.0.1:1/0"}
    away = {**os.environ, **nowhere, "MAILHUB_HOME": str(tmp_path)}
    done = forks.run(["manage.py", "list_jobs"], env=away, timeout=120)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("The database failed: connection")


@pytest.mark.slow("processes")
def test_who_closes_the_pipe_sees_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "manage.py", "help"],
            env={**os.environ, "MAILHUB_HOME": str(tmp_path)},
            cwd=Path(__file__).parents[2],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", ["up", "demo"])
@pytest.mark.slow("processes")
def test_what_starts_everything_says_so_before_it_loads_anything_and_ends_early_in_a_sentence(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()  # no home can be made there
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    done = subprocess.run(
        [sys.executable, "-u", "-X", "importtime", "manage.py", command],
        cwd=ROOT,
        env=environment | {"MAILHUB_HOME": str(tmp_path / "file" / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    lines = done.stdout.splitlines()
    said = [number for number, line in enumerate(lines) if not line.startswith("import time:")]
    command_alone = r"\| +(mailhub\.(?!command$)|django\b)"
    first_of_ours = next(number for number, line in enumerate(lines) if re.search(command_alone, line))
    assert "starts" in lines[said[0]] and said[0] < first_of_ours
    assert done.returncode == 1 and "Traceback" not in done.stdout
    assert str(tmp_path / "file" / "home") in lines[said[-1]] and "MAILHUB_HOME" in lines[said[-1]]


@pytest.mark.django_db
def test_a_check_before_others_reach_it_fails_for_warnings_too(settings: Any) -> None:
    with pytest.raises(SystemCheckError, match=r"security\.W012"):
        call_command("check", deploy=True)
    call_command("check")
    call_command("check", deploy=True, fail_level="ERROR")
    for name in ("SECURE_SSL_REDIRECT", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE"):
        setattr(settings, name, True)
    settings.SECURE_HSTS_SECONDS, settings.SECRET_KEY, settings.DEBUG = 31_536_000, "long and secret: " + KEY, False
    call_command("check", deploy=True, tags=["security"])
