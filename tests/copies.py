"""A copy of the test's database, and blocks of psql from the documents, executed."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from mailhub.embedded import binaries
from vendors import redis_clients

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page: str) -> list[str]:
    """What the page has for psql, in its order."""
    return re.findall(r"```sql\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def psql(block: str, **known: Any) -> list[tuple[Any, ...]]:
    """Runs a block as psql does, with its variables; the rows of its last statement."""
    rows: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        for statement, end in re.findall(r"(.+?)(;\n|\\gset\n)", block, re.DOTALL):
            cursor.execute(_filled(statement, known))
            rows = cursor.fetchall() if cursor.description else []
            if end.startswith("\\gset"):
                known |= dict(zip([column[0] for column in cursor.description or ()], rows[0], strict=True))
    return rows


def _filled(statement: str, known: dict[str, Any]) -> str:
    """psql's :name and :'name'."""
    quoted = re.sub(r"(?<!:):'([a-z]+)'", lambda word: f"'{known[word[1]]}'", statement)
    return re.sub(r"(?<!:):([a-z]+)", lambda word: str(known[word[1]]), quoted)


@contextmanager
def backup() -> Iterator[str]:
    """The name of a copy of the database as it is now; nothing may be connected to it for a moment."""
    database = connection.settings_dict["NAME"]
    with _other_database(f"{database}_copy", template=database) as name:
        yield name


@contextmanager
def read_dump(dump: Path, pg_restore: Path) -> Iterator[str]:
    """The name of a database into which pg_restore has read the dump, as the page about restoring says."""
    with _other_database(f"{connection.settings_dict['NAME']}_restored", template="template0") as name:
        run_client(pg_restore, "--no-owner", "--exit-on-error", f"--dbname={name}", str(dump))
        yield name


@contextmanager
def _other_database(name: str, template: str) -> Iterator[str]:
    """A database for as long as the block lasts.

    Rows that are made in it have numbers that the first database will give again, so Redis forgets them at the end.
    """
    first = connection.settings_dict["NAME"]
    _elsewhere(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield name
    finally:
        with redis_clients.make_client(settings.REDIS_URL) as redis:
            redis.flushdb()
        connection.close()
        connection.settings_dict["NAME"] = first
        _elsewhere(f'DROP DATABASE "{name}" WITH (FORCE)')


def restore(name: str) -> None:
    """From here on the test, and the processes that it starts, are on this database."""
    connection.close()
    connection.settings_dict["NAME"] = name


def _elsewhere(statement: str) -> None:
    connection.close()
    with connection._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(statement)


def find_client(name: str) -> Path:
    """Find this program of PostgreSQL's in the version of the test's server, or in a later one on PATH.

    Skips the test where there is none.
    """
    major = connection.pg_version // 10_000
    try:
        beside = (binaries.postgres_programs(major) / "postgres").resolve().parent / name
    except binaries.EmbeddedError:
        beside = None
    on_path = shutil.which(name)
    for program in filter(None, (beside, on_path and Path(on_path))):
        if program.exists() and _major(program) >= major:
            return program
    pytest.skip(f"there is no {name} of PostgreSQL {major} or later on this machine")


def _major(program: Path) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", said)
    return int(found[1]) if found else 0


def run_client(program: Path, *arguments: str) -> None:
    """Run a program of PostgreSQL's against the test's server."""
    at: dict[str, Any] = connection.get_connection_params()  # of psycopg: its values are text or numbers
    names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password"}
    given = {variable: str(at[name]) for variable, name in names.items() if at.get(name)}
    done = subprocess.run([program, *arguments], env=os.environ | given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
