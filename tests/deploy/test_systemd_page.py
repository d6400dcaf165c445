"""The commands of deploy/README.md for one machine with systemd, in their order, on a root folder of their own.

No service is started. tests/deploy/test_first_mail.py starts the processes that the units name.
"""

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ("systemctl", "systemd-sysusers", "systemd-tmpfiles")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
FOLDERS = ("etc/systemd/system", "etc/tmpfiles.d", "etc/sysusers.d", "opt/mailhub/bin", "var/lib")  # the system's

pytestmark = [
    pytest.mark.slow("programs"),
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes users and their folders"),
]


def read_steps() -> list[list[str]]:
    """Return each command of the section, split, from the units on."""
    page = (ROOT / "deploy" / "README.md").read_text()
    part = page.split("\n## One machine with systemd\n")[1].split("\n## ")[0]
    lines = re.sub(r"\\\n *", "", "".join(re.findall(r"^    .*\n", part, re.MULTILINE)))
    commands = [shlex.split(one, comments=True) for line in lines.splitlines() for one in line.split("&&")]
    (first,) = (number for number, command in enumerate(commands) if command[1:2] == ["units"])
    return commands[first:]


def follow(command: list[str], root: Path) -> str:
    """Run a command of the page on this root. Returns what it does not know, or nothing."""
    match command:
        case ["/opt/mailhub/bin/mailhub", "units", folder]:
            run(sys.executable, "manage.py", "units", f"{root}{folder}")
        case ["mv", source, target]:
            Path(f"{root}{source}").rename(f"{root}{target}")
        case [("systemd-sysusers" | "systemd-tmpfiles") as program, *options]:
            run(program, *options, f"--root={root}")
        case ["editor", file]:
            Path(f"{root}{file}").write_text("SECRET_KEY=secret\n")
            Path(f"{root}{file}").chmod(0o644)  # as an editor leaves it
        case ["systemctl", "enable", "--now", unit]:
            run("systemctl", f"--root={root}", "enable", unit)
        case ["systemctl", "start", unit]:
            assert Path(root, "etc/systemd/system", f"{unit}.service").exists()
        case ["systemctl", "daemon-reload"] | ["alias", _] | ["mailhub", "createsuperuser"]:
            pass
        case _:
            return shlex.join(command)
    return ""


def run(*command: str) -> None:
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (command, ran.stdout + ran.stderr)


def test_the_pages_commands_make_user_folders_and_units_and_close_the_settings(tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
    steps = read_steps()
    assert [one for one in (follow(command, tmp_path) for command in steps) if one] == []
    users = [pwd.struct_passwd(line.split(":")) for line in (tmp_path / "etc/passwd").read_text().splitlines()]
    (user,) = (one for one in users if one.pw_name == "mailhub")
    assert (user.pw_dir, Path(user.pw_shell).name) == ("/var/lib/mailhub", "nologin")
    groups = {name: int(number) for name, _, number, _ in (
        line.split(":") for line in (tmp_path / "etc/group").read_text().splitlines()
    )}  # fmt: skip
    settings, home = (tmp_path / "etc/mailhub/environment").stat(), (tmp_path / "var/lib/mailhub").stat()
    assert (settings.st_mode & 0o777, settings.st_uid, settings.st_gid) == (0o640, 0, groups["mailhub"])
    assert (home.st_mode & 0o777, home.st_uid, home.st_gid) == (0o700, int(user.pw_uid), groups["mailhub"])
    units = tmp_path / "etc/systemd/system"
    assert (units / "multi-user.target.wants/mailhub.target").is_symlink()
    wanted = re.findall(r"mailhub-\S+", (units / "mailhub.target").read_text())
    assert [one for one in wanted if not (units / re.sub(r"@\d+", "@", one)).exists()] == []
    assert not list(units.glob("*.conf")), "the page moves them away"
