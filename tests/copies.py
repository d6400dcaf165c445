"""A copy of the test's database, and blocks of psql from the documents, executed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

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
    """The name of a copy of the database as it is now; nothing may be connected to it for a moment.

    What is made in the copy has numbers that the database will give again, so Redis forgets it at the end.
    """
    name = connection.settings_dict["NAME"]
    _elsewhere(f'CREATE DATABASE "{name}_copy" TEMPLATE "{name}"')
    try:
        yield f"{name}_copy"
    finally:
        with redis_clients.connect(settings.REDIS_URL) as redis:
            redis.flushdb()
        connection.close()
        connection.settings_dict["NAME"] = name
        _elsewhere(f'DROP DATABASE "{name}_copy" WITH (FORCE)')


def restore(name: str) -> None:
    """From here on the test, and the processes that it starts, are on this database."""
    connection.close()
    connection.settings_dict["NAME"] = name


def _elsewhere(statement: str) -> None:
    connection.close()
    with connection._nodb_cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(statement)
