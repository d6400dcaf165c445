"""A home on a full disk, on a read-only one, and none at all: each command says so in a sentence with the way out."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from mailhub import environment
from tests import programs
from tests.waiting import DEADLINE

FULL = "mount -t tmpfs -o size=64k none {home}; head -c 100000 /dev/zero > {home}/fill 2>&-;"
READ_ONLY = "mount -t tmpfs -o ro none {home};"
MAY_MOUNT = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
MOUNTS = pytest.mark.skipif(not MAY_MOUNT, reason="no right to mount here")


def run(home: Path, mounting: str, *command: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a command of manage.py whose home is on a file system of its own, which ends with it."""
    home.mkdir(exist_ok=True)
    given = {**programs.environment(), "MAILHUB_HOME": str(home), **changes}
    script = mounting + ' "$@"; code=$?; ls -A {home} | grep -c secret_key; exit $code'
    apart = ["unshare", "--mount", "sh", "-c", script.replace("{home}", str(home)), "sh"]
    return subprocess.run(
        [*apart, sys.executable, "manage.py", *command],
        env={name: value for name, value in given.items() if value is not None},
        cwd=programs.PROJECT, capture_output=True, text=True, timeout=5 * DEADLINE, check=False,
    )  # fmt: skip


def test_a_home_that_cannot_hold_a_key_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ImproperlyConfigured) as fault:
        environment.secret_key(tmp_path / "file" / "home")
    assert str(fault.value) == (
        f"{tmp_path}/file/home/secret_key cannot be read or made (Not a directory): "
        "set SECRET_KEY, or MAILHUB_HOME to a folder of yours with free space"
    )


def test_a_key_is_made_once_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    first = environment.secret_key(tmp_path / "home")
    assert environment.secret_key(tmp_path / "home") == first
    assert os.listdir(tmp_path / "home") == ["secret_key"]


@MOUNTS
@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mounting", "why"), [(FULL, "No space left on device"), (READ_ONLY, "Read-only file system")], ids=["full", "ro"]
)
def test_without_a_key_of_the_environment_every_command_ends_in_one_sentence(
    tmp_path: Path, mounting: str, why: str
) -> None:
    for command in ("doctor --installation --json", "status --check", "migrate --wait", "up", "run beat"):
        ran = run(tmp_path / "home", mounting, *command.split(), SECRET_KEY=None)
        assert ran.returncode == 1, (command, ran)
        assert f"home/secret_key cannot be read or made ({why}): set SECRET_KEY, or" in ran.stderr, (command, ran)
        assert "Traceback" not in ran.stdout + ran.stderr
        assert ran.stdout.splitlines()[-1] == "0", "no draft of a key is left"
    assert run(tmp_path / "home", mounting, "version", SECRET_KEY=None).returncode == 0


@MOUNTS
@pytest.mark.slow("processes")
@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mounting", "seen", "level"),
    [(FULL, "has only 0 MB free", "error"), (READ_ONLY, "cannot be written", "warning")],
    ids=["full", "ro"],
)
def test_doctor_names_a_disk_that_is_full_or_read_only_and_the_rest_is_examined(
    tmp_path: Path, mounting: str, seen: str, level: str
) -> None:
    ran = run(tmp_path / "home", mounting, "doctor", "--installation", "--json", f"--seconds={DEADLINE}")
    *lines, _ = ran.stdout.splitlines()
    found = [json.loads(line) for line in lines]
    (disk,) = (one for one in found if one["seen"] == f"{tmp_path}/home {seen}")
    assert disk["level"] == level and disk["remedy"]
    assert ran.returncode == any(one["level"] == "error" for one in found), ran.stderr
    assert {"database", "redis", "processes"} <= {one["about"] for one in found}
    assert "Traceback" not in ran.stderr
